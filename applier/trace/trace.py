"""A trace: the sum of all change rows of one relation, as of any frontier between its base and now.

Two parts: a *base*, the relation's Z-set at the checkpoint frontier (a Delta table, held in Spark's memory), and an
*overlay* of later change rows in Arrow on the driver. snapshot(at) = base + overlay rows before `at`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from applier.trace.inbox import Arrival
from applier.trace.rows import LSN, SEQ, RowFitter, to_arrow, trace_schema
from applier.zset import WEIGHT, column_name, column_names, net
from shared_schema.change_row import ChangeRow, Op, Value
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.table_schema import TableSchema


@dataclass(frozen=True)
class Base:
    """The relation's Z-set at `frontier`; `frame` is None while it is empty."""

    frontier: Lsn
    frame: DataFrame | None
    version: int | None
    rows: int


EMPTY_BASE = Base(ORIGIN, None, None, 0)


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
        self._overlay: list[pa.Table] = []
        self._lock = threading.Lock()
        self._fitters: dict[TableSchema, RowFitter] = {}

    @property
    def base(self) -> Base:
        """The durable part."""
        return self._base

    def overlay(self, window: Window) -> pa.Table:
        """The change rows of a window; it may not begin before the base."""
        with self._lock:
            chunks = list(self._overlay)
        return self._within(chunks, window)

    def _within(self, chunks: list[pa.Table], window: Window) -> pa.Table:
        inside = []
        for chunk in chunks:
            lsn = chunk[LSN]
            keep = pc.and_(pc.greater_equal(lsn, window.old.value), pc.less(lsn, window.new.value))
            part = chunk.filter(keep)
            if part.num_rows:
                inside.append(part)
        return pa.concat_tables(inside) if inside else trace_schema(self.schema.columns).empty_table()

    def has_rows(self, window: Window) -> bool:
        """Whether anything changed in the window."""
        return int(self.overlay(window).num_rows) > 0

    @property
    def overlay_rows(self) -> int:
        """How many rows are only in memory."""
        with self._lock:
            return sum(chunk.num_rows for chunk in self._overlay)

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
        width = len(self.schema.columns)
        everything = self._frame(self._base, self._chunks(), range(width))
        held = net(everything, width).toArrow()
        if not held.num_rows:
            return
        held = held.set_column(width, WEIGHT, pc.negate(held[WEIGHT]))
        stamps = [pa.array([v] * held.num_rows, pa.int64()) for v in (row.stamp.lsn.value, row.stamp.seq)]
        chunk = held.append_column(LSN, stamps[0]).append_column(SEQ, stamps[1])
        self._add_chunk(chunk.cast(trace_schema(self.schema.columns)))

    def _chunks(self) -> pa.Table:
        with self._lock:
            return pa.concat_tables([trace_schema(self.schema.columns).empty_table(), *self._overlay])

    def delta(self, window: Window, ordinals: Sequence[int]) -> DataFrame | None:
        """Change rows of the window as a Z-set of the columns asked for; None when there are none."""
        rows = self.overlay(window)
        return self._arrow_frame(rows, ordinals) if rows.num_rows else None

    def snapshot(self, at: Lsn, ordinals: Sequence[int]) -> DataFrame:
        """The relation at a frontier as a Z-set of the columns asked for (not netted)."""
        # Base and overlay are taken together: a checkpoint that moves rows between them must not be seen half done.
        with self._lock:
            base, chunks = self._base, list(self._overlay)
        return self._frame(base, self._within(chunks, Window(base.frontier, at)), ordinals)

    def _frame(self, base: Base, overlay: pa.Table, ordinals: Sequence[int]) -> DataFrame:
        if base.frame is None:
            return self._arrow_frame(overlay, ordinals)
        columns = [F.col(column_name(o)).alias(column_name(i)) for i, o in enumerate(ordinals)]
        below = base.frame.select(*columns, WEIGHT)
        return below.unionAll(self._arrow_frame(overlay, ordinals)) if overlay.num_rows else below

    def _arrow_frame(self, rows: pa.Table, ordinals: Sequence[int]) -> DataFrame:
        table = rows.select([*(column_name(o) for o in ordinals), WEIGHT])
        return self._spark.createDataFrame(table.rename_columns([*column_names(len(ordinals)), WEIGHT]))

    def rebase(self, base: Base) -> None:
        """Take a newer base and forget the overlay rows it now holds."""
        with self._lock:
            previous, self._base = self._base, base
            later = [c.filter(pc.greater_equal(c[LSN], base.frontier.value)) for c in self._overlay]
            self._overlay = [c for c in later if c.num_rows]
        if previous.frame is not None:
            previous.frame.unpersist()
