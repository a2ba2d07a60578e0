"""Bytes of PostgreSQL's output plugin -> messages and table schemas. Does no IO."""
