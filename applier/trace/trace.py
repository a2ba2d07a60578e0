"""A trace: the sum of all change rows of one relation, as of any frontier between its base and now.

Two parts: a *base*, the relation's Z-set at the checkpoint frontier (a Delta table, held in Spark's memory), and an
*overlay* of later change rows in Arrow on the driver. snapshot(at) = base + overlay rows before `at`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from applier.trace.inbox import Arrival
from applier.trace.rows import LSN, SEQ, RowFitter, to_arrow, trace_schema
from applier.zset import WEIGHT, column_name, column_names
from shared_schema.change_row import ChangeRow, Op, Value
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.table_schema import TableSchema

_view_numbers = count()


@dataclass(frozen=True)
class Base:
    """The relation's Z-set at `frontier`; `frame` and `view` are None while it is empty."""

    frontier: Lsn
    frame: DataFrame | None
    view: str | None
    version: int | None
    rows: int


EMPTY_BASE = Base(ORIGIN, None, None, None, 0)


@dataclass(frozen=True)
class Parts:
    """A trace through one window, taken at one moment: what is durable, what came before, what is new."""

    base: Base
    before: pa.Table
    delta: pa.Table


class Trace:
    """One relation. Rows are appended by the tick, read by the tick and by the checkpoint's thread."""

    def __init__(self, spark: SparkSession, schema: TableSchema, snapshot_lsn: Lsn, base: Base = EMPTY_BASE) -> None:
        self.schema = schema
        self.snapshot_lsn = snapshot_lsn
        """The capture's snapshot: before it the trace says nothing about the relation."""
        self.broken: TrickleError | None = None
        """Why the trace can no longer follow its relation, if so."""
        self._spark = spark
        self._base = base
        self._retired: Base | None = None
        self._overlay: list[pa.Table] = []
        self._lock = threading.Lock()
        self._fitters: dict[TableSchema, RowFitter] = {}
        ddl = [f"{column_name(i)} {column.type.spark_ddl}" for i, column in enumerate(schema.columns)]
        self._frame_ddl = ", ".join([*ddl, f"{WEIGHT} bigint"])

    @property
    def base(self) -> Base:
        """The durable part."""
        return self._base

    @property
    def overlay_rows(self) -> int:
        """How many rows are only in memory."""
        with self._lock:
            return sum(chunk.num_rows for chunk in self._overlay)

    def overlay(self, window: Window) -> pa.Table:
        """The change rows of a window; it may not begin before the base."""
        with self._lock:
            chunks = list(self._overlay)
        return self._within(chunks, window)

    def parts(self, window: Window) -> Parts:
        """Base and overlay together: a checkpoint that moves rows between them is never seen half done."""
        with self._lock:
            base, chunks = self._base, list(self._overlay)
        old = max(window.old, base.frontier)
        if window.old and window.old < base.frontier:
            raise AssertionError(f"window {window} of {self.schema.table} begins before its base at {base.frontier}")
        before, delta = Window(base.frontier, old), Window(old, max(old, window.new))
        return Parts(base, self._within(chunks, before), self._within(chunks, delta))

    def _within(self, chunks: list[pa.Table], window: Window) -> pa.Table:
        inside = [trace_schema(self.schema.columns).empty_table()]
        for chunk in chunks:
            lsn = chunk[LSN]
            part = chunk.filter(pc.and_(pc.greater_equal(lsn, window.old.value), pc.less(lsn, window.new.value)))
            if part.num_rows:
                inside.append(part)
        return pa.concat_tables(inside)

    def append(self, arrivals: Sequence[Arrival]) -> None:
        """Add complete rows in stamp order. What does not fit marks the trace broken and is kept out."""
        batch: list[tuple[ChangeRow, list[Value]]] = []
        try:
            for arrival in arrivals:
                if arrival.row.op is Op.TRUNCATE:
                    self._add(batch)
                    batch = []
                    self._truncate(arrival.row)
                else:
                    batch.append((arrival.row, self._fitter(arrival.schema).fit(arrival.row)))
            self._add(batch)
        except TrickleError as error:
            self.broken = error

    def _fitter(self, written: TableSchema) -> RowFitter:
        if written not in self._fitters:
            self._fitters[written] = RowFitter(self.schema, written)
        return self._fitters[written]

    def _add(self, batch: list[tuple[ChangeRow, list[Value]]]) -> None:
        if batch:
            self._add_chunk(to_arrow(self.schema.columns, batch))

    def _add_chunk(self, chunk: pa.Table) -> None:
        with self._lock:
            self._overlay.append(chunk)

    def _truncate(self, row: ChangeRow) -> None:
        """TRUNCATE is the delta −R: everything there at its stamp leaves."""
        parts = self.parts(Window(ORIGIN, Lsn(row.stamp.lsn.value + 1)))
        everything = self.frame(parts.delta)
        if parts.base.frame is not None:
            everything = everything.unionAll(parts.base.frame)
        names = column_names(len(self.schema.columns))
        grouped = everything.groupBy(*names).agg({WEIGHT: "sum"}).toDF(*names, WEIGHT)
        held = grouped.where(f"{WEIGHT} <> 0").selectExpr(*names, f"-{WEIGHT} AS {WEIGHT}").toArrow()
        stamps = [pa.array([v] * held.num_rows, pa.int64()) for v in (row.stamp.lsn.value, row.stamp.seq)]
        chunk = held.append_column(LSN, stamps[0]).append_column(SEQ, stamps[1])
        self._add_chunk(chunk.cast(trace_schema(self.schema.columns)))

    def frame(self, rows: pa.Table) -> DataFrame:
        """Overlay rows as a Z-set in Spark, without their stamps, in exactly the carriers' types."""
        width = len(self.schema.columns)
        return self._spark.createDataFrame(rows.select([*column_names(width), WEIGHT]), self._frame_ddl)

    def rebase(self, base: Base) -> None:
        """Take a newer base and forget the overlay rows it now holds.

        The base before the last is released: a tick that began before this call may still read the last one.
        """
        with self._lock:
            previous, self._base = self._base, base
            later = [c.filter(pc.greater_equal(c[LSN], base.frontier.value)) for c in self._overlay]
            self._overlay = [c for c in later if c.num_rows]
            retired, self._retired = self._retired, previous
        if retired is not None and retired.frame is not None and retired.view not in (base.view, previous.view):
            drop_view(self._spark, retired.view)
            retired.frame.unpersist()


def create_view(frame: DataFrame) -> str:
    """Give a frame a name that SQL texts can use."""
    name = f"pgt_{next(_view_numbers)}"
    frame.createOrReplaceTempView(name)
    return name


def drop_view(spark: SparkSession, name: str | None) -> None:
    """Take the name back."""
    if name is not None:
        spark.catalog.dropTempView(name)
