"""A plan node and its inputs in, the Spark SQL of its snapshot and of its delta out."""
