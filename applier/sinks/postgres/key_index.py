"""Creates and replaces the unique index on a stream table's key, by which a MERGE finds its rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from psycopg import errors

from applier.plan.stream_table import StreamTable
from applier.sinks.postgres import merge_sql
from applier.sinks.postgres.transaction import WriteSession

log = logging.getLogger(__name__)


def create_key_index(session: WriteSession, table: StreamTable) -> None:
    """Create the index, in the caller's transaction; a stream table without a key has none."""
    if not table.key:
        return
    try:
        with session.transaction() as cursor:
            cursor.execute(merge_sql.key_index(table, table.key, table.not_null, session.server_version))
    except errors.ProgramLimitExceeded:
        # Values are too long for an index entry: MERGE still finds its rows, but by scanning.
        log.warning("stream table has no key index", extra={"table": str(table)})


_KEY_OF_ANOTHER_QUERY = """
SELECT i.indexrelid::regclass::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s::int8::oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT i.indisprimary
  AND c.relname ~ '_idx[0-9]*$' AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid)
ORDER BY i.indexrelid LIMIT 1
"""
"""Selects the oldest unique index that PostgreSQL itself named: that is the one of `key_index`."""


@contextmanager
def fit_key(session: WriteSession, table: StreamTable) -> Iterator[StreamTable]:
    """Run the block in one transaction, after which the key index is that of the table's present plan.

    Yields the stream table by which the rows have to be written: where the index was another one, rows are counted.
    """
    with session.transaction() as cursor:
        if table.key:
            cursor.execute(merge_sql.KEY_INDEX, (table.relid, [table.columns[i].name for i in table.key]))
            if cursor.fetchall():
                yield table
                return
        cursor.execute(_KEY_OF_ANOTHER_QUERY, (table.relid,))
        for (index,) in cursor.fetchall():
            cursor.execute(f"DROP INDEX {index}".encode())
        yield replace(table, by_count=True)
        create_key_index(session, table)


@contextmanager
def replace_key(session: WriteSession, old: StreamTable, new: StreamTable) -> Iterator[None]:
    """Drop the key index of the old query before the block, and create that of the new query after it."""
    if old.key:
        with session.connection.cursor() as cursor:
            cursor.execute(merge_sql.KEY_INDEX, (old.relid, [old.columns[i].name for i in old.key]))
            for (index,) in cursor.fetchall()[:1]:
                cursor.execute(f"DROP INDEX {index}".encode())
    yield
    create_key_index(session, new)
