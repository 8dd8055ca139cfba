"""Benchmarks: ours, and the peers' beside them. What is measured lives in `measures`, one module a benchmark.

`manage.py bench NAME` runs one of ours; `python -m benchmarks` (`make bench`) runs all of them and the peers'.
"""
