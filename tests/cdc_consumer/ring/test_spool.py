"""Rows that wait for a copy are read back unchanged, in their order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.ring.segments import Segments
from cdc_consumer.ring.spool import CHUNK_BYTES, Spool
from shared_schema.lsn import Lsn

ROWS = st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=5)), st.integers(0, 100_000).map(bytes)), max_size=20)


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS)
def test_everything_comes_back_in_order(first: list[EncodedRow], second: list[EncodedRow]) -> None:
    spool = Spool(Lsn(1), Segments(None))
    for rows in (first, second):
        for key, value in rows:
            spool.write(key, value)
        assert (spool.size > 0) == (sum(len(value) for _, value in rows) >= CHUNK_BYTES)
        assert [row for piece in spool.drain() for row in piece] == rows
        assert spool.size == 0 and not list(spool.drain())
    spool.close()
