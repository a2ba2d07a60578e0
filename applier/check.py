"""Compare a stream table with its query, both evaluated by PostgreSQL at one position in the log.

Writers of the sources wait for the time of the check: with the sources locked against writes, the position the stream
table is waited for is the position the query sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId

SHOWN_DIFFERENCES = 5


@dataclass(frozen=True)
class Checked:
    """The outcome for one stream table: how many rows there are, and the first of those that should not differ."""

    table: TableId
    frontier: Lsn
    rows: int
    missing: list[str]
    unexpected: list[str]

    @property
    def equal(self) -> bool:
        """Whether the stream table is exactly its query's result."""
        return not self.missing and not self.unexpected


def names(connection: psycopg.Connection[tuple[object, ...]]) -> list[TableId]:
    """Every filled stream table."""
    found = connection.execute(
        "SELECT s.pgt_schema, s.pgt_name FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle.pgt_frontiers USING (pgt_id)"
        " WHERE s.status = 'ACTIVE' ORDER BY 1, 2"
    ).fetchall()
    return [TableId(str(schema), str(name)) for schema, name in found]


def check(connection: psycopg.Connection[tuple[object, ...]], table: TableId) -> Checked:
    """Lock the sources against writes, wait for the stream table, compare row by row as PostgreSQL prints them."""
    with connection.transaction():
        stored = connection.execute(
            "SELECT s.defining_query,"
            " (SELECT array_agg(format('%%I.%%I', b.source_schema, b.source_name) ORDER BY b.source_relid)"
            "  FROM pgtrickle._base_sources(s.pgt_id) b),"
            " (SELECT coalesce(array_agg(format('%%I.%%I', d.source_schema, d.source_name)), '{}')"
            "  FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = s.pgt_id AND d.source_type = 'STREAM_TABLE')"
            " FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_schema = %s AND s.pgt_name = %s",
            (table.schema, table.name),
        ).fetchone()
        if stored is None:
            raise LookupError(str(table))
        query, sources, read = str(stored[0]).rstrip().rstrip(";"), stored[1], stored[2]
        if isinstance(sources, list):
            connection.execute(f"LOCK TABLE {', '.join(sources)} IN SHARE MODE".encode())
        for stream_table in read if isinstance(read, list) else []:
            connection.execute("SELECT pgtrickle.wait_for(%s)", (stream_table,))
        frontier = connection.execute("SELECT pgtrickle.wait_for(%s)::text", (table.quoted,)).fetchone()
        parts = {"t": sql.Identifier(table.schema, table.name), "q": sql.SQL(query)}
        count = connection.execute(sql.SQL("SELECT count(*) FROM {t}").format(**parts)).fetchone()
        missing = _rows(connection, "SELECT (q.*)::text FROM ({q}) q EXCEPT ALL SELECT (t.*)::text FROM {t} t", parts)
        unexpected = _rows(
            connection, "SELECT (t.*)::text FROM {t} t EXCEPT ALL SELECT (q.*)::text FROM ({q}) q", parts
        )
    at = Lsn.parse(str(frontier[0])) if frontier else Lsn(0)
    return Checked(table, at, int(str(count[0])) if count else 0, missing, unexpected)


def _rows(connection: psycopg.Connection[tuple[object, ...]], text: str, parts: dict[str, sql.Composable]) -> list[str]:
    limited = sql.SQL(text + f" LIMIT {SHOWN_DIFFERENCES}").format(**parts)
    return [str(row[0]) for row in connection.execute(limited).fetchall()]
