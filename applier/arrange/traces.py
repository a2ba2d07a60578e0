"""All traces by relation: complete change rows go in, the Inputs of operators come out."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from applier.arrange.arrangements import Arrangements
from applier.arrange.inputs import TraceInputs
from applier.errors import SourceChanged, StreamLost
from applier.plan.nodes import Scan
from applier.trace.align import LSN
from applier.trace.columns import TraceColumn
from applier.trace.stamped_rows import Chunk, Run, first_stamp
from applier.trace.trace import Trace
from applier.trace.volume import volume
from applier.unexpected import to_trickle_error
from applier.zset import WEIGHT
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId, TableSchema

log = logging.getLogger(__name__)


class Traces:
    """The traces of all captured relations, by name."""

    def __init__(self, spark: SparkSession, loaded: Iterable[Trace] = (), memory_budget_mb: int = 0) -> None:
        self._spark = spark
        self._traces: dict[TableId, Trace] = {trace.table: trace for trace in loaded}
        self.arrangements = Arrangements(spark, memory_budget_mb)
        self.stopped: dict[TableId, str] = {}
        """Relations that the consumer cannot follow, and why."""

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
        """Add rows to the traces, per relation in stamp order.

        Rows that cannot be taken in concern their relation alone: nothing is known of it from there on.
        """
        for table, runs in rows_by_table.items():
            if table not in self._traces:
                # Rows of a copy that ended before its capture record; the next copy begins with a T row.
                continue
            for run in runs:
                try:
                    _append_run(self._traces[table], run)
                except Exception as error:
                    self._lose_rows(table, run, to_trickle_error(table, error))

    def _lose_rows(self, table: TableId, run: Run, error: TrickleError) -> None:
        if error.retryable:
            # They are in no inbox any more; a restart reads them again.
            raise StreamLost(f"rows of {table} could not be taken in: {error.problem}", hint="start the applier again")
        at = Lsn(first_stamp(run)[0])
        self.lose(table, at, error.problem)

    def lose(self, table: TableId, at: Lsn, problem: str) -> bool:
        """Note that nothing is known of a relation from `at` on; return whether there is a trace to note it in."""
        if (trace := self._traces.get(table)) is None:
            return False
        log.error("rows could not be taken in", extra={"table": str(table), "since": str(at), "error": problem})
        trace.lose(at, _unreadable(table, at, problem))
        return True

    def knows(self, scan: Scan, frontier: Lsn) -> bool:
        """Whether the trace knows every column that the scan reads at the frontier."""
        trace = self._traces.get(scan.table)
        return trace is not None and all(
            column is not None and column.is_known_at(frontier) for column in self._columns(trace, scan)
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
        found = zip((*scan.columns, ""), self._columns(self._traces[scan.table], scan), strict=True)
        for name, column in found:
            if column is not None and column.reason is not None:
                return column.reason
            if column is None:
                return SourceChanged(
                    f"column {name} of {scan.table} has changed since the stream table was filled",
                    hint="SELECT pgtrickle.reinitialize_stream_table(name)",
                )
        return SourceChanged(
            f"{scan.table} was captured again after the last refresh of the stream table",
            hint="SELECT pgtrickle.reinitialize_stream_table(name)",
        )

    @staticmethod
    def _columns(trace: Trace, scan: Scan) -> list[TraceColumn | None]:
        """Return the columns that a scan reads; the last stands for the rows as such."""
        return [*(None if place is None else trace.columns[place] for place in trace.places(scan)), trace.rows_known]

    def _present(self, tables: Iterable[TableId]) -> list[Trace]:
        return [self._traces[table] for table in tables if table in self._traces]

    def changes(self, tables: Iterable[TableId], lsn_range: LsnRange) -> int:
        """Return how many change rows the relations have in the LSN range, without Spark."""
        return sum(int(trace.overlay(lsn_range).num_rows) for trace in self._present(tables))

    def changed_rows(self, tables: Iterable[TableId], lsn_range: LsnRange) -> int:
        """Return the same, where equal rows that one row stands for count as often as they are there."""
        overlays = (trace.overlay(lsn_range)[WEIGHT] for trace in self._present(tables))
        return sum(pc.sum(pc.abs(weights)).as_py() or 0 for weights in overlays)

    def largest_commit(self, tables: Iterable[TableId], lsn_range: LsnRange) -> tuple[Lsn, dict[TableId, int]] | None:
        """Return where the commit with the most change rows in the LSN range is, and its rows per relation, counted as
        `changed_rows` does; without Spark. None when nothing changed."""
        sizes: dict[int, dict[TableId, int]] = {}
        for trace in self._present(tables):
            rows = trace.overlay(lsn_range)
            weights = pa.table({LSN: rows[LSN], WEIGHT: pc.abs(rows[WEIGHT])})
            for one in weights.group_by(LSN).aggregate([(WEIGHT, "sum")]).to_pylist():
                sizes.setdefault(one[LSN], {})[trace.table] = one[f"{WEIGHT}_sum"]
        if not sizes:
            return None
        at = max(sizes, key=lambda lsn: (sum(sizes[lsn].values()), -lsn))
        return Lsn(at), sizes[at]

    def volume(self, tables: Iterable[TableId], lsn_range: LsnRange) -> int:
        """Return how many change rows the relations have in the LSN range, where a large row counts as several."""
        return sum(volume(trace.overlay(lsn_range)) for trace in self._present(tables))

    def first_changes(self, tables: Iterable[TableId], lsn_range: LsnRange, rows: int) -> LsnRange:
        """Return the first part of the LSN range with about so many change rows; commits stay whole.

        A large row counts as several.
        """
        parts = [trace.overlay(lsn_range) for trace in self._present(tables)]
        stamps = sorted(lsn for part in parts for lsn in part[LSN].to_pylist())
        rows = max(1, rows * len(stamps) // max(1, *(sum(volume(part) for part in parts), len(stamps))))
        return lsn_range if len(stamps) <= rows else LsnRange(lsn_range.lower, Lsn(stamps[rows - 1] + 1))

    def holds(self, tables: Collection[TableId], frontier: Lsn) -> bool:
        """Whether every change row since the frontier is present and still separate from the rows before it."""
        traces = [self._traces.get(table) for table in tables]
        return self.whole_at(tables, frontier) and all(
            trace is not None and trace.base.frontier <= frontier for trace in traces
        )

    def holds_ends(self, tables: Collection[TableId], lsn_range: LsnRange) -> bool:
        """Whether the relations can be read at both ends of a past range; at ORIGIN they are empty."""
        return self.holds(tables, lsn_range.lower or lsn_range.upper) and self.whole_at(tables, lsn_range.upper)

    def earliest(self, tables: Iterable[TableId]) -> Lsn:
        """Return the first position at which all of the relations can be read."""
        return max((trace.base.frontier for trace in self._present(tables)), default=ORIGIN)

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

    def is_counted_since(self, tables: Collection[TableId], lower: Lsn) -> bool:
        """Whether the change rows since `lower` are held one by one, for each of the relations that has a trace."""
        is_held = all(trace.base.frontier <= lower for trace in self._present(tables))
        return is_held and self.whole_at(tables, lower)

    def rows_at(self, tables: Iterable[TableId], at: Lsn) -> int:
        """Return how many rows the relations have at an LSN since which changes are counted, without Spark; equal rows
        as often as they are there."""
        return sum(trace.weight_at(at) for trace in self._present(tables))

    def held_volume(self, tables: Iterable[TableId]) -> int:
        """Return the same, where a large row counts as several."""
        return sum(trace.base.volume + trace.overlay_volume for trace in self._present(tables))


def _append_run(trace: Trace, run: Run) -> None:
    match run:
        case Chunk():
            trace.append_chunk(run)
        case list():
            trace.append(run)
        case _:
            assert_never(run)


def _unreadable(table: TableId, at: Lsn, problem: str) -> SourceChanged:
    return SourceChanged(
        f"rows of {table} since {at} could not be taken in ({problem})",
        hint="SELECT pgtrickle.resume_stream_table(…) copies the table again",
    )
