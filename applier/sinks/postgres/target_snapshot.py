"""A stream table in; its rows in PostgreSQL and their frontier, for a sink that rewrites its whole table, out.

Only when the applier alone writes to it: a row from a trigger or from another program is not part of the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from applier.catalog.database import connect
from applier.plan.stream_table import StreamTable
from applier.sinks.postgres import merge_sql
from applier.sinks.postgres.arrow_rows import comparable_columns, read_arrow
from shared_schema.lsn import Lsn

_FRONTIER = """
SELECT f.frontier::text, s.partial_until IS NOT NULL
FROM pgtrickle.pgt_frontiers f JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
WHERE s.pgt_id = %s AND s.pgt_relid::int8 = %s
  AND EXISTS (SELECT FROM pg_catalog.pg_trigger t
              WHERE t.tgrelid = s.pgt_relid AND t.tgname = 'pgt_refuse_dml' AND t.tgenabled <> 'D')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
                  WHERE t.tgrelid = s.pgt_relid AND NOT t.tgisinternal AND t.tgname <> 'pgt_refuse_dml')
"""


class PartialTarget(Exception):
    """The rows belong to no frontier: a progressive refresh is being written."""


@dataclass(frozen=True)
class TargetSnapshot:
    """The rows with their repetitions, under the stream table's own column names."""

    frontier: Lsn
    rows: pa.RecordBatchReader


@contextmanager
def read_target_snapshot(url: str, table: StreamTable, schema: pa.Schema, size: int) -> Iterator[TargetSnapshot | None]:
    """Read the rows and their frontier in one snapshot; None when other programs may have written rows."""
    names = [column.name for column in table.columns]
    typed = pa.schema([pa.field(name, schema.field(i).type) for i, name in enumerate(names)])
    query = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(comparable_columns(table, schema)), merge_sql.target(table)
    )
    with connect(url) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = connection.execute(_FRONTIER, (table.id, table.relid)).fetchone()
        if found is None:
            yield None
        elif found[1]:
            raise PartialTarget
        else:
            rows = pa.RecordBatchReader.from_batches(typed, read_arrow(connection, query, typed, size))
            yield TargetSnapshot(Lsn.parse(str(found[0])), rows)
