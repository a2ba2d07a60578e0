"""Kafka topics of change rows in; stream tables in PostgreSQL, in Delta Lake and on topics of their own out."""
