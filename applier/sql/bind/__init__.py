"""A query tree in, plan nodes out: FROM, WHERE, GROUP BY, windows, set operations and recursion."""
