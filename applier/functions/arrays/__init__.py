"""Takes functions over arrays, composite types and ranges, and returns Spark SQL."""
