"""Creates and replaces the unique index on a stream table's key, by which a MERGE finds its rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

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
