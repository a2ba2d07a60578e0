"""Functions over dates, times, timestamps and intervals in, Spark SQL out."""
