"""Takes a PostgreSQL function and its typed arguments, and returns Spark SQL that is proven equal."""
