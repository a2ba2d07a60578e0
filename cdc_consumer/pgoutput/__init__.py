"""Decodes the bytes of PostgreSQL's output plugin into messages and table schemas. Does no IO."""
