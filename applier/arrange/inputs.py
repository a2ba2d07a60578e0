"""The traces through one window, as the operators see them: the Inputs of a tick."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Self, assert_never

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from applier.arrange.arrangements import Arrangements
from applier.arrange.fixpoint import fixpoint
from applier.arrange.index import distinct_values
from applier.arrange.materialized import MaterializedRows
from applier.operators.support.inputs import DeltaKeys, LinearMap, Lookup, QueryKeys, Side, StatefulNode, identity_map
from applier.plan.cardinality import Cardinality
from applier.plan.nodes import Field, Recursion, Scan
from applier.spark.collect import collect
from applier.spark.views import create_view, drop_view
from applier.trace.segment import Segment
from applier.trace.trace import Parts, Trace
from applier.zset import WEIGHT, column_name, column_names, ddl, empty_zset, net, select
from shared_schema.lsn import LsnRange
from shared_schema.table_schema import TableId

SMALL_RANGE_ROWS = 20_000
"""Up to here a delta is worth broadcasting; beyond, Spark should shuffle."""

MIN_QUERY_KEYS_ROWS = 500_000
"""Which rows of a segment are needed may have to be computed first, by a query of its own: not for less than this."""


class TraceInputs:
    """The traces through one window: the Inputs of the operators. Frames are made once and shared by all who ask.

    A context: leaving it takes back the names of its frames.
    """

    def __init__(
        self,
        spark: SparkSession,
        find: Callable[[TableId], Trace | None],
        arrangements: Arrangements,
        lsn_range: LsnRange,
    ) -> None:
        self.lsn_range = lsn_range
        self._spark = spark
        self._find_trace = find
        self._arrangements = arrangements
        self._parts: dict[TableId, Parts] = {}
        self._views: dict[int, str] = {}
        """Of chunks, which the parts keep alive, by their identity."""
        self._nets: dict[tuple[TableId, tuple[int, ...]], tuple[pa.Table, str | None]] = {}
        """Net deltas by the columns they have, which may have any names, and their views; None for an empty one."""
        self._lookups: dict[tuple[str, Lookup], str | None] = {}
        """Views of the rows of a base that are needed; None where they are not found by value, or too many."""
        self._asked: dict[str, pa.Table] = {}
        """The values of a SELECT."""
        self._fixpoints: dict[str, str] = {}
        self._computed = MaterializedRows(spark)
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        nets = (view for _, view in self._nets.values())
        for view in (*self._views.values(), *nets, *self._fixpoints.values(), *self._lookups.values()):
            drop_view(self._spark, view)
        self._computed.release()

    @property
    def small(self) -> bool:
        """Whether the window's change rows are few."""
        with self._lock:
            return sum(int(parts.delta.num_rows) for parts in self._parts.values()) <= SMALL_RANGE_ROWS

    def extent(self, table: TableId) -> Cardinality:
        """How many change rows the relation has in the window, and how many rows at its end."""
        parts = self._of(table)
        changed = int(parts.delta.num_rows)
        return Cardinality(changed, parts.base.rows + parts.rows_before + changed)

    def delta(self, scan: Scan) -> str | None:
        """Change rows of the window, the scan's columns only; None when they cancel out, before Spark is asked.

        An UPDATE that changes no column the scan reads is such a case, a row that came and went another.
        """
        rows = self._of(scan.table).delta
        if rows.num_rows > SMALL_RANGE_ROWS:
            return " UNION ALL ".join(
                self._select(scan, self._view(scan.table, chunk)) for chunk in self._of(scan.table).changes
            )
        _, view = self._netted(scan, rows)
        return None if view is None else f"SELECT * FROM {view}"

    def _netted(self, scan: Scan, rows: pa.Table) -> tuple[pa.Table, str | None]:
        key = scan.table, tuple(self._places(scan))
        with self._lock:
            if key not in self._nets:
                netted = self._net(scan, rows)
                frame = self._spark.createDataFrame(netted, self._ddl(scan)) if netted.num_rows else None
                self._nets[key] = netted, None if frame is None else create_view(frame)
            return self._nets[key]

    def _net(self, scan: Scan, rows: pa.Table) -> pa.Table:
        read = rows.select([*(column_name(place) for place in self._places(scan)), WEIGHT])
        return net(read.rename_columns([*column_names(len(scan.columns)), WEIGHT]))

    def _ddl(self, scan: Scan) -> str:
        columns = self._trace(scan.table).columns
        types = [columns[place].type.spark_ddl for place in self._places(scan)]
        return ddl(types)

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> str:
        """A rule of the relation at one end of the window, the scan's columns only."""
        parts = self._of(scan.table)
        texts = self._base(scan, linear_map, lookup)
        overlay = [self._select(scan, self._view(scan.table, chunk)) for chunk in parts.before]
        # What has changed is there already, net.
        if side is Side.AFTER and (changed := self.delta(scan)) is not None:
            overlay.append(changed)
        if overlay:
            texts.append(linear_map(" UNION ALL ".join(overlay)))
        elif not texts:
            texts.append(linear_map(empty_zset([field.type.spark for field in scan.fields])))
        return " UNION ALL ".join(texts)

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int:
        """About how many rows the relation has after the rule."""
        segments = self._segments(scan, linear_map)
        if self.lsn_range.lower:
            of_base = sum(self._arrangements.rows(segment, text) for segment, text in segments)
        else:
            of_base = sum(segment.rows for segment, _ in segments)
        return self._of(scan.table).rows_before + of_base

    def _segments(self, scan: Scan, linear_map: LinearMap) -> list[tuple[Segment, str]]:
        """The segments of the base with the rule of each."""
        parts = self._of(scan.table)
        views = zip(parts.base.segments, parts.views, strict=True)
        return [(segment, linear_map(self._select(scan, view))) for segment, view in views]

    def _base(self, scan: Scan, linear_map: LinearMap, lookup: Lookup | None) -> list[str]:
        """The rule of the base, or of what a change may meet of it."""
        segments = self._segments(scan, linear_map)
        # A fill reads everything once; a window is followed by others that read the same.
        return (
            [self._ready(*each, lookup) for each in segments]
            if self.lsn_range.lower
            else [text for _, text in segments]
        )

    def _ready(self, segment: Segment, text: str, lookup: Lookup | None) -> str:
        if lookup is not None and (view := self._found(segment, text, lookup)) is not None:
            return f"SELECT * FROM {view}"
        arranged = self._arrangements.of(segment, text)
        return text if arranged is None else f"SELECT * FROM {arranged.view}"

    def _found(self, segment: Segment, text: str, lookup: Lookup) -> str | None:
        """The rows of a segment that are needed; None where they are not found by value, or too many."""
        with self._lock:
            if (text, lookup) not in self._lookups:
                self._lookups[text, lookup] = self._find(segment, text, lookup)
            return self._lookups[text, lookup]

    def _find(self, segment: Segment, text: str, lookup: Lookup) -> str | None:
        if not self._is_worth(segment, lookup) or (index := self._arrangements.index(segment, text)) is None:
            return None
        values = self._values(lookup)
        few = None if values is None else index.lookup(lookup.column, values)
        return None if few is None else create_view(self._spark.createDataFrame(few, index.schema))

    def _is_worth(self, segment: Segment, lookup: Lookup) -> bool:
        """Whether it is told soon enough which values are needed."""
        match lookup:
            case DeltaKeys():
                return int(self._of(lookup.scan.table).delta.num_rows) <= SMALL_RANGE_ROWS
            case QueryKeys():
                return segment.rows >= MIN_QUERY_KEYS_ROWS
            case _:
                assert_never(lookup)

    def _values(self, lookup: Lookup) -> np.ndarray | None:
        """What the column of a row that is needed may be; None where it may be too much."""
        match lookup:
            case DeltaKeys():
                rows = self._of(lookup.scan.table).delta
                return distinct_values(self._netted(lookup.scan, rows)[0], lookup.place)
            case QueryKeys():
                if lookup.values not in self._asked:
                    text = f"SELECT DISTINCT q0 AS c0 FROM ({lookup.values}) LIMIT {SMALL_RANGE_ROWS + 1}"
                    self._asked[lookup.values] = collect(self._spark.sql(text))
                rows = self._asked[lookup.values]
                beyond = rows.num_rows > SMALL_RANGE_ROWS or (lookup.null_safe and rows["c0"].null_count > 0)
                return None if beyond else distinct_values(rows, 0)
            case _:
                assert_never(lookup)

    def fixpoint(self, node: Recursion, base: str, step: Callable[[str], str]) -> str:
        """A recursion at one end of the window, computed once however often it is asked for."""
        with self._lock:
            # The texts name the views they read, so they are the same for the same end of the same window.
            asked = f"{base} THEN {step('?')}"
            if asked not in self._fixpoints:
                self._fixpoints[asked] = fixpoint(self._spark, node, base, step)
            return f"SELECT * FROM {self._fixpoints[asked]}"

    def materialize_small(self, zset: str, columns: Sequence[Field]) -> str | None:
        """Computed once however often it is asked for, if the window is small."""
        return self._computed.materialize_small(zset, columns) if self.small else zset

    def materialize_once(self, zset: str, columns: Sequence[Field]) -> str:
        """The same for what may be larger than the change."""
        return self._computed.materialize_once(zset, columns) if self.small else zset

    def state_of(self, node: StatefulNode) -> None:
        """Nothing: the traces are all there is."""
        return

    def _trace(self, table: TableId) -> Trace:
        trace = self._find_trace(table)
        if trace is None:
            raise AssertionError(f"{table} was not captured before it was read")
        return trace

    def take(self, tables: Iterable[TableId]) -> None:
        """Hold what there is now of these relations."""
        for table in tables:
            self._of(table)

    def _of(self, table: TableId) -> Parts:
        with self._lock:
            if table not in self._parts:
                self._parts[table] = self._trace(table).parts(self.lsn_range)
            return self._parts[table]

    def _view(self, table: TableId, chunk: pa.Table) -> str:
        with self._lock:
            if id(chunk) not in self._views:
                self._views[id(chunk)] = create_view(self._trace(table).frame_of(chunk))
            return self._views[id(chunk)]

    def _select(self, scan: Scan, view: str) -> str:
        return select([column_name(place) for place in self._places(scan)], WEIGHT, view)

    def _places(self, scan: Scan) -> list[int]:
        trace = self._trace(scan.table)
        places = trace.places(scan)
        if None in places:
            raise AssertionError(f"{scan.table} is read before its columns are known")
        return [place for place in places if place is not None]
