"""A delta of any kind in; the change rows of its topic out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta, MemoryDelta, OutboxDelta, StagedDelta
from applier.sinks.kafka.change_rows import change_rows, sort_by_key
from applier.sinks.net_delta import row_tuples
from shared_schema.change_row import ChangeRow

BATCH_ROWS = 4_096
"""Rows that are read at a time from a delta that is not in memory."""


def delta_change_rows(
    table: StreamTable, delta: Delta, *, number: int, empty_first: bool, first_seq: int = 0
) -> Iterator[ChangeRow]:
    """Yield the change rows of a delta, always in the same order; see `change_rows`."""
    rows = _ordered_rows(table, delta)
    return change_rows(table, delta.lsn_range, rows, number=number, empty_first=empty_first, first_seq=first_seq)


def _ordered_rows(table: StreamTable, delta: Delta) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, the weight last; the two rows of an update are adjacent."""
    match delta:
        case MemoryDelta():
            yield from sort_by_key(table, delta.rows)
        case StagedDelta() | OutboxDelta():
            for batch in delta.batches(BATCH_ROWS):
                yield from row_tuples(batch)
        case _:
            assert_never(delta)
