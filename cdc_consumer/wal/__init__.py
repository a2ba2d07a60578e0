"""Access to the source: replication connection, slot, publications and catalog of one PostgreSQL server."""
