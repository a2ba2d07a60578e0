"""Computed rows in; the same rows in PostgreSQL, on the topic and in Delta, out."""
