"""Takes functions over integers, floats and numerics, and returns Spark SQL."""
