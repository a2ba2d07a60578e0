"""The embedded stack: PostgreSQL from a wheel, Kafka from jars and both binaries, without Docker or root."""
