"""Deltas too large for the driver: executors COPY them into tables of their own, and every sink reads them from there.

One part per Spark partition, all rows of a key in one part. A part is a table made and filled in one transaction, named
by the attempt that made it: of a task that ran twice only the first is read. Parts are merged while others are still
computed. They are unlogged, and what a crash leaves behind is dropped at the next start: a window is
computed again, never resumed.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Self

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window as Over

from applier.apply import copy_text
from applier.apply.contents import read, shown
from applier.apply.net_delta import ACT, DELETE, INSERT, UPDATE
from applier.database import connect
from applier.stream_table import StreamTable
from applier.zset import WEIGHT, column_name, column_names
from shared_schema.connections import conninfo
from shared_schema.lsn import Window

log = logging.getLogger(__name__)

SCHEMA = "pgtrickle"
PREFIX = "pgt_staged_"
LOOK_EVERY_S = 0.05
_NUMBERS = itertools.count()
OLD_IMAGE = "O"
"""The row an update replaces: the topic and Delta need it, PostgreSQL finds it by its key."""


@dataclass(frozen=True, slots=True)
class Part:
    """One filled table: how many rows it has, and how many rows of the stream table come and leave by it."""

    name: str
    rows: int
    came: int
    left: int

    @property
    def table(self) -> sql.Identifier:
        """Its name."""
        return sql.Identifier(SCHEMA, self.name)


class Arrivals:
    """The parts that are there, in their order, for any number of readers on any threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._parts: list[Part] = []
        self._ended = False
        self._error: BaseException | None = None

    @property
    def so_far(self) -> list[Part]:
        """Without waiting."""
        with self._changed:
            return list(self._parts)

    def add(self, part: Part) -> None:
        """One more."""
        with self._changed:
            self._parts.append(part)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """That was the last, or there will be no more because of an error."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def each(self) -> Iterator[Part]:
        """All of them, each once it is there; then the error, if there was one."""
        number = 0
        while (part := self._wait_for(number)) is not None:
            number += 1
            yield part

    def _wait_for(self, number: int) -> Part | None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._parts) > number or self._ended)
            if number < len(self._parts):
                return self._parts[number]
            if self._error is not None:
                raise self._error
            return None


@dataclass
class StagedDelta:
    """A TableDelta whose rows are in PostgreSQL. `parts` waits for the executors; whoever read it says `release`."""

    window: Window
    table: StreamTable
    url: str
    schema: pa.Schema
    readers: int
    expected: int
    """How many parts there will be."""
    _arrived: Arrivals = field(default_factory=Arrivals)
    whole: None = None
    applied: tuple[int, int] | None = None
    """How many rows came and left, once they are in the stream table ahead of its frontier."""

    @property
    def is_fill(self) -> bool:
        """Whether it is the whole content, for a place that holds nothing yet."""
        return not self.window.old

    @property
    def count(self) -> int:
        """How many net rows; waits for the last."""
        return sum(part.rows for part in self.parts())

    def awaited(self) -> Self:
        """Itself, once all of it is there."""
        for _ in self.parts():
            pass
        return self

    def parts(self) -> Iterator[Part]:
        """Each part once it is there; raises what the executors failed with."""
        return self._arrived.each()

    def batches(self, size: int) -> Iterator[pa.Table]:
        """The net rows; with a key, the two rows of an update one after the other."""
        columns = shown(self.table, self.schema, by_place=True)
        order = [sql.Identifier(column_name(i)) for i in self.table.key or ()]
        with connect(self.url) as connection:
            for part in self.parts():
                query = sql.SQL("SELECT {}, n FROM {} ORDER BY {}").format(
                    sql.SQL(", ").join(columns), part.table, sql.SQL(", ").join([*order, sql.Identifier("n")])
                )
                with connection.transaction():
                    for batch in read(connection, query, self.schema, size):
                        yield pa.Table.from_batches([batch])

    @property
    def rows(self) -> pa.Table:
        """All net rows at once, on the driver: for a reader that cannot take them in batches."""
        return pa.concat_tables([self.schema.empty_table(), *self.batches(copy_text.PIECE_ROWS)])

    def release(self, *, all_readers: bool = False) -> None:
        """One reader less; after the last the tables go."""
        self.readers = 0 if all_readers else self.readers - 1
        if self.readers <= 0:
            with connect(self.url) as connection:
                for part in self._arrived.so_far:
                    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(part.table))


@dataclass(frozen=True)
class Staging:
    """Where deltas are staged, for how many readers, and from how many rows read on."""

    url: str
    readers: int
    above: int = 200_000

    def stage(
        self,
        table: StreamTable,
        window: Window,
        frame: DataFrame,
        parts: int,
        told: Callable[[BaseException], BaseException],
    ) -> StagedDelta:
        """Begin to COPY the frame, a Z-set that need not be net, and return at once; `told` words what goes wrong."""
        schema = pa.schema([*(_arrow(frame, i) for i in range(len(table.columns))), pa.field(WEIGHT, pa.int64())])
        staged = StagedDelta(window, table, self.url, schema, self.readers, parts if table.key != () else 1)
        net = _net(frame, table, fill=staged.is_fill, parts=parts)
        with connect(self.url) as connection:
            copier = _Copier(self.url, table.id, next(_NUMBERS), _template(connection, table))
            connection.execute(
                copier.lines("CREATE UNLOGGED TABLE {} (part int, name text, rows int8, came int8, left_ int8)")
            )
        threading.Thread(target=_run, args=(net, copier, staged._arrived, told), name="staging", daemon=True).start()
        return staged

    def clear(self) -> None:
        """Drop what a crash left behind."""
        with connect(self.url) as connection:
            left = connection.execute(
                "SELECT relname FROM pg_catalog.pg_class WHERE relkind = 'r' AND relname LIKE %s"
                " AND relnamespace = %s::regnamespace",
                (PREFIX.replace("_", r"\_") + "%", SCHEMA),
            ).fetchall()
            for (name,) in left:
                connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, str(name))))


def _arrow(frame: DataFrame, ordinal: int) -> pa.Field:
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.field(column_name(ordinal), to_arrow_type(frame.schema[ordinal].dataType))


def _net(frame: DataFrame, table: StreamTable, *, fill: bool, parts: int) -> DataFrame:
    """Σ weights per row, zeros dropped, with the action of each row; all rows of a key in one partition."""
    names = column_names(len(table.columns))
    key = names if table.key is None else [column_name(i) for i in table.key]
    spread = frame.repartition(parts, *key) if key else frame.repartition(1)
    net = spread.groupBy(*names).agg(F.sum(WEIGHT).alias("n")).where("n <> 0")
    if table.key is None or fill:
        return net.withColumn(ACT, F.lit(INSERT))
    both = F.sum("n").over(Over.partitionBy(*key) if key else Over.partitionBy(F.lit(1)))
    act = (
        F.when((both == 0) & (F.col("n") > 0), UPDATE)
        .when((both == 0) & (F.col("n") < 0), OLD_IMAGE)
        .otherwise(F.when(F.col("n") > 0, INSERT).otherwise(DELETE))
    )
    return net.withColumn(ACT, act)


def _template(connection: psycopg.Connection[tuple[object, ...]], table: StreamTable) -> str:
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


@dataclass(frozen=True)
class _Copier:
    """What an executor does with one partition."""

    url: str
    pgt_id: int
    number: int
    """Of the delta: what a sink missed and what is new may be staged at the same time."""
    template: str

    def lines(self, statement: str) -> sql.Composed:
        """A statement about the table in which each partition says where its rows are."""
        return sql.SQL(statement).format(sql.Identifier(SCHEMA, f"{PREFIX}{self.pgt_id}_lines_{self.number}"))

    def copy(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in; their table and its line, in one transaction."""
        context = TaskContext.get()
        if context is None:
            raise AssertionError("not on an executor")
        part = Part(f"{PREFIX}{self.pgt_id}_{context.taskAttemptId()}", 0, 0, 0)
        with psycopg.connect(conninfo(self.url)) as connection, connection.cursor() as cursor:
            cursor.execute("SET LOCAL timezone = 'UTC'")
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(part.table))
            cursor.execute(sql.SQL("CREATE UNLOGGED TABLE {} {}").format(part.table, sql.SQL(self.template)))
            with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT csv, FREEZE)").format(part.table)) as copy:
                for batch in batches:
                    rows = pa.Table.from_batches([batch])
                    part = _counted(part, rows)
                    copy.write(copy_text.encode(rows))
            cursor.execute(sql.SQL("ANALYZE {}").format(part.table))
            line = (context.partitionId(), part.name, part.rows, part.came, part.left)
            cursor.execute(self.lines("INSERT INTO {} VALUES (%s, %s, %s, %s, %s)"), line)
        yield pa.RecordBatch.from_arrays([pa.array([context.partitionId()], pa.int32())], names=["part"])


def _counted(part: Part, rows: pa.Table) -> Part:
    weights = rows["n"].to_pylist()
    came = sum(n for n in weights if n > 0)
    left = -sum(n for n in weights if n < 0)
    return replace(part, rows=part.rows + rows.num_rows, came=part.came + came, left=part.left + left)


def _run(
    net: DataFrame,
    copier: _Copier,
    arrived: Arrivals,
    told: Callable[[BaseException], BaseException],
) -> None:
    """Hand on each part when its line is there; Spark would tell of them all when the last one is done."""
    seen: set[int] = set()
    try:
        with connect(copier.url) as connection, ThreadPoolExecutor(1) as spark:
            job = spark.submit(net.mapInArrow(copier.copy, "part int").count)
            running = True
            while running:
                # Asked for before the lines are read: after it has ended there are no more.
                running = bool(wait([job], LOOK_EVERY_S).not_done)
                for number, *line in connection.execute(copier.lines("SELECT * FROM {}")).fetchall():
                    if number not in seen:
                        seen.add(int(str(number)))
                        arrived.add(Part(str(line[0]), *(int(str(n)) for n in line[1:])))
            connection.execute(copier.lines("DROP TABLE {}"))
            job.result()
        arrived.end()
    except BaseException as error:
        # For whoever waits for the parts.
        arrived.end(told(error))
