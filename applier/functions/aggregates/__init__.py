"""Aggregate functions in; Spark SQL, and the accumulators that maintain them, out."""
