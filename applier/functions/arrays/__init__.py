"""Functions over arrays, composite types and ranges in, Spark SQL out."""
