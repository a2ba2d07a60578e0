"""A delta whose rows are in PostgreSQL: any sink reads them from there, and none of them needs all at once.

It lies in parts, all rows of a key in one. A part is an unlogged table; what a crash leaves behind is dropped at the
next start: a window is computed again, never resumed.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Self

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.catalog.database import Connection, connect
from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.postgres.arrow_rows import comparable_columns, read_arrow
from applier.sinks.postgres.copy_text import PIECE_ROWS
from applier.zset import column_name
from shared_schema.lsn import LsnRange

log = logging.getLogger(__name__)

SCHEMA = "pgtrickle"
PREFIX = "pgt_staged_"
NUMBERS = itertools.count()
"""Of deltas, so that two of a stream table do not share a name."""

OLD_IMAGE = "O"
"""The row an update replaces: the topic and Delta need it, PostgreSQL finds it by its key."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One filled table: how many rows it has, and how many rows of the stream table come and leave by it."""

    name: str
    rows: int
    came: int
    left: int

    @property
    def table(self) -> sql.Identifier:
        """Its name."""
        return sql.Identifier(SCHEMA, self.name)


class PartQueue:
    """The parts that are there, in their order, for any number of readers on any threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._parts: list[StagedPart] = []
        self._ended = False
        self._error: BaseException | None = None

    @property
    def so_far(self) -> list[StagedPart]:
        """Without waiting."""
        with self._changed:
            return list(self._parts)

    def add(self, part: StagedPart) -> None:
        """One more."""
        with self._changed:
            self._parts.append(part)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """That was the last, or there will be no more because of an error."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def each(self) -> Iterator[StagedPart]:
        """All of them, each once it is there; then the error, if there was one."""
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
    """A net difference whose rows are in PostgreSQL. `parts` waits for whoever makes them.

    Who makes it holds it; who is handed it says `retain`, and everybody `release` in the end.
    """

    lsn_range: LsnRange
    table: StreamTable
    url: str
    schema: pa.Schema
    expected: int
    """How many parts there will be."""
    arrived: PartQueue = field(default_factory=PartQueue)
    applied: tuple[int, int] | None = None
    """How many rows came and left, once they are in the stream table ahead of its frontier."""
    _holders: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_fill(self) -> bool:
        """Whether it is the whole content, for a place that holds nothing yet."""
        return not self.lsn_range.lower

    @property
    def count(self) -> int:
        """How many net rows; waits for the last."""
        return sum(part.rows for part in self.parts())

    @property
    def leaving(self) -> bool:
        """Whether any row leaves; waits for the last."""
        return any(part.left for part in self.awaited().parts())

    def awaited(self) -> Self:
        """Itself, once all of it is there."""
        for _ in self.parts():
            pass
        return self

    def parts(self) -> Iterator[StagedPart]:
        """Each part once it is there; raises what its maker failed with."""
        return self.arrived.each()

    def batches(self, size: int, connection: Connection | None = None) -> Iterator[pa.Table]:
        """The net rows; with a key, the two rows of an update one after the other. In the caller's transaction where
        its connection is given: nobody else may see the parts yet."""
        columns = comparable_columns(self.table, self.schema, by_place=True)
        order = [sql.Identifier(column_name(i)) for i in self.table.key or ()]
        with nullcontext(connection) if connection is not None else connect(self.url) as reader:
            for part in self.parts():
                query = sql.SQL("SELECT {}, n FROM {} ORDER BY {}").format(
                    sql.SQL(", ").join(columns), part.table, sql.SQL(", ").join([*order, sql.Identifier("n")])
                )
                with reader.transaction():
                    for batch in read_arrow(reader, query, self.schema, size):
                        yield pa.Table.from_batches([batch])

    @property
    def rows(self) -> pa.Table:
        """All net rows at once, on the driver: for a reader that cannot take them in batches."""
        return pa.concat_tables([self.schema.empty_table(), *self.batches(PIECE_ROWS)])

    def retain(self) -> None:
        """One holder more."""
        with self._lock:
            self._holders += 1

    def release(self, *, all_holders: bool = False) -> None:
        """One holder less; after the last the tables go. Where they cannot, the next start drops them."""
        with self._lock:
            self._holders = 0 if all_holders else self._holders - 1
            if self._holders > 0:
                return
        try:
            with connect(self.url) as connection:
                for part in self.arrived.so_far:
                    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(part.table))
        except (Infrastructure, psycopg.OperationalError) as error:
            log.warning("staged rows are left behind", extra={"table": str(self.table), "error": str(error)[:300]})


Delta = MemoryDelta | StagedDelta
"""Of one stream table over one window, on the driver or in PostgreSQL."""


def drop_leftovers(url: str) -> None:
    """Drop what a crash left behind."""
    with connect(url) as connection:
        left = connection.execute(
            "SELECT relname FROM pg_catalog.pg_class WHERE relkind = 'r' AND relname LIKE %s"
            " AND relnamespace = %s::regnamespace",
            (PREFIX.replace("_", r"\_") + "%", SCHEMA),
        ).fetchall()
        for (name,) in left:
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, str(name))))


def create_part_template(connection: Connection, table: StreamTable) -> str:
    """What follows the name in CREATE TABLE: positional names with exactly the stream table's types."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(sql.Identifier(column.name), sql.Identifier(column_name(i)))
        for i, column in enumerate(table.columns)
    )
    target = sql.Identifier(table.table.schema, table.table.name)
    return (
        sql.SQL("AS SELECT {}, 0::int8 AS n, ''::text AS act FROM {} WITH NO DATA")
        .format(columns, target)
        .as_string(connection)
    )
