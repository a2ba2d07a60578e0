"""A trace: the sum of all change rows of one relation, at any frontier between its base and now.

Two parts: a *base*, the relation's Z-set at the checkpoint frontier (a Delta table, held in Spark's memory), and an
*overlay* of later change rows in Arrow on the driver. snapshot(at) = base + overlay rows before `at`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from applier.errors import HistoryGone, SourceChanged
from applier.plan.expr import ValueType
from applier.plan.nodes import Scan
from applier.spark.ddl import parse_schema
from applier.spark.frame_files import frame_from_file, needs_file
from applier.spark.net_frame import net_frame
from applier.trace.align import LSN, SEQ, STAMPED, AlignedRow, Losses, RowAligner, to_arrow, trace_schema
from applier.trace.columns import TraceColumn, captured_columns, rows_column
from applier.trace.lookup import lookup_rows
from applier.trace.partial_images import Places, complete_images
from applier.trace.segment import Segment
from applier.trace.stamped_rows import Chunk, StampedRow
from applier.trace.volume import rows_per_group, volume
from applier.zset import WEIGHT, Row, column_name, column_names, ddl
from shared_schema.change_row import ChangeRow, Op
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.table_schema import LEAF_COLUMN, Column, TableId, TableSchema

HELD_ROWS = 2_000
"""A chunk of at least so many rows is given to Spark as data, not as a literal part of every plan: there the optimizer
filters its rows one by one. With 60 000 rows a query took 0.25 CPU seconds instead of 0.35."""

MERGED_ROWS, MERGED_BYTES = 500_000, 32 << 20
"""Chunks of the overlay are merged up to this size: a merged chunk is a copy in memory, even of rows on disk."""


@dataclass(frozen=True)
class Base:
    """The relation's Z-set at `frontier`: the sum of its segments, all in one version of a Delta table."""

    frontier: Lsn
    segments: tuple[Segment, ...]
    version: int | None
    rows: int
    withdrawn: int
    """The number of rows with a negative weight."""
    weight: int
    """The sum of all weights: how many rows the relation has at `frontier`, equal ones as often as they are there."""

    @property
    def volume(self) -> int:
        """The number of rows, where a large row counts as several."""
        return max(self.rows, sum(segment.volume for segment in self.segments))


EMPTY_BASE = Base(ORIGIN, (), None, 0, 0, 0)


@dataclass(frozen=True)
class Parts:
    """A trace over one LSN range, read at one moment: its base, the rows before the range, the rows inside it."""

    base: Base
    types: tuple[str, ...]
    """The Spark types of all columns of the trace."""
    before: tuple[pa.Table, ...]
    changes: tuple[pa.Table, ...]
    delta: pa.Table
    """`changes` in one table."""

    @property
    def views(self) -> tuple[str, ...]:
        """Views of the base's segments, with all columns of the trace. Who asks brings their rows into memory."""
        return tuple(segment.view(self.types) for segment in self.base.segments)

    @property
    def rows_before(self) -> int:
        """The number of rows after the base and before the LSN range."""
        return sum(chunk.num_rows for chunk in self.before)


class Trace:
    """The trace of one relation. The tick appends rows; the tick and the checkpoint's thread read them."""

    def __init__(self, spark: SparkSession, table: TableId, columns: tuple[TraceColumn, ...] = ()) -> None:
        self.table = table
        self.columns = columns
        self.captured_at = ORIGIN
        """The snapshot LSN of the newest capture."""
        self.relid = 0
        self.membership = ""
        """The relation's OID (`relid`) and the membership in that capture: which relation of this name was copied, and
        for which request."""
        self.key: tuple[str, ...] = ()
        """The names of the primary key's columns; the base is stored in this order."""
        self.gap_until = ORIGIN
        """Between the base and this position nothing is known: rows were deleted before they were read."""
        self.rows_known = rows_column()
        """Where all rows of the relation are known, whatever columns of them."""
        self._spark = spark
        self._base = EMPTY_BASE
        self._retired: Base | None = None
        self._overlay: list[pa.Table] = []
        self._lock = threading.Lock()
        self._aligners: dict[TableSchema, RowAligner] = {}
        self._frames: dict[int, tuple[pa.Table, DataFrame]] = {}
        """Frames by the identity of their chunk; the entry keeps the chunk alive."""

    def capture(
        self,
        present: Sequence[Column],
        at: Lsn,
        relid: int = 0,
        membership: str = "",
        *,
        key: tuple[str, ...] = (),
    ) -> None:
        """Note that the relation was copied at `at`, with these columns; a T row and the rows follow in the stream."""
        if at <= self.captured_at:
            return
        with self._lock:
            self.columns = captured_columns(self.columns, present, at)
            self.rows_known = self.rows_known.with_capture(at)
            self.captured_at, self.relid, self.membership, self.key = at, relid, membership, key
            self._aligners.clear()
            self._overlay = [self._add_missing_columns(chunk) for chunk in self._overlay]
            self._forget_frames()

    def lose(self, at: Lsn, reason: SourceChanged) -> None:
        """Note that a row of the commit at `at`, or of a later one, could not be taken in: nothing is known of the
        relation from there on, until it is captured again."""
        with self._lock:
            self.columns = tuple(self._without(column, at, reason) for column in self.columns)
            self.rows_known = self._without(self.rows_known, at, reason)

    def _without(self, column: TraceColumn, at: Lsn, reason: SourceChanged) -> TraceColumn:
        lost = column.with_loss(at, reason)
        return lost.with_capture(self.captured_at) if column.is_open and self.captured_at > at else lost

    def places(self, scan: Scan) -> list[int | None]:
        """Return the ordinals of the columns that a scan reads, the newest of a name; None for a missing column."""
        return [self._find_place(name, field.type) for name, field in zip(scan.columns, scan.fields, strict=True)]

    def _find_place(self, name: str, kind: ValueType) -> int | None:
        found = [i for i, column in enumerate(self.columns) if column.is_read_as(name, kind)]
        return found[-1] if found else None

    @property
    def base(self) -> Base:
        """The durable part of the trace."""
        return self._base

    @property
    def overlay_rows(self) -> int:
        """The number of rows that are only in memory."""
        with self._lock:
            return sum(chunk.num_rows for chunk in self._overlay)

    @property
    def overlay_volume(self) -> int:
        """The same, where a large row counts as several."""
        with self._lock:
            return sum(volume(chunk) for chunk in self._overlay)

    def overlay(self, lsn_range: LsnRange) -> pa.Table:
        """Return the change rows of an LSN range, which must not begin before the base."""
        with self._lock:
            chunks = list(self._overlay)
        return self._concat_chunks(self._slice_range(chunks, lsn_range))

    def weight_at(self, at: Lsn) -> int:
        """Return how many rows the relation has at an LSN, equal ones as often as they are there; not before the base's
        frontier."""
        with self._lock:
            base, chunks = self._base, list(self._overlay)
        added = self._slice_range(chunks, LsnRange(base.frontier, max(at, base.frontier)))
        return base.weight + sum(int(pc.sum(chunk[WEIGHT]).as_py()) for chunk in added)

    def parts(self, lsn_range: LsnRange) -> Parts:
        """Return base and overlay at one moment, so that a checkpoint that moves rows between them is never seen half
        done. Raises HistoryGone for a range that begins, or from ORIGIN ends, before the base."""
        with self._lock:
            base, chunks = self._base, list(self._overlay)
        if (lsn_range.lower or lsn_range.upper) < base.frontier:
            # The rows before the base's frontier are no longer separate from those after it.
            raise HistoryGone(
                f"the rows of {self.table} at {lsn_range.lower or lsn_range.upper} are no longer held, only those since"
                f" {base.frontier}",
                hint="the next refresh is a full one",
            )
        old = max(lsn_range.lower, base.frontier)
        before, delta = LsnRange(base.frontier, old), LsnRange(old, lsn_range.upper)
        types = tuple(column.type.spark_ddl for column in self.columns)
        changes = self._slice_range(chunks, delta)
        return Parts(base, types, self._slice_range(chunks, before), changes, self._concat_chunks(changes))

    def _concat_chunks(self, chunks: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([trace_schema(self.columns).empty_table(), *chunks])

    def _slice_range(self, chunks: list[pa.Table], lsn_range: LsnRange) -> tuple[pa.Table, ...]:
        """Return the rows inside an LSN range; a chunk that is completely inside is not copied."""
        inside = []
        for chunk in chunks:
            lsn = chunk[LSN]
            # Rows are in stamp order, so the first and the last are usually enough.
            first, last = lsn[0].as_py(), lsn[-1].as_py()
            if last < lsn_range.lower.value or first >= lsn_range.upper.value:
                continue
            if first < lsn_range.lower.value or last >= lsn_range.upper.value:
                chunk = _slice_rows(chunk, lsn_range.lower, lsn_range.upper)  # noqa: PLW2901
            if chunk.num_rows:
                inside.append(chunk)
        return tuple(inside)

    def append(self, rows: Sequence[StampedRow]) -> None:
        """Add rows in stamp order; a column whose value one of them does not contain is lost from that row on."""
        for truncates, run in groupby(rows, lambda stamped: stamped.row.op is Op.TRUNCATE):
            if not truncates:
                self._add([self._aligner(stamped.schema).align(stamped.row) for stamped in run])
                continue
            for whole, group in groupby(run, lambda stamped: stamped.row.values is None):
                if whole:
                    for stamped in group:
                        self._truncate(stamped.row)
                else:
                    self._truncate_leaves(list(group))

    def append_chunk(self, chunk: Chunk) -> None:
        """Add many rows with complete images."""
        rows, losses = self._aligner(chunk.schema).align_many(chunk.rows)
        if losses:
            self._lose(Lsn(rows[LSN][0].as_py()), losses)
        self._add_chunk(rows)

    def _aligner(self, written: TableSchema) -> RowAligner:
        if written not in self._aligners:
            self._aligners[written] = RowAligner(self.table, self.columns, written)
        return self._aligners[written]

    def _add(self, batch: list[AlignedRow]) -> None:
        if not batch:
            return
        if any(one.known is not None for one in batch):
            complete_images(self.table, self.columns, batch, partial(self._lookup_held, batch[0].row.stamp.lsn))
        for one in batch:
            if one.losses:
                self._lose(one.row.stamp.lsn, one.losses)
        self._add_chunk(to_arrow(self.columns, batch))

    def _lose(self, at: Lsn, losses: Losses) -> None:
        columns = list(self.columns)
        for i, reason in losses:
            columns[i] = columns[i].with_loss(at, reason)
        self.columns = tuple(columns)

    def _lookup_held(self, at: Lsn, places: Places, keys: list[Row]) -> list[Row]:
        parts = self.parts(LsnRange(ORIGIN, Lsn(at.value + 1)))
        return lookup_rows(self._spark, self.columns, (parts.views, parts.delta), places, keys)

    def _add_chunk(self, chunk: pa.Table) -> None:
        if not chunk.num_rows:
            return
        with self._lock:
            # A thousand small chunks are slow to search, so they are merged; each row is copied at most a dozen times.
            # The newest chunk stays as it is: the next refresh reads exactly that one.
            while len(self._overlay) > 1 and _are_merged(*self._overlay[-2:]):
                pair = pa.concat_tables(self._overlay[-2:]).combine_chunks()
                self._overlay[-2:] = [pair]
            self._overlay.append(chunk)
            self._forget_frames()

    def _forget_frames(self) -> None:
        present = {id(chunk) for chunk in self._overlay}
        self._frames = {name: known for name, known in self._frames.items() if name in present}

    def frame_of(self, chunk: pa.Table) -> DataFrame:
        """Return the same as `frame`, uploaded to Spark once for as long as the chunk is part of the overlay."""
        with self._lock:
            if (known := self._frames.get(id(chunk))) is not None:
                return known[1]
        frame = self.frame(chunk)
        is_in_heap = not needs_file(self._spark, chunk)
        if is_in_heap and chunk.num_rows >= HELD_ROWS and str(self._spark.sparkContext.master).startswith("local"):
            # Only in local mode: elsewhere a lost executor would lose the checkpointed rows.
            frame = frame.localCheckpoint(eager=False)
        with self._lock:
            if any(chunk is other for other in self._overlay):
                self._frames[id(chunk)] = chunk, frame
        return frame

    def _truncate(self, row: ChangeRow) -> None:
        """Append a TRUNCATE as the delta −R: every row that exists at its stamp leaves."""
        held = self._negate(row.stamp.lsn, "true")
        stamps = [pa.array([v] * held.num_rows, pa.int64()) for v in (row.stamp.lsn.value, row.stamp.seq)]
        chunk = held.append_column(LSN, stamps[0]).append_column(SEQ, stamps[1])
        self._add_chunk(chunk.cast(trace_schema(self.columns)))

    def _truncate_leaves(self, truncates: Sequence[StampedRow]) -> None:
        """Append the T rows of leaf partitions as the delta −(rows of these leaves), without a row in between."""
        place = next((i for i, column in enumerate(self.columns) if column.is_written_as(LEAF_COLUMN)), None)
        if place is None:
            return  # Nothing was ever captured with a leaf, so there are no rows of one.
        stamps = {t.row.values[-1]: t.row.stamp for t in reversed(truncates) if t.row.values is not None}
        name, leaves = column_name(place), ", ".join(str(leaf) for leaf in stamps)
        held = self._negate(truncates[-1].row.stamp.lsn, f"{name} IN ({leaves})")
        found = [stamps[leaf] for leaf in held[name].to_pylist()]
        chunk = held.append_column(LSN, pa.array([stamp.lsn.value for stamp in found], pa.int64()))
        chunk = chunk.append_column(SEQ, pa.array([stamp.seq for stamp in found], pa.int64()))
        self._add_chunk(chunk.cast(trace_schema(self.columns)).sort_by([(LSN, "ascending"), (SEQ, "ascending")]))

    def _negate(self, at: Lsn, condition: str) -> pa.Table:
        """Return the rows that exist up to the commit at `at` and meet a condition, with the opposite weight."""
        parts = self.parts(LsnRange(ORIGIN, Lsn(at.value + 1)))
        names = column_names(len(self.columns))
        everything = self.frame(parts.delta)
        for view in parts.views:
            everything = everything.unionByName(self._spark.table(view))
        return net_frame(everything.where(condition)).selectExpr(*names, f"-{WEIGHT} AS {WEIGHT}").toArrow()

    def frame(self, rows: pa.Table) -> DataFrame:
        """Return overlay rows as a Z-set in Spark, without their stamps, in exactly the physical types."""
        # Only as many columns as the rows have: they may be older than a capture that added columns.
        columns = self.columns[: rows.num_columns - len(STAMPED)]
        schema = parse_schema(ddl([column.type.spark_ddl for column in columns]))
        if needs_file(self._spark, rows):
            return frame_from_file(self._spark, rows, schema, rows_per_group(rows))
        return self._spark.createDataFrame(rows.select([*column_names(len(columns)), WEIGHT]), schema)

    def rebase(self, base: Base) -> None:
        """Replace the base by a newer one and drop the overlay rows that it now contains.

        The base before the last is released: a tick that began before this call may still read the last one.
        """
        with self._lock:
            previous, self._base = self._base, base
            later = [_slice_rows(chunk, base.frontier) for chunk in self._overlay]
            self._overlay = [chunk for chunk in later if chunk.num_rows]
            self._forget_frames()
            retired, self._retired = self._retired, previous
        if retired is not None:
            for segment in {*retired.segments} - {*base.segments, *previous.segments}:
                segment.release()

    def release(self, base: Base) -> None:
        """Release a newer base that will not be used."""
        with self._lock:
            held = {*self._base.segments, *(self._retired.segments if self._retired is not None else ())}
        for segment in {*base.segments} - held:
            segment.release()

    def _add_missing_columns(self, chunk: pa.Table) -> pa.Table:
        schema = trace_schema(self.columns)
        arrays = [
            chunk[field.name] if field.name in chunk.column_names else pa.nulls(chunk.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


def _are_merged(earlier: pa.Table, later: pa.Table) -> bool:
    """Whether two chunks become one: the second is as large as the first, and both are not too large."""
    are_few_bytes = earlier.nbytes + later.nbytes <= MERGED_BYTES
    return are_few_bytes and bool(earlier.num_rows <= min(later.num_rows, MERGED_ROWS))


def _slice_rows(chunk: pa.Table, lower: Lsn, upper: Lsn | None = None) -> pa.Table:
    """Return the rows of a chunk from `lower` on and before `upper`, without a copy: they are in stamp order."""
    lsns = chunk[LSN].to_numpy()
    begin = int(np.searchsorted(lsns, lower.value))
    end = chunk.num_rows if upper is None else int(np.searchsorted(lsns, upper.value))
    return chunk if begin == 0 and end == chunk.num_rows else chunk.slice(begin, max(0, end - begin))
