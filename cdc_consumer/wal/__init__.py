"""The source side: replication connection, slot, publication and catalog of one PostgreSQL server."""
