"""Rows that wait for a copy are read back unchanged, in their order, without those that the snapshot contains."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.ring.segments import Segments
from cdc_consumer.ring.spool import CHUNK_BYTES, Spool
from shared_schema.lsn import Lsn

ROWS = st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=5)), st.integers(0, 100_000).map(bytes)), max_size=20)


def drained(spool: Spool) -> list[tuple[int, EncodedRow]]:
    return [(commit.value, row) for commit, rows in spool.drain() for row in rows]


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS)
def test_everything_comes_back_in_order(first: list[EncodedRow], second: list[EncodedRow]) -> None:
    spool = Spool(Lsn(1), Segments(None))
    for rows in (first, second):
        spool.begin_commit(Lsn(8))
        for key, value in rows:
            spool.write(key, value)
        assert (spool.size > 0) == (sum(len(value) for _, value in rows) >= CHUNK_BYTES)
        assert drained(spool) == [(8, row) for row in rows]
        assert spool.size == 0 and not drained(spool)
    spool.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, max_size=6), st.integers(0, 7))
def test_commits_before_the_point_are_dropped_when_it_is_known(commits: list[list[EncodedRow]], point: int) -> None:
    spool = Spool(Lsn(1), Segments(None))
    for lsn, rows in enumerate(commits, 1):
        spool.begin_commit(Lsn(lsn))
        for key, value in rows:
            spool.write(key, value)
    spool.begin_at(Lsn(point))
    expected = [(lsn, row) for lsn, rows in enumerate(commits, 1) if lsn >= point for row in rows]
    assert drained(spool) == expected
    spool.close()


def test_what_was_forgotten_is_named() -> None:
    spool = Spool(Lsn(1), Segments(None))
    spool.begin_commit(Lsn(8))
    spool.write(b"k", b"old")
    spool.forget()
    # The rest of the same commit has no meaning without its beginning.
    spool.write(b"k", b"rest")
    # It may be so long that it is forgotten in several steps.
    spool.forget()
    spool.begin_commit(Lsn(16))
    spool.write(None, b"new")
    assert spool.forgotten == Lsn(8)
    assert drained(spool) == [(16, (None, b"new"))]
