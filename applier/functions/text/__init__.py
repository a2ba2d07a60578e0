"""Functions over text, patterns and formats in, Spark SQL out."""
