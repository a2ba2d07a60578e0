"""Which LSN ranges a fuse stops, by which figures, and whom a blown one holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import floor
from statistics import fmean, pstdev
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.catalog.stream_tables import StreamTableRow
from applier.errors import FuseBlown
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.holding.fuse import (
    DEFAULT_SENSITIVITY,
    MAX_SAMPLES,
    MIN_LEARNED_LIMIT,
    MIN_SAMPLES,
    FuseLimit,
    FuseMode,
    FuseOptions,
    SourceCommit,
    find_held,
    find_limit,
    is_catching_up,
    is_stopped,
)
from applier.refresh.holding.fuses import Fuses, find_readers_of_blown
from applier.trace.align import LSN
from applier.trace.trace import Base
from applier.zset import WEIGHT
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.table_schema import TableId
from tests.applier.refresh.test_refresh_planner import NOW, TABLE, traces_of

OTHER = TableId("public", "other")


def options(
    mode: FuseMode | None = None, ceiling: float | None = None, k: float | None = None, default: float = 0
) -> FuseOptions:
    return FuseOptions(mode, ceiling, k, default)


@pytest.mark.parametrize(
    ("given", "rows", "limit"),
    [
        (options(), 1_000, None),
        (options(default=50), 1_000, 50),
        (options(FuseMode.OFF, 10, 2.0, 50), 1_000, None),
        (options(FuseMode.ON, default=50), 1_000, 50),
        (options(ceiling=10, default=50), 1_000, 10),
        (options(ceiling=0.25), 1_000, 250),
        # An updated row is two change rows; and a share of nothing says nothing of the first load.
        (options(ceiling=0.25), 3, 2),
        (options(ceiling=0.25), 0, None),
        (options(ceiling=5), 0, 5),
        (options(ceiling=1), 1_000, 1),
        (options(default=0.5), 10, 5),
        (options(FuseMode.AUTO), 1_000, None),
    ],
)
def test_a_ceiling_is_rows_or_a_share_of_the_sources(given: FuseOptions, rows: int, limit: int | None) -> None:
    found = find_limit(given, rows, [])
    assert (found and found.rows) == limit


@given(st.lists(st.integers(1, 10_000), max_size=40), st.floats(0.1, 10), st.none() | st.integers(1, 5_000))
def test_the_lowest_of_ceiling_and_history_counts(samples: list[int], k: float, ceiling: int | None) -> None:
    found = find_limit(options(FuseMode.ON, ceiling, k), 100, samples)
    expected = [] if ceiling is None else [ceiling]
    if len(samples) >= MIN_SAMPLES:
        expected.append(max(MIN_LEARNED_LIMIT, floor(fmean(samples) + k * pstdev(samples) + 1e-9)))
    assert (found is None) == (not expected)
    # The mean of large numbers may be rounded to the other side of a whole one.
    assert found is None or abs(found.rows - min(expected)) <= 1


def test_the_history_counts_only_with_enough_refreshes_and_never_stops_a_few_rows() -> None:
    auto = options(FuseMode.AUTO)
    assert auto.used_sensitivity == DEFAULT_SENSITIVITY and options().used_sensitivity is None
    assert find_limit(auto, 0, [500] * (MIN_SAMPLES - 1)) is None
    found = find_limit(auto, 0, [500] * MIN_SAMPLES)
    assert found is not None and found.rows == 500 and "of 10 refreshes" in found.origin
    for ceiling, lowest in ((400, 400), (600, 500)):
        both = find_limit(options(FuseMode.ON, ceiling, 1.0), 0, [500] * MIN_SAMPLES)
        assert both is not None and both.rows == lowest
    few = find_limit(auto, 0, [1] * MIN_SAMPLES)
    assert few is not None and few.rows == MIN_LEARNED_LIMIT


@given(st.integers(0, 100), st.dictionaries(st.sampled_from([TABLE, OTHER]), st.integers(1, 60), min_size=1))
def test_who_catches_up_is_measured_by_the_largest_commit(limit: int, rows: dict[TableId, int]) -> None:
    largest = SourceCommit(Lsn(7), rows)
    for changes in (largest.total, largest.total + 50):
        stopped = is_stopped(FuseLimit(limit, ""), changes, largest, catching_up=False)
        assert stopped == (changes > limit)
        late = is_stopped(FuseLimit(limit, ""), changes, largest, catching_up=True)
        assert late == (largest.total > limit) and late <= stopped


def test_long_overdue_is_catching_up() -> None:
    assert not is_catching_up(None, NOW)
    assert not is_catching_up(NOW - timedelta(seconds=60), NOW) and is_catching_up(NOW - timedelta(seconds=61), NOW)


@given(
    st.sets(st.integers(0, 9)),
    st.dictionaries(st.integers(0, 9), st.frozensets(st.integers(0, 9), max_size=3)),
)
def test_held_are_exactly_those_that_reach_a_blown_one(blown: set[int], reads: dict[int, frozenset[int]]) -> None:
    held = find_held(blown, reads)
    stopped = blown | held
    assert held == {reader for reader, read in reads.items() if read & stopped}
    # Nobody is held for a reason of his own: each step leads nearer to a blown one.
    reached = set(blown)
    while near := {reader for reader in held - reached if reads[reader] & reached}:
        reached |= near
    assert held <= reached


class Samples:
    """The stored change rows of earlier refreshes."""

    def __init__(self, *rows: int) -> None:
        self.rows, self.reads = list(rows), 0

    def read(self, pgt_id: int, most: int) -> list[int]:
        self.reads += 1
        return self.rows[-most:]


def row(at: int = 5, **fields: Any) -> StreamTableRow:
    stored = {
        "pgt_id": 1,
        "pgt_relid": 11,
        "pgt_schema": "public",
        "pgt_name": "st",
        "frontier": str(Lsn(at)),
        "schedule": "1s",
        "refreshed_at": NOW,
        "reads": [],
        "status": "ACTIVE",
    }
    unused = dict.fromkeys(StreamTableRow.__dataclass_fields__)
    defaults = {n: f.default for n, f in StreamTableRow.__dataclass_fields__.items() if n not in stored}
    return StreamTableRow(**cast(Any, unused | {n: d for n, d in defaults.items()} | stored | fields))


READER_OF_T = StreamTable(1, TableId("public", "st"), 11, (), PostgresQuery("", frozenset([TABLE]), True, ""))


def fuses(sizes: list[tuple[int, int]], *samples: int, default: float = 0) -> Fuses:
    return Fuses(traces_of(sizes)[0], Samples(*samples), lambda: default)


def test_a_range_is_stopped_with_its_figures_and_the_largest_commit() -> None:
    # Commits at 15, 20 and 25.
    judge = fuses([(5, 3), (5, 9), (5, 2)], default=13)
    assert judge.admit(row(), READER_OF_T, LsnRange(Lsn(5), Lsn(25)), NOW) == LsnRange(Lsn(5), Lsn(25))
    with pytest.raises(FuseBlown) as blown:
        judge.admit(row(), READER_OF_T, LsnRange(Lsn(5), Lsn(26)), NOW)
    error = blown.value
    assert (error.changes, error.limit, error.until) == (14, 13, Lsn(26))
    assert "14 change rows between 0/5 and 0/1A, more than 13 (fuse_ceiling 13)" in error.problem
    assert "(commit at 0/14) has 9 (public.t 9)" in error.problem
    assert all(f"reset_fuse('public.st', '{of}')" in error.hint for of in ("apply", "reinitialize", "skip_changes"))
    # One that was paused meets many ordinary commits at once.
    late = row(refreshed_at=NOW - timedelta(hours=1))
    assert judge.admit(late, READER_OF_T, LsnRange(Lsn(5), Lsn(26)), NOW) == LsnRange(Lsn(5), Lsn(26))
    off = row(fuse="off")
    assert judge.admit(off, READER_OF_T, LsnRange(Lsn(5), Lsn(26)), NOW) == LsnRange(Lsn(5), Lsn(26))


def test_what_was_let_through_goes_first_and_what_follows_is_judged_by_itself() -> None:
    judge = fuses([(5, 30), (5, 4), (5, 30)], default=10)
    passes = row(fuse_passes_until=str(Lsn(16)))
    assert judge.lets_through(passes) and not judge.lets_through(row(at=16, fuse_passes_until=str(Lsn(16))))
    small = LsnRange(Lsn(5), Lsn(21))
    assert judge.admit(passes, READER_OF_T, small, NOW) == small
    assert judge.admit(passes, READER_OF_T, LsnRange(Lsn(5), Lsn(26)), NOW) == LsnRange(Lsn(5), Lsn(16))
    with pytest.raises(FuseBlown, match=r"34 change rows between 0/10 and 0/1A"):
        judge.admit(row(at=16, fuse_passes_until=str(Lsn(16))), READER_OF_T, LsnRange(Lsn(16), Lsn(26)), NOW)


def test_a_share_is_of_the_rows_before_the_range() -> None:
    judge = fuses([(5, 100), (5, 30)])
    lsn_range = LsnRange(Lsn(16), Lsn(21))
    assert judge.admit(row(at=16, fuse_ceiling=0.3), READER_OF_T, lsn_range, NOW) == lsn_range
    with pytest.raises(FuseBlown, match=r"more than 29 \(fuse_ceiling 0\.29 of 100 source rows\)"):
        judge.admit(row(at=16, fuse_ceiling=0.29), READER_OF_T, lsn_range, NOW)


def test_the_history_is_read_once_and_kept_up_without_what_was_let_through() -> None:
    judge = fuses([(5, 400)], *[100] * MAX_SAMPLES)
    auto, lsn_range = row(fuse="auto"), LsnRange(Lsn(5), Lsn(16))
    with pytest.raises(FuseBlown, match=r"mean 100\.0 \+ 5 x deviation 0\.0 of 200 refreshes"):
        judge.admit(auto, READER_OF_T, lsn_range, NOW)
    for _ in range(MAX_SAMPLES):
        judge.learn(row(fuse="auto", fuse_passes_until=str(Lsn(16))), 400)
        judge.learn(auto, 0)
    with pytest.raises(FuseBlown):
        judge.admit(auto, READER_OF_T, lsn_range, NOW)
    for _ in range(MAX_SAMPLES // 2):
        judge.learn(auto, 200)
    assert judge.admit(auto, READER_OF_T, lsn_range, NOW) == lsn_range, "150 + 5 x 50"
    assert cast(Samples, judge.samples).reads == 1


def weighted(judge: Fuses, at: int, *weights: int) -> None:
    """Add rows that stand for several equal ones, as a TRUNCATE of a table without a key does."""
    (trace,) = judge.traces
    like = trace.overlay(LsnRange(ORIGIN, Lsn(10_000))).slice(0, len(weights))
    for name, values in ((LSN, [at] * len(weights)), (WEIGHT, weights)):
        place = like.schema.get_field_index(name)
        like = like.set_column(place, like.schema.field(place), pa.array(values, like.schema.field(place).type))
    trace._add_chunk(like)


def test_rows_count_as_often_as_they_are_there() -> None:
    judge = fuses([(5, 60), (5, 40)], default=0.5)
    weighted(judge, 25, -50, -1)
    (trace,) = judge.traces
    assert [judge.traces.rows_at([TABLE], Lsn(at)) for at in (15, 16, 25, 26)] == [0, 60, 100, 49]
    with pytest.raises(FuseBlown, match=r"51 change rows .* more than 50 \(fuse_ceiling 0\.5 of 100 .* has 51 "):
        judge.admit(row(at=21), READER_OF_T, LsnRange(Lsn(21), Lsn(26)), NOW)
    # Rows that come and go leave the size as it is.
    for at in range(30, 60):
        weighted(judge, at, -25, 25)
    assert judge.traces.rows_at([TABLE], Lsn(60)) == 49
    weighted(judge, 61, 26)
    with pytest.raises(FuseBlown, match=r"26 change rows .* more than 24 "):
        judge.admit(row(at=60), READER_OF_T, LsnRange(Lsn(60), Lsn(62)), NOW)
    # A checkpoint knows it too.
    trace.rebase(Base(Lsn(60), (), None, 7, 3, 49))
    with pytest.raises(FuseBlown, match=r"26 change rows .* more than 24 "):
        judge.admit(row(at=60), READER_OF_T, LsnRange(Lsn(60), Lsn(62)), NOW)


def test_what_is_no_longer_held_is_stopped_where_there_is_a_limit() -> None:
    judge, lsn_range = fuses([(5, 3), (5, 9), (5, 2)], default=100), LsnRange(Lsn(5), Lsn(26))
    (trace,) = judge.traces
    trace.rebase(Base(Lsn(16), (), None, 3, 0, 3))
    with pytest.raises(
        FuseBlown, match=r"between 0/5 and 0/1A are no longer held one by one.* more than 100 "
    ) as blown:
        judge.admit(row(), READER_OF_T, lsn_range, NOW)
    assert (blown.value.changes, blown.value.limit, blown.value.until) == (None, 100, Lsn(26))
    assert judge.admit(row(fuse="off"), READER_OF_T, lsn_range, NOW) == lsn_range
    few_samples = fuses([(5, 3)], *[1] * (MIN_SAMPLES - 1))
    next(iter(few_samples.traces)).rebase(Base(Lsn(16), (), None, 3, 0, 3))
    assert few_samples.admit(row(fuse="auto"), READER_OF_T, LsnRange(Lsn(5), Lsn(16)), NOW).upper == Lsn(16)
    # What somebody let through is, and the rest is counted from there.
    passes = row(fuse_passes_until=str(Lsn(16)))
    assert judge.admit(passes, READER_OF_T, lsn_range, NOW) == lsn_range
    assert judge.admit(replace(passes, fuse_ceiling=10.0), READER_OF_T, lsn_range, NOW) == LsnRange(Lsn(5), Lsn(16))
    assert judge.stops(replace(passes, fuse_ceiling=10.0), READER_OF_T, Lsn(26), NOW)
    assert judge.stops(row(), READER_OF_T, Lsn(26), NOW) and not judge.stops(passes, READER_OF_T, Lsn(26), NOW)


def test_readers_are_found_by_what_they_read() -> None:
    rows = [
        row(pgt_id=1, pgt_relid=11),
        row(pgt_id=2, pgt_relid=12, reads=[11, 99]),
        row(pgt_id=3, pgt_relid=13, reads=[12]),
        row(pgt_id=4, pgt_relid=14, reads=[99]),
    ]
    assert find_readers_of_blown(rows, []) == frozenset()
    assert find_readers_of_blown(rows, [1]) == {2, 3}
    rows[1] = row(pgt_id=2, pgt_relid=12, reads=[11], is_fuse_blown=True)
    assert find_readers_of_blown(rows, []) == {3}
