"""Django's PostgreSQL backend with few connections: as many as a worker may open for the code of steps and tools.

`lender` holds the connections; `base` is what Django loads by the name of this package. Used in a worker's child only.
"""
