"""Prepares a capture: takes tables, returns a consistent point and a reader that sees the tables exactly as of it.

A temporary slot gives the consistent point L and exports the snapshot that belongs to it: commits whose record starts
before L are in the snapshot, all others will be streamed. The reader then locks the tables so that they cannot be
rewritten. A table that was truncated or rewritten between snapshot and lock would look empty in the older snapshot.
Therefore its storage is compared, and the capture starts again if the storage changed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

import psycopg

from cdc_consumer.errors import CaptureFailed
from cdc_consumer.pgoutput.messages import Relation, RelationColumn
from cdc_consumer.pgoutput.relations import root_schema, table_schema
from cdc_consumer.wal.catalog import Connection, PublishedTable, connect, published_tables, relation_facts
from cdc_consumer.wal.diagnosis import diagnose_exception
from cdc_consumer.wal.session import ReplicationSession
from cdc_consumer.wal.table_facts import read_table_facts
from shared_schema.lsn import Lsn
from shared_schema.table_schema import ReplicaIdentity, TableId, TableSchema

LOCK_TIMEOUT_S = 5
"""Long enough for an ordinary ALTER TABLE to finish; after this time the capture starts again with a new snapshot."""

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class TableExport:
    """A table to copy, with the schema of its rows at the consistent point."""

    published: PublishedTable
    schema: TableSchema
    again: bool
    """Whether a table of this name was captured before. Leaf partitions that join a captured table are no copy of it
    again."""
    facts: str = ""
    """What its rows rest on besides the log, where nobody else compares it."""

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaf partitions to copy; empty for a table that is not partitioned."""
        return self.published.only or self.published.leaves


@dataclass(frozen=True, slots=True)
class Export:
    """A reader inside the snapshot of `snapshot_at`; close it when the tables are copied."""

    snapshot_at: Lsn
    """Commits before this consistent point are in the snapshot, all others are not."""
    at: Lsn
    """Where the tables join the stream: the consistent point, or a later one if the stream has passed that."""
    tables: tuple[TableExport, ...]
    reader: Connection
    others: list[Connection]
    """Further readers inside the same snapshot, opened if a table is large enough."""
    database_url: str = field(repr=False)

    @property
    def stamp(self) -> Lsn:
        """The LSN in the stamps of the copied rows: one byte before `at`, where no commit record can start."""
        return Lsn(self.at.value - 1)

    def readers(self, number: int, table: TableExport) -> list[Connection]:
        """Return `number` connections that see the table in this snapshot and hold a lock on it."""
        try:
            while len(self.others) < number - 1:
                row = self.reader.execute("SELECT pg_export_snapshot()").fetchone()
                self.others.append(connect(self.database_url))
                _enter(self.others[-1], str(row[0]) if row else "")
            for other in self.others[: number - 1]:
                # If a session has requested an exclusive lock since the first reader took its lock, that session waits
                # for the first reader and these readers wait for that session: the lock timeout ends this deadlock.
                _lock(other, table.published)
        except psycopg.Error as error:
            raise diagnose_exception(error) from error
        return [self.reader, *self.others[: number - 1]]

    def close(self) -> None:
        """Release the snapshot and the locks."""
        for connection in (*self.others, self.reader):
            connection.close()


def prepare_export(
    database_url: str,
    publications: tuple[str, ...],
    requested: Sequence[PublishedTable],
    known: Container[TableId] = (),
) -> Export:
    """Open a reader of the requested tables at a new consistent point. Waits for running write transactions."""
    reader = connect(database_url)
    try:
        with ReplicationSession(database_url) as exporter:
            name = f"pg_trickle_capture_{os.getpid()}_{next(_names)}"
            at, snapshot = exporter.create_slot(name, temporary=True, export=True)
            _enter(reader, snapshot)
            for table in requested:
                _lock(reader, table)
                _check_storage(reader, table)
        described = {t.relid: t for t in published_tables(reader, publications)}
        facts = read_table_facts(reader, publications, [t.relid for t in requested])
        tables = tuple(
            replace(_export(reader, described.get(t.relid, t), t, t.table in known), facts=facts.get(t.relid, ""))
            for t in requested
        )
    except psycopg.Error as error:
        reader.close()
        raise diagnose_exception(error) from error
    except BaseException:
        reader.close()
        raise
    return Export(at, at, tables, reader, [], database_url)


def _enter(reader: Connection, snapshot: str) -> None:
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    reader.execute(psycopg.sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))


_MOVED = """
WITH RECURSIVE seen (oid) AS (
    SELECT %(relid)s::oid
  UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN seen ON seen.oid = i.inhparent
    WHERE %(partitioned)s AND NOT i.inhdetachpending
)
SELECT EXISTS (
    SELECT FROM seen JOIN pg_class c USING (oid)
    WHERE c.relkind = 'r' AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
) OR (
    %(partitioned)s AND (SELECT array_agg(oid ORDER BY oid) FROM seen)
        IS DISTINCT FROM (SELECT array_agg(p.relid::oid ORDER BY p.relid::oid) FROM pg_partition_tree(%(relid)s) p)
)
"""


def _lock(reader: Connection, table: PublishedTable) -> None:
    reader.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'".encode())
    only = "" if table.partitioned else "ONLY "
    reader.execute(f"LOCK TABLE {only}{table.table.quoted} IN ACCESS SHARE MODE".encode())


def _check_storage(reader: Connection, table: PublishedTable) -> None:
    row = reader.execute(_MOVED, {"relid": table.relid, "partitioned": table.partitioned}).fetchone()
    if row is None or row[0]:
        raise CaptureFailed(
            f"{table.table} was truncated or rewritten while its capture began",
            hint="the capture is tried again automatically",
        )


_DESCRIBED = """
SELECT c.relreplident, a.attname, a.atttypid, a.atttypmod,
       coalesce(a.attnum = ANY (i.indkey), c.relreplident = 'f')
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid
     AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)
WHERE c.oid = %s ORDER BY a.attnum
"""


def _export(reader: Connection, published: PublishedTable, requested: PublishedTable, known: bool) -> TableExport:
    """Describe the table as the stream would, so that copied and streamed rows have the same schema version."""
    if requested.only:
        published = replace(published, only=tuple(leaf for leaf in requested.only if leaf in published.leaves))
        if not published.only:
            raise CaptureFailed(
                f"a partition of {published.table} was detached or dropped while its capture began",
                hint="the partitions are looked up again automatically",
            )
    rows = reader.execute(_DESCRIBED, (published.relid,)).fetchall()
    columns = tuple(
        RelationColumn(name, oid, typmod, in_key) for _, name, oid, typmod, in_key in rows if name in published.columns
    )
    identity = ReplicaIdentity(rows[0][0]) if rows else ReplicaIdentity.DEFAULT
    relation = Relation(published.relid, published.table.schema, published.table.name, identity, columns)
    facts = relation_facts(reader, published.relid, [(c.type_oid, c.typmod) for c in columns])
    if published.partitioned:
        schema = root_schema(relation, published.table, published.relid, facts, None)
    else:
        schema = table_schema(relation, facts, None)
    return TableExport(published, schema, known and not requested.only)
