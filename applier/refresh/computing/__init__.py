"""Planned refreshes in; their rows, from Spark or from PostgreSQL, in the tick or beside it, out."""
