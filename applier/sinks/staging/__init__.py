"""A Spark result that is too large for the driver in, parts of it in tables of PostgreSQL out."""
