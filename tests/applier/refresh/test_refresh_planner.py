"""The LSN range of a refresh: everything, or as many rows as one step may have; always whole commits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.arrange.traces import Traces
from applier.trace.stamped_rows import StampedRow
from applier.trace.trace import Trace
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

TABLE = TableId("public", "t")
SCHEMA = TableSchema(TABLE, 1, (Column("id", PgType(23, -1, "int4", "integer")),), ("id",), ReplicaIdentity.FULL)
NOW = datetime(2026, 5, 17, tzinfo=UTC)

commits = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30)), min_size=1, max_size=60)
"""Commits: the distance to the one before, and the number of rows."""


def traces_of(sizes: list[tuple[int, int]]) -> tuple[Traces, list[tuple[int, int]]]:
    """Return a relation with these commits, and their LSNs."""
    # The overlay is Arrow on the driver: Spark is not used.
    trace = Trace(cast(Any, None), TABLE)
    trace.columns = ()
    trace.capture(SCHEMA.columns, Lsn(1), 1)
    at, placed = 10, []
    for apart, rows in sizes:
        at += apart
        trace.append([StampedRow(ChangeRow(Op.INSERT, Stamp(Lsn(at), n), 0, 0, (n,)), SCHEMA) for n in range(rows)])
        placed.append((at, rows))
    return Traces(cast(Any, None), [trace]), placed


@given(commits, st.integers(1, 200), st.integers(0, 500))
def test_a_step_is_a_prefix_of_whole_commits(sizes: list[tuple[int, int]], most: int, old: int) -> None:
    traces, placed = traces_of(sizes)
    lsn_range = LsnRange(Lsn(old), Lsn(max(old, placed[-1][0] + 1)))
    inside = [(at, rows) for at, rows in placed if Lsn(at) in lsn_range]
    step = traces.first_changes([TABLE], lsn_range, most)
    changes = traces.changes([TABLE], step)
    assert step.lower == lsn_range.lower and step.upper <= lsn_range.upper
    # Whole commits, the last of which reaches the limit, or everything.
    assert changes == sum(rows for at, rows in inside if Lsn(at) in step)
    if step.upper < lsn_range.upper:
        assert changes >= most
        before_last = [rows for at, rows in inside if Lsn(at) in step][:-1]
        assert sum(before_last) < most
    else:
        assert changes == sum(rows for _, rows in inside)
    assert step.upper > step.lower or not inside


@given(commits)
def test_every_lsn_range_finds_its_rows_however_chunks_were_merged(sizes: list[tuple[int, int]]) -> None:
    traces, placed = traces_of(sizes)
    for at, rows in placed:
        assert traces.changes([TABLE], LsnRange(Lsn(at), Lsn(at + 1))) == rows
        assert traces.changes([TABLE], LsnRange(Lsn(0), Lsn(at))) == sum(r for a, r in placed if a < at)


def test_a_relation_never_captured_is_not_held() -> None:
    traces, _ = traces_of([(1, 1)])
    assert traces.holds([TABLE], Lsn(5))
    assert not traces.holds([TABLE, TableId("public", "other")], Lsn(5))


@pytest.mark.parametrize("rows", [0, 1])
def test_rows_are_counted(rows: int) -> None:
    traces, _ = traces_of([(1, 3 + rows)])
    assert traces.rows([TABLE]) == 3 + rows
