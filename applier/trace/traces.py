"""All traces together: what the engine asks for a relation, and what arrived for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from applier.operators.inputs import Side
from applier.plan.nodes import Scan
from applier.trace.inbox import Arrival
from applier.trace.trace import Trace
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn, Window
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId, TableSchema

SMALL_WINDOW_ROWS = 20_000
"""Up to here a delta is worth broadcasting; beyond, Spark should shuffle."""


class Traces:
    """The traces of every captured relation, by name."""

    def __init__(self, spark: SparkSession, loaded: Iterable[Trace] = ()) -> None:
        self._spark = spark
        self._traces: dict[TableId, Trace] = {trace.schema.table: trace for trace in loaded}

    def __iter__(self) -> Iterator[Trace]:
        return iter(list(self._traces.values()))

    def get(self, table: TableId) -> Trace | None:
        """The relation's trace, None before its capture."""
        return self._traces.get(table)

    def capture(self, capture: Capture, schema: TableSchema) -> None:
        """A relation joined the stream; a later capture of the same name continues the trace."""
        if capture.table not in self._traces:
            self._traces[capture.table] = Trace(self._spark, schema, capture.snapshot_lsn)

    def append(self, arrivals: dict[TableId, list[Arrival]]) -> None:
        """Add complete rows, per relation in stamp order."""
        for table, rows in arrivals.items():
            if table not in self._traces:
                # Rows of a commit can only be complete after the capture record they follow.
                raise AssertionError(f"rows of {table} arrived before its capture")
            self._traces[table].append(rows)

    def known_at(self, table: TableId, frontier: Lsn) -> bool:
        """Whether the trace holds the whole relation as of the frontier."""
        trace = self._traces.get(table)
        return trace is not None and trace.snapshot_lsn < frontier

    def failure(self, tables: Iterable[TableId]) -> TrickleError | None:
        """The first reason why one of these relations can no longer be followed."""
        broken = (trace.broken for table in tables if (trace := self._traces.get(table)))
        return next((error for error in broken if error), None)

    def changed(self, tables: Iterable[TableId], window: Window) -> bool:
        """Whether any of the relations has a change row in the window; no Spark is asked."""
        present = (self._traces[table] for table in tables if table in self._traces)
        return any(trace.has_rows(window) for trace in present)


@dataclass(frozen=True)
class WindowInputs:
    """The traces through one window: the Inputs of the operators."""

    traces: Traces
    window: Window
    tables: frozenset[TableId]

    @property
    def small(self) -> bool:
        """Whether the window's change rows are few."""
        present = (trace for table in self.tables if (trace := self.traces.get(table)))
        return sum(int(trace.overlay(self.window).num_rows) for trace in present) <= SMALL_WINDOW_ROWS

    def delta(self, scan: Scan) -> DataFrame | None:
        """Change rows of the window, the scan's columns only."""
        trace, ordinals = self._resolve(scan)
        return trace.delta(self.window, ordinals)

    def snapshot(self, scan: Scan, side: Side) -> DataFrame:
        """The relation at one end of the window, the scan's columns only."""
        trace, ordinals = self._resolve(scan)
        return trace.snapshot(self.window.old if side is Side.BEFORE else self.window.new, ordinals)

    def _resolve(self, scan: Scan) -> tuple[Trace, list[int]]:
        trace = self.traces.get(scan.table)
        if trace is None:
            raise AssertionError(f"{scan.table} was not captured before it was read")
        places = {column.name: i for i, column in enumerate(trace.schema.columns)}
        return trace, [places[name] for name in scan.columns]
