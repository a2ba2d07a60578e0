"""All traces by relation: complete change rows go in, the Inputs of operators come out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import assert_never

from pyspark.sql import SparkSession

from applier.arrange.arrangements import Arrangements
from applier.arrange.inputs import TraceInputs
from applier.errors import SourceChanged
from applier.plan.nodes import Scan
from applier.trace.align import LSN
from applier.trace.columns import TraceColumn
from applier.trace.stamped_rows import Chunk, Run
from applier.trace.trace import Trace
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId, TableSchema


class Traces:
    """The traces of all captured relations, by name."""

    def __init__(self, spark: SparkSession, loaded: Iterable[Trace] = (), memory_budget_mb: int = 0) -> None:
        self._spark = spark
        self._traces: dict[TableId, Trace] = {trace.table: trace for trace in loaded}
        self.arrangements = Arrangements(spark, memory_budget_mb)

    def through(self, lsn_range: LsnRange) -> TraceInputs:
        """Return the Inputs of the operators for an LSN range."""
        self.arrangements.tidy()
        return TraceInputs(self._spark, self.get, self.arrangements, lsn_range)

    def __iter__(self) -> Iterator[Trace]:
        return iter(list(self._traces.values()))

    def get(self, table: TableId) -> Trace | None:
        """Return the trace of the relation; None before its capture."""
        return self._traces.get(table)

    def capture(self, capture: Capture, schema: TableSchema) -> None:
        """Note that a relation was captured, for the first time or again."""
        trace = self._traces.setdefault(capture.table, Trace(self._spark, capture.table))
        trace.capture(schema.columns, capture.snapshot_lsn, capture.relid, capture.membership, key=schema.key)

    def append(self, rows_by_table: dict[TableId, list[Run]]) -> None:
        """Add rows to the traces, per relation in stamp order."""
        for table, runs in rows_by_table.items():
            if table not in self._traces:
                # Rows of a copy that ended before its capture record; the next copy begins with a T row.
                continue
            for run in runs:
                match run:
                    case Chunk():
                        self._traces[table].append_chunk(run)
                    case list():
                        self._traces[table].append(run)
                    case _:
                        assert_never(run)

    def knows(self, scan: Scan, frontier: Lsn) -> bool:
        """Whether the trace knows every column that the scan reads at the frontier."""
        trace = self._traces.get(scan.table)
        return (
            trace is not None
            and trace.known_since < frontier
            and all(column is not None and column.is_known_at(frontier) for column in self._columns(trace, scan))
        )

    def coming(self, scan: Scan, frontier: Lsn) -> bool:
        """Whether the trace will know them once the frontier passes a capture that is under way."""
        trace = self._traces.get(scan.table)
        return trace is None or all(
            column is not None and (column.is_known_at(frontier) or column.is_coming_at(frontier))
            for column in self._columns(trace, scan)
        )

    def reason(self, scan: Scan) -> SourceChanged:
        """Return the reason why a scan is neither known nor coming."""
        found = zip(scan.columns, self._columns(self._traces[scan.table], scan), strict=True)
        for name, column in found:
            if column is not None and column.reason is not None:
                return column.reason
            if column is None:
                return SourceChanged(
                    f"column {name} of {scan.table} has changed since the stream table was filled",
                    hint="drop the stream table and create it again",
                )
        return SourceChanged(
            f"{scan.table} was captured again after the last refresh of the stream table",
            hint="drop the stream table and create it again",
        )

    @staticmethod
    def _columns(trace: Trace, scan: Scan) -> list[TraceColumn | None]:
        return [None if place is None else trace.columns[place] for place in trace.places(scan)]

    def _present(self, tables: Iterable[TableId]) -> list[Trace]:
        return [self._traces[table] for table in tables if table in self._traces]

    def changes(self, tables: Iterable[TableId], lsn_range: LsnRange) -> int:
        """Return how many change rows the relations have in the LSN range, without Spark."""
        return sum(int(trace.overlay(lsn_range).num_rows) for trace in self._present(tables))

    def first_changes(self, tables: Iterable[TableId], lsn_range: LsnRange, rows: int) -> LsnRange:
        """Return the first part of the LSN range with about so many change rows; commits stay whole."""
        parts = [trace.overlay(lsn_range)[LSN] for trace in self._present(tables)]
        stamps = sorted(lsn for part in parts for lsn in part.to_pylist())
        return lsn_range if len(stamps) <= rows else LsnRange(lsn_range.lower, Lsn(stamps[rows - 1] + 1))

    def holds(self, tables: Collection[TableId], frontier: Lsn) -> bool:
        """Whether every change row since the frontier is present and still separate from the rows before it."""
        traces = [self._traces.get(table) for table in tables]
        return self.whole_at(tables, frontier) and all(
            trace is not None and trace.base.frontier <= frontier for trace in traces
        )

    def leave_out(self, gaps: Mapping[TableId, Lsn]) -> None:
        """Note that rows of these relations from their bases to these positions were deleted before they were read."""
        for trace in self._present(gaps):
            trace.gap_until = gaps[trace.table]

    def whole_at(self, tables: Iterable[TableId], *frontiers: Lsn) -> bool:
        """Whether nothing of the relations is missing at these frontiers."""
        return not any(
            trace.base.frontier < frontier <= trace.gap_until
            for trace in self._present(tables)
            for frontier in frontiers
        )

    def rows(self, tables: Iterable[TableId]) -> int:
        """Return about how many rows the relations have."""
        return sum(trace.base.rows + trace.overlay_rows for trace in self._present(tables))
