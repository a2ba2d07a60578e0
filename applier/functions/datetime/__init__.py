"""Takes functions over dates, times, timestamps and intervals, and returns Spark SQL."""
