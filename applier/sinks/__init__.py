"""Deltas in; rows and frontiers in PostgreSQL, Delta Lake and Kafka out."""
