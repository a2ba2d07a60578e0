"""What a stored state needs of its sources: which copies of them the traces hold, and their rows over a past range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from applier.arrange.traces import Traces
from applier.errors import HistoryGone
from applier.operators.support.inputs import Inputs
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import StreamTable
from applier.state.fingerprint import SourceCopy
from shared_schema.lsn import LsnRange


class SourceHistory(Protocol):
    """The sources of stream tables, now and over past ranges."""

    def copies(self, table: StreamTable) -> Sequence[SourceCopy]:
        """Return which copy of each relation that the stream table reads is held."""

    def is_unchanged(self, table: StreamTable, lsn_range: LsnRange) -> bool:
        """Whether it is known that no row that the stream table reads changed in the range."""

    def between(self, table: StreamTable, lsn_range: LsnRange) -> AbstractContextManager[Inputs]:
        """Open the inputs of a past range; raise HistoryGone when they are not held, or too many for a delta."""


class TraceHistory:
    """The same, from the traces."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def copies(self, table: StreamTable) -> Sequence[SourceCopy]:
        """Return which copy of each relation that the stream table reads is held."""
        found = [(source, self._traces.get(source)) for source in sorted(table.sources, key=str)]
        return [
            SourceCopy(source, trace.relid, trace.captured_at, trace.membership)
            for source, trace in found
            if trace is not None
        ]

    def is_unchanged(self, table: StreamTable, lsn_range: LsnRange) -> bool:
        """Whether it is known that no row that the stream table reads changed in the range."""
        return self._is_held(table, lsn_range) and not self._traces.changes(table.sources, lsn_range)

    @contextmanager
    def between(self, table: StreamTable, lsn_range: LsnRange) -> Iterator[Inputs]:
        """Open the inputs of a past range; raise HistoryGone when they are not held, or too many for a delta."""
        if not self._is_held(table, lsn_range):
            raise HistoryGone(f"the rows of {table} at {lsn_range.lower} are no longer held")
        with self._traces.through(lsn_range) as inputs:
            inputs.take(table.sources)
            if isinstance(table.plan, StreamPlan) and table.plan.only_small_deltas and not inputs.small:
                raise HistoryGone(f"the changes of {table} since {lsn_range.lower} are too many for a delta")
            yield inputs

    def _is_held(self, table: StreamTable, lsn_range: LsnRange) -> bool:
        return self._traces.holds_ends(table.sources, lsn_range) and all(
            self._traces.knows(scan, at) for scan in table.scans for at in (lsn_range.lower, lsn_range.upper)
        )
