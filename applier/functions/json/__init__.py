"""Takes functions over json and jsonb, SQL/JSON paths and constructors, and returns Spark SQL."""
