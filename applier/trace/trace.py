"""A trace: the sum of all change rows of one relation, as of any frontier between its base and now.

Two parts: a *base*, the relation's Z-set at the checkpoint frontier (a Delta table, held in Spark's memory), and an
*overlay* of later change rows in Arrow on the driver. snapshot(at) = base + overlay rows before `at`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from applier.plan.expr import ValueType
from applier.plan.nodes import Scan
from applier.trace.align import LSN, SEQ, STAMPED, AlignedRow, Losses, RowAligner, to_arrow, trace_schema
from applier.trace.columns import TraceColumn, captured_columns
from applier.trace.lookup import lookup_rows
from applier.trace.partial_images import Places, complete_images
from applier.trace.segment import Segment
from applier.trace.stamped_rows import Chunk, StampedRow
from applier.zset import WEIGHT, Row, column_names, ddl
from shared_schema.change_row import ChangeRow, Op
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.table_schema import Column, TableId, TableSchema

HELD_ROWS = 2_000
"""From so many rows on a chunk is data to Spark, not part of every plan, where its rows are filtered one by one while a
query is optimized: with 60 000 of them a query took 0.25 CPU seconds instead of 0.35."""

MERGED_ROWS = 500_000
"""Chunks of the overlay are united up to this size."""


@dataclass(frozen=True)
class Base:
    """The relation's Z-set at `frontier`: the sum of its segments, all in one version of a Delta table."""

    frontier: Lsn
    segments: tuple[Segment, ...]
    version: int | None
    rows: int
    withdrawn: int
    """How many of the rows have a negative weight."""


EMPTY_BASE = Base(ORIGIN, (), None, 0, 0)


@dataclass(frozen=True)
class Parts:
    """A trace through one window, taken at one moment: what is durable, what came before, what is new."""

    base: Base
    views: tuple[str, ...]
    """Of the base's segments, with all columns of the trace."""
    before: tuple[pa.Table, ...]
    changes: tuple[pa.Table, ...]
    delta: pa.Table
    """The changes in one table."""

    @property
    def rows_before(self) -> int:
        """What came after the base and before the window."""
        return sum(chunk.num_rows for chunk in self.before)


class Trace:
    """One relation. Rows are appended by the tick, read by the tick and by the checkpoint's thread."""

    def __init__(self, spark: SparkSession, table: TableId, columns: tuple[TraceColumn, ...] = ()) -> None:
        self.table = table
        self.columns = columns
        self.captured_at = ORIGIN
        """The newest capture's snapshot."""
        self.relid = 0
        self.membership = ""
        """Of that capture: which relation of this name it was, and which request it answers."""
        self.key: tuple[str, ...] = ()
        """The names of the primary key's columns, by which the base is laid out."""
        self.gap_until = ORIGIN
        """Between the base and here nothing is known: rows were deleted before they were read."""
        self._spark = spark
        self._base = EMPTY_BASE
        self._retired: Base | None = None
        self._overlay: list[pa.Table] = []
        self._lock = threading.Lock()
        self._fitters: dict[TableSchema, RowAligner] = {}
        self._frames: dict[int, tuple[pa.Table, DataFrame]] = {}
        """By the identity of a chunk, which lives as long as its entry."""

    def capture(
        self,
        present: Sequence[Column],
        at: Lsn,
        relid: int = 0,
        membership: str = "",
        *,
        key: tuple[str, ...] = (),
    ) -> None:
        """The relation was copied as of `at`, with these columns: a T row and its rows follow in the stream."""
        if at <= self.captured_at:
            return
        with self._lock:
            self.columns = captured_columns(self.columns, present, at)
            self.captured_at, self.relid, self.membership, self.key = at, relid, membership, key
            self._fitters.clear()
            self._overlay = [self._widened(chunk) for chunk in self._overlay]
            self._forget_frames()

    @property
    def known_since(self) -> Lsn:
        """The first capture: at no earlier frontier is anything known of the relation."""
        return min((span.since for column in self.columns for span in column.spans), default=self.captured_at)

    def places(self, scan: Scan) -> list[int | None]:
        """The ordinals of the columns a scan reads, the newest of several of a name; None for one not held."""
        return [self._place(name, field.type) for name, field in zip(scan.columns, scan.fields, strict=True)]

    def _place(self, name: str, kind: ValueType) -> int | None:
        found = [i for i, column in enumerate(self.columns) if column.is_read_as(name, kind)]
        return found[-1] if found else None

    @property
    def base(self) -> Base:
        """The durable part."""
        return self._base

    @property
    def overlay_rows(self) -> int:
        """How many rows are only in memory."""
        with self._lock:
            return sum(chunk.num_rows for chunk in self._overlay)

    def overlay(self, lsn_range: LsnRange) -> pa.Table:
        """The change rows of a window; it may not begin before the base."""
        with self._lock:
            chunks = list(self._overlay)
        return self._united(self._within(chunks, lsn_range))

    def parts(self, lsn_range: LsnRange) -> Parts:
        """Base and overlay together: a checkpoint that moves rows between them is never seen half done."""
        with self._lock:
            base, chunks = self._base, list(self._overlay)
        old = max(lsn_range.lower, base.frontier)
        if lsn_range.lower and lsn_range.lower < base.frontier:
            raise AssertionError(f"window {lsn_range} of {self.table} begins before its base at {base.frontier}")
        before, delta = LsnRange(base.frontier, old), LsnRange(old, max(old, lsn_range.upper))
        types = [column.type.spark_ddl for column in self.columns]
        views = tuple(segment.view(types) for segment in base.segments)
        changes = self._within(chunks, delta)
        return Parts(base, views, self._within(chunks, before), changes, self._united(changes))

    def _united(self, chunks: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([trace_schema(self.columns).empty_table(), *chunks])

    def _within(self, chunks: list[pa.Table], lsn_range: LsnRange) -> tuple[pa.Table, ...]:
        """The rows of a window; a chunk that is all inside stays what it is."""
        inside = []
        for chunk in chunks:
            lsn = chunk[LSN]
            # In stamp order, so its ends tell most of the time.
            first, last = lsn[0].as_py(), lsn[-1].as_py()
            if last < lsn_range.lower.value or first >= lsn_range.upper.value:
                continue
            if first < lsn_range.lower.value or last >= lsn_range.upper.value:
                chunk = chunk.filter(  # noqa: PLW2901
                    pc.and_(pc.greater_equal(lsn, lsn_range.lower.value), pc.less(lsn, lsn_range.upper.value))
                )
            if chunk.num_rows:
                inside.append(chunk)
        return tuple(inside)

    def append(self, arrivals: Sequence[StampedRow]) -> None:
        """Add complete rows in stamp order; a column whose value one of them does not bring is lost from there on."""
        batch: list[AlignedRow] = []
        for arrival in arrivals:
            if arrival.row.op is Op.TRUNCATE:
                self._add(batch)
                batch = []
                self._truncate(arrival.row)
            else:
                batch.append(self._fitter(arrival.schema).align(arrival.row))
        self._add(batch)

    def append_chunk(self, chunk: Chunk) -> None:
        """The same for many rows with whole images."""
        rows, losses = self._fitter(chunk.schema).fit_many(chunk.rows)
        if losses:
            self._lose(Lsn(rows[LSN][0].as_py()), losses)
        self._add_chunk(rows)

    def _fitter(self, written: TableSchema) -> RowAligner:
        if written not in self._fitters:
            self._fitters[written] = RowAligner(self.table, self.columns, written)
        return self._fitters[written]

    def _add(self, batch: list[AlignedRow]) -> None:
        if not batch:
            return
        if any(one.known is not None for one in batch):
            complete_images(self.table, self.columns, batch, partial(self._held, batch[0].row.stamp.lsn))
        for one in batch:
            if one.losses:
                self._lose(one.row.stamp.lsn, one.losses)
        self._add_chunk(to_arrow(self.columns, batch))

    def _lose(self, at: Lsn, losses: Losses) -> None:
        columns = list(self.columns)
        for i, reason in losses:
            columns[i] = columns[i].lost(at, reason)
        self.columns = tuple(columns)

    def _held(self, at: Lsn, places: Places, keys: list[Row]) -> list[Row]:
        parts = self.parts(LsnRange(ORIGIN, Lsn(at.value + 1)))
        return lookup_rows(self._spark, self.columns, (parts.views, parts.delta), places, keys)

    def _add_chunk(self, chunk: pa.Table) -> None:
        if not chunk.num_rows:
            return
        with self._lock:
            # A thousand chunks of a few rows each are slow to look through; each row is copied a dozen times at most.
            # The newest chunk is left alone: it is what a window is about.
            while len(self._overlay) > 1 and self._overlay[-2].num_rows <= min(self._overlay[-1].num_rows, MERGED_ROWS):
                pair = pa.concat_tables(self._overlay[-2:]).combine_chunks()
                self._overlay[-2:] = [pair]
            self._overlay.append(chunk)
            self._forget_frames()

    def _forget_frames(self) -> None:
        present = {id(chunk) for chunk in self._overlay}
        self._frames = {name: known for name, known in self._frames.items() if name in present}

    def frame_of(self, chunk: pa.Table) -> DataFrame:
        """The same as `frame`, sent to Spark once for as long as the chunk is part of the overlay."""
        with self._lock:
            if (known := self._frames.get(id(chunk))) is not None:
                return known[1]
        frame = self.frame(chunk)
        if chunk.num_rows >= HELD_ROWS and str(self._spark.sparkContext.master).startswith("local"):
            # Only where no executor can take it with it.
            frame = frame.localCheckpoint(eager=False)
        with self._lock:
            if any(chunk is other for other in self._overlay):
                self._frames[id(chunk)] = chunk, frame
        return frame

    def _truncate(self, row: ChangeRow) -> None:
        """TRUNCATE is the delta −R: everything there at its stamp leaves."""
        parts = self.parts(LsnRange(ORIGIN, Lsn(row.stamp.lsn.value + 1)))
        names = column_names(len(self.columns))
        everything = self.frame(parts.delta)
        for view in parts.views:
            everything = everything.unionByName(self._spark.table(view))
        grouped = everything.groupBy(*names).agg({WEIGHT: "sum"}).toDF(*names, WEIGHT)
        held = grouped.where(f"{WEIGHT} <> 0").selectExpr(*names, f"-{WEIGHT} AS {WEIGHT}").toArrow()
        stamps = [pa.array([v] * held.num_rows, pa.int64()) for v in (row.stamp.lsn.value, row.stamp.seq)]
        chunk = held.append_column(LSN, stamps[0]).append_column(SEQ, stamps[1])
        self._add_chunk(chunk.cast(trace_schema(self.columns)))

    def frame(self, rows: pa.Table) -> DataFrame:
        """Overlay rows as a Z-set in Spark, without their stamps, in exactly the physical types' types."""
        # As many columns as the rows have: they may be from before a capture that added some.
        columns = self.columns[: rows.num_columns - len(STAMPED)]
        return self._spark.createDataFrame(
            rows.select([*column_names(len(columns)), WEIGHT]), ddl([column.type.spark_ddl for column in columns])
        )

    def rebase(self, base: Base) -> None:
        """Take a newer base and forget the overlay rows it now holds.

        The base before the last is released: a tick that began before this call may still read the last one.
        """
        with self._lock:
            previous, self._base = self._base, base
            later = [c.filter(pc.greater_equal(c[LSN], base.frontier.value)) for c in self._overlay]
            self._overlay = [c for c in later if c.num_rows]
            self._forget_frames()
            retired, self._retired = self._retired, previous
        if retired is not None:
            for segment in {*retired.segments} - {*base.segments, *previous.segments}:
                segment.release()

    def _widened(self, chunk: pa.Table) -> pa.Table:
        schema = trace_schema(self.columns)
        arrays = [
            chunk[field.name] if field.name in chunk.column_names else pa.nulls(chunk.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)
