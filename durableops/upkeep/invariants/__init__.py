"""The promises a query can check, one named query each. `report` runs them, the other modules hold the queries.

A query returns the rows that break the promise; none is the answer it wants. It reads, and repairs nothing.
"""
