"""Functions over json and jsonb, SQL/JSON paths and constructors in, Spark SQL out."""
