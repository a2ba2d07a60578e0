"""Kafka messages in, change rows that are complete up to a frontier out."""
