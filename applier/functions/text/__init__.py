"""Takes functions over text, patterns and formats, and returns Spark SQL."""
