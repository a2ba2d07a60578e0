"""The traces over one LSN range -> the Inputs that operators read: deltas, snapshots and index lookups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Self, assert_never

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.arrange.arrangements import Arrangements
from applier.arrange.fixpoint import fixpoint
from applier.arrange.index import distinct_values
from applier.arrange.materialized import MaterializedRows
from applier.operators.support.inputs import DeltaKeys, LinearMap, Lookup, QueryKeys, Side, StatefulNode, identity_map
from applier.plan.cardinality import Cardinality
from applier.plan.nodes import Field, Recursion, Scan
from applier.spark.collect import collect
from applier.spark.ddl import parse_schema
from applier.spark.views import create_view, drop_view
from applier.trace.segment import Segment
from applier.trace.trace import Parts, Trace
from applier.trace.volume import volume
from applier.zset import WEIGHT, ZSet, column_name, column_names, ddl, empty_zset, net, plus
from shared_schema.lsn import LsnRange
from shared_schema.table_schema import TableId

SMALL_RANGE_ROWS = 20_000
"""Up to so many rows a delta is broadcast; for more, Spark should shuffle. A large row counts as several."""

MIN_QUERY_KEYS_ROWS = 500_000
"""The keys of a lookup may need a query of their own first, which is not worth it for a smaller segment."""


class TraceInputs:
    """The Inputs of the operators for one LSN range. Frames are made once and shared by all stream tables.

    A context manager: leaving it drops the views of its frames.
    """

    def __init__(
        self,
        spark: SparkSession,
        get_trace: Callable[[TableId], Trace | None],
        arrangements: Arrangements,
        lsn_range: LsnRange,
    ) -> None:
        self.lsn_range = lsn_range
        self._spark = spark
        self._get_trace = get_trace
        self._arrangements = arrangements
        self._parts: dict[TableId, Parts] = {}
        self._views: dict[int, str] = {}
        """Views of chunks by their identity; the parts keep the chunks alive."""
        self._nets: dict[tuple[TableId, tuple[int, ...]], tuple[pa.Table, str | None]] = {}
        """Net deltas by relation and columns, whatever their names, with their views; None for an empty one."""
        self._lookups: dict[tuple[str, Lookup], str | None] = {}
        """Views of the results of index lookups; None where a lookup is not possible, or finds too many rows."""
        self._query_values: dict[str, pa.Table] = {}
        """The key values that small queries returned, by their text."""
        self._fixpoints: dict[str, str] = {}
        self._materialized = MaterializedRows(spark)
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        nets = (view for _, view in self._nets.values())
        for view in (*self._views.values(), *nets, *self._fixpoints.values(), *self._lookups.values()):
            drop_view(self._spark, view)
        self._materialized.release()

    @property
    def small(self) -> bool:
        """Whether the change rows of the LSN range are few."""
        with self._lock:
            return sum(volume(parts.delta) for parts in self._parts.values()) <= SMALL_RANGE_ROWS

    def extent(self, table: TableId) -> Cardinality:
        """Return how many change rows the relation has in the LSN range, and how many rows at its upper end."""
        parts = self._parts_of(table)
        changed = int(parts.delta.num_rows)
        return Cardinality(changed, parts.base.rows + parts.rows_before + changed)

    def volume(self, table: TableId) -> int:
        """Return how many change rows the relation has in the LSN range, or rows at its upper end if the range begins
        at ORIGIN, where a large row counts as several."""
        parts = self._parts_of(table)
        changed = volume(parts.delta)
        return changed if self.lsn_range.lower else parts.base.volume + sum(map(volume, parts.before)) + changed

    def delta(self, scan: Scan) -> ZSet | None:
        """Return the change rows of the LSN range, with the scan's columns only; None when they cancel out.

        That is found out without Spark. Examples are an UPDATE that changes no column that the scan reads, and a row
        that was inserted and deleted again.
        """
        rows = self._parts_of(scan.table).delta
        if not self._is_small_delta(scan):
            changes = self._parts_of(scan.table).changes
            return plus(*(self._select(scan, self._view(scan.table, chunk)) for chunk in changes))
        _, view = self._net_delta(scan, rows)
        return None if view is None else ZSet.of_view(view, len(scan.columns))

    def _is_small_delta(self, scan: Scan) -> bool:
        rows = self._parts_of(scan.table).delta
        if rows.num_rows > SMALL_RANGE_ROWS or volume(rows) <= SMALL_RANGE_ROWS:
            return bool(rows.num_rows <= SMALL_RANGE_ROWS)
        return volume(rows.select([column_name(place) for place in self._places(scan)])) <= SMALL_RANGE_ROWS

    def _net_delta(self, scan: Scan, rows: pa.Table) -> tuple[pa.Table, str | None]:
        key = scan.table, tuple(self._places(scan))
        with self._lock:
            if key not in self._nets:
                net_rows = self._net_columns(scan, rows)
                frame = self._spark.createDataFrame(net_rows, self._schema(scan)) if net_rows.num_rows else None
                self._nets[key] = net_rows, None if frame is None else create_view(frame)
            return self._nets[key]

    def _net_columns(self, scan: Scan, rows: pa.Table) -> pa.Table:
        read = rows.select([*(column_name(place) for place in self._places(scan)), WEIGHT])
        return net(read.rename_columns([*column_names(len(scan.columns)), WEIGHT]))

    def _schema(self, scan: Scan) -> StructType:
        columns = self._trace(scan.table).columns
        types = [columns[place].type.spark_ddl for place in self._places(scan)]
        return parse_schema(ddl(types))

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        """Return a linear map of the relation at one end of the LSN range, with the scan's columns only."""
        parts = self._parts_of(scan.table)
        terms = self._base_terms(scan, linear_map, lookup)
        overlay = [self._select(scan, self._view(scan.table, chunk)) for chunk in parts.before]
        # The net delta has its own view already.
        if side is Side.AFTER and (changed := self.delta(scan)) is not None:
            overlay.append(changed)
        if overlay:
            terms.append(linear_map(overlay[0].plus(*overlay[1:])))
        elif not terms:
            terms.append(linear_map(empty_zset([field.type.spark for field in scan.fields])))
        return terms[0].plus(*terms[1:])

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int:
        """Return about how many rows the relation has after the linear map."""
        segments = self._segments(scan, linear_map)
        if self.lsn_range.lower:
            of_base = sum(self._arrangements.rows(segment, zset.sql) for segment, zset in segments)
        else:
            of_base = sum(segment.rows for segment, _ in segments)
        return self._parts_of(scan.table).rows_before + of_base

    def _segments(self, scan: Scan, linear_map: LinearMap) -> list[tuple[Segment, ZSet]]:
        """Return the segments of the base, each with the linear map applied to it."""
        parts = self._parts_of(scan.table)
        views = zip(parts.base.segments, parts.views, strict=True)
        return [(segment, linear_map(self._select(scan, view))) for segment, view in views]

    def _base_terms(self, scan: Scan, linear_map: LinearMap, lookup: Lookup | None) -> list[ZSet]:
        """Return the linear map of the base, or of the rows of it that may match a change."""
        segments = self._segments(scan, linear_map)
        # The first fill reads everything once; a later LSN range is followed by others that read the same.
        return (
            [self._read_segment(*each, lookup) for each in segments]
            if self.lsn_range.lower
            else [zset for _, zset in segments]
        )

    def _read_segment(self, segment: Segment, zset: ZSet, lookup: Lookup | None) -> ZSet:
        if lookup is not None and (view := self._lookup_view(segment, zset.sql, lookup)) is not None:
            return ZSet.of_view(view, len(zset.columns))
        arranged = self._arrangements.of(segment, zset.sql)
        return zset if arranged is None else ZSet.of_view(arranged.view, len(zset.columns))

    def _lookup_view(self, segment: Segment, text: str, lookup: Lookup) -> str | None:
        """Return a view of the rows of a segment that a lookup needs; None where an index does not help."""
        with self._lock:
            if (text, lookup) not in self._lookups:
                self._lookups[text, lookup] = self._create_lookup_view(segment, text, lookup)
            return self._lookups[text, lookup]

    def _create_lookup_view(self, segment: Segment, text: str, lookup: Lookup) -> str | None:
        if not self._is_lookup_cheap(segment, lookup) or (index := self._arrangements.index(segment, text)) is None:
            return None
        values = self._lookup_values(lookup)
        rows = None if values is None else index.lookup(lookup.column, values)
        return None if rows is None else create_view(self._spark.createDataFrame(rows, index.schema))

    def _is_lookup_cheap(self, segment: Segment, lookup: Lookup) -> bool:
        """Whether the keys of the lookup are known cheaply enough."""
        match lookup:
            case DeltaKeys():
                return self._is_small_delta(lookup.scan)
            case QueryKeys():
                return segment.rows >= MIN_QUERY_KEYS_ROWS
            case _:
                assert_never(lookup)

    def _lookup_values(self, lookup: Lookup) -> np.ndarray | None:
        """Return the key values of a lookup; None where there are too many, or NULL is one of them."""
        match lookup:
            case DeltaKeys():
                rows = self._parts_of(lookup.scan.table).delta
                return distinct_values(self._net_delta(lookup.scan, rows)[0], lookup.place)
            case QueryKeys():
                if lookup.values not in self._query_values:
                    text = f"SELECT DISTINCT q0 AS c0 FROM ({lookup.values}) LIMIT {SMALL_RANGE_ROWS + 1}"
                    self._query_values[lookup.values] = collect(self._spark.sql(text))
                rows = self._query_values[lookup.values]
                too_many = rows.num_rows > SMALL_RANGE_ROWS or (lookup.null_safe and rows["c0"].null_count > 0)
                return None if too_many else distinct_values(rows, 0)
            case _:
                assert_never(lookup)

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        """Return a recursion at one end of the LSN range, computed once however often it is read."""
        with self._lock:
            # The texts name the views that they read, so they are equal exactly for the same end of the LSN range.
            key = f"{base.sql} THEN {step(ZSet('?', base.columns)).sql}"
            if key not in self._fixpoints:
                self._fixpoints[key] = fixpoint(self._spark, node, base, step)
            return ZSet.of_view(self._fixpoints[key], len(base.columns))

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        """Compute the Z-set once, however often it is read, if the LSN range is small."""
        return self._materialized.materialize_small(zset, columns) if self.small else zset

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        """Do the same for a Z-set that may be larger than the change."""
        return self._materialized.materialize_once(zset, columns) if self.small else zset

    def state_of(self, node: StatefulNode) -> None:
        """Return None: there is no state, only traces."""
        return

    def _trace(self, table: TableId) -> Trace:
        trace = self._get_trace(table)
        if trace is None:
            raise AssertionError(f"{table} was not captured before it was read")
        return trace

    def take(self, tables: Iterable[TableId]) -> None:
        """Read the current parts of these relations and hold them."""
        for table in tables:
            self._parts_of(table)

    def _parts_of(self, table: TableId) -> Parts:
        with self._lock:
            if table not in self._parts:
                self._parts[table] = self._trace(table).parts(self.lsn_range)
            return self._parts[table]

    def _view(self, table: TableId, chunk: pa.Table) -> str:
        with self._lock:
            if id(chunk) not in self._views:
                self._views[id(chunk)] = create_view(self._trace(table).frame_of(chunk))
            return self._views[id(chunk)]

    def _select(self, scan: Scan, view: str) -> ZSet:
        return ZSet.select_from(view, [column_name(place) for place in self._places(scan)], WEIGHT)

    def _places(self, scan: Scan) -> list[int]:
        trace = self._trace(scan.table)
        places = trace.places(scan)
        if None in places:
            raise AssertionError(f"{scan.table} was read before its columns were known")
        return [place for place in places if place is not None]
