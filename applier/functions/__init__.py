"""A PostgreSQL function and its typed arguments in, Spark SQL that is proven equal out."""
