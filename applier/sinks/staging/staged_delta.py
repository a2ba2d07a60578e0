"""A delta whose rows are in tables of PostgreSQL: every sink reads them from there, in batches.

It consists of parts, with all rows of a key in one part. A part is an unlogged table; the next start drops what a crash
leaves behind: a refresh is computed again, never resumed.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Self

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.catalog.database import Connection, connect
from applier.catalog.epochs import epoch_of
from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.sinks.lease import Lease, LeaseCount
from applier.sinks.postgres.arrow_rows import comparable_columns, read_arrow
from applier.sinks.postgres.copy_text import PIECE_ROWS
from applier.zset import column_name
from shared_schema.lsn import LsnRange
from shared_schema.table_schema import Column

log = logging.getLogger(__name__)

STAGED_SCHEMA = "pgtrickle"
STAGED_PREFIX = "pgt_staged_"


def own_prefix(url: str) -> str:
    """Return how the names of the parts of this process begin. Executors of an applier that was replaced may still
    write parts: they must have other names."""
    return f"{STAGED_PREFIX}e{epoch_of(url) or 0}_"


NUMBERS = itertools.count()
"""Numbers deltas, so that two deltas of a stream table have different names."""

OLD_IMAGE = "O"
"""The action of a row that an update replaces: the topic and Delta need it, PostgreSQL finds it by its key."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One filled table: its number of rows, and how many rows it inserts into and deletes from the stream table."""

    name: str
    rows: int
    inserted: int
    deleted: int

    @property
    def table(self) -> sql.Identifier:
        """Its qualified name."""
        return sql.Identifier(STAGED_SCHEMA, self.name)

    @property
    def drop(self) -> sql.Composed:
        """The statement that deletes it."""
        return sql.SQL("DROP TABLE IF EXISTS {}").format(self.table)


class PartQueue:
    """The parts that have arrived, in their order, for any number of readers on any threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._parts: list[StagedPart] = []
        self._ended = False
        self._is_abandoned = False
        self._error: BaseException | None = None

    def add(self, part: StagedPart) -> bool:
        """Add a part; return False when nobody will read it."""
        with self._changed:
            self._parts.append(part)
            self._changed.notify_all()
            return not self._is_abandoned

    def abandon(self) -> list[StagedPart]:
        """Note that nobody will read later parts; return those that have arrived."""
        with self._changed:
            self._is_abandoned = True
            return list(self._parts)

    def end(self, error: BaseException | None = None) -> None:
        """End the queue: that was the last part, or an error stopped the others."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def iterate(self) -> Iterator[StagedPart]:
        """Yield all parts, each as soon as it has arrived; then raise the error, if there was one."""
        number = 0
        while (part := self._wait_for(number)) is not None:
            number += 1
            yield part

    def _wait_for(self, number: int) -> StagedPart | None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._parts) > number or self._ended)
            if number < len(self._parts):
                return self._parts[number]
            if self._error is not None:
                raise self._error
            return None


@dataclass
class StagedDelta:
    """A delta whose rows are in PostgreSQL. `parts` waits for the executors that make them.

    The end of its last lease drops the tables; whoever receives a new one opens a lease first of all.
    """

    lsn_range: LsnRange
    table: StreamTable
    url: str
    schema: pa.Schema
    expected: int
    """The number of parts."""
    part_queue: PartQueue = field(default_factory=PartQueue)
    applied: tuple[int, int] | None = None
    """The numbers of inserted and deleted rows, once they are in the stream table before its frontier moves."""
    _leases: LeaseCount = field(init=False)

    def __post_init__(self) -> None:
        self._leases = LeaseCount(self._drop_tables)

    @property
    def is_fill(self) -> bool:
        """Whether it is the full result, for a stream table that is still empty."""
        return not self.lsn_range.lower

    @property
    def count(self) -> int:
        """The number of net rows; waits for the last part."""
        return sum(part.rows for part in self.parts())

    @property
    def has_deletions(self) -> bool:
        """Whether a row has a negative weight; waits for the last part."""
        return any(part.deleted for part in self.wait_for_all().parts())

    def wait_for_all(self) -> Self:
        """Wait until all parts have arrived; return itself."""
        for _ in self.parts():
            pass
        return self

    def parts(self) -> Iterator[StagedPart]:
        """Yield each part as soon as it has arrived; raise the error that stopped its executor."""
        return self.part_queue.iterate()

    def batches(self, size: int, connection: Connection | None = None) -> Iterator[pa.Table]:
        """Yield the net rows, always in the same order; with a key, the two rows of an update are adjacent.

        Pass a connection to read in its transaction: other sessions may not see the parts yet.
        """
        columns = comparable_columns(self.table, self.schema, positional=True)
        order = [sql.Identifier(column_name(i)) for i in self.table.key or ()]
        with nullcontext(connection) if connection is not None else connect(self.url) as reader:
            for part in self.parts():
                query = sql.SQL("SELECT {}, n FROM {} ORDER BY {}").format(
                    sql.SQL(", ").join(columns),
                    part.table,
                    sql.SQL(", ").join([*order, sql.Identifier("n"), sql.Identifier("ctid")]),
                )
                with reader.transaction():
                    for batch in read_arrow(reader, query, self.schema, size):
                        yield pa.Table.from_batches([batch])

    @property
    def rows(self) -> pa.Table:
        """All net rows, on the driver: for a reader that cannot read batches."""
        return pa.concat_tables([self.schema.empty_table(), *self.batches(PIECE_ROWS)])

    def note_applied(self, inserted: int, deleted: int) -> None:
        """Note that the rows are in the stream table before its frontier moves."""
        self.applied = inserted, deleted

    def lease(self) -> Lease[StagedDelta]:
        """Open a lease."""
        return self._leases.open(self)

    def _drop_tables(self) -> None:
        """Drop the tables; when that fails, the next start drops them. Later parts are dropped as they arrive."""
        try:
            with connect(self.url) as connection:
                for part in self.part_queue.abandon():
                    connection.execute(part.drop)
        except (Infrastructure, psycopg.OperationalError) as error:
            log.warning("staged rows could not be dropped", extra={"table": str(self.table), "error": str(error)[:300]})


def drop_leftovers(url: str) -> None:
    """Drop the staged parts that a crash, or an applier that was replaced, left behind."""
    own = "" if epoch_of(url) is None else own_prefix(url)
    with connect(url) as connection:
        left = connection.execute(
            "SELECT relname FROM pg_catalog.pg_class WHERE relkind = 'r' AND starts_with(relname::text, %s)"
            " AND (%s = '' OR NOT starts_with(relname::text, %s)) AND relnamespace = %s::regnamespace",
            (STAGED_PREFIX, own, own, STAGED_SCHEMA),
        ).fetchall()
        connection.execute("SET lock_timeout = '1s'")
        for (name,) in left:
            # An executor that hangs may still hold one: a later start drops it.
            with suppress(psycopg.errors.LockNotAvailable):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(STAGED_SCHEMA, str(name))))


def create_part_template(connection: Connection, table: StreamTable) -> str:
    """Return the rest of CREATE TABLE after the name: positional names with exactly the stream table's types.

    A column that the stream table only gets with these rows has its type from the query.
    """
    held = {str(name) for (name,) in connection.execute(_COLUMNS, (table.relid,))}
    columns = sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(
            sql.Identifier(column.name) if column.name in held else _null_of(connection, column),
            sql.Identifier(column_name(i)),
        )
        for i, column in enumerate(table.columns)
    )
    target = sql.Identifier(table.table.schema, table.table.name)
    return (
        sql.SQL("AS SELECT {}, 0::int8 AS n, ''::text AS act FROM {} WITH NO DATA")
        .format(columns, target)
        .as_string(connection)
    )


_COLUMNS = "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = %s::int8::oid AND attnum > 0"


def _null_of(connection: Connection, column: Column) -> sql.Composed:
    row = connection.execute(
        "SELECT pg_catalog.format_type(%s::int8::oid, %s)", (column.type.oid, column.type.typmod)
    ).fetchone()
    return sql.SQL("NULL::{}").format(sql.SQL(str(row[0]) if row else "text"))
