"""Takes aggregate functions, and returns Spark SQL and the accumulators that maintain them."""
