"""Jars and settings in, a Spark session and the rows of its queries out; all private use of py4j is here."""
