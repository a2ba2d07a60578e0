"""Records of the progress topic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.errors import ContractError
from shared_schema.lsn import LSN_MAX, Lsn
from shared_schema.progress import Capture, LastCommit, Progress, decode_progress
from shared_schema.table_schema import TableId

positions = st.integers(0, LSN_MAX).map(Lsn)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
offsets = st.dictionaries(names, st.dictionaries(st.integers(0, 99), st.integers(0, 2**60), max_size=3), max_size=3)
commits = st.builds(LastCommit, positions, st.integers(0, 2**32), st.integers(), st.lists(names, max_size=2).map(tuple))
progresses = st.builds(
    Progress,
    names,
    names,
    st.integers(0, 9),
    positions,
    positions,
    offsets,
    st.one_of(st.none(), commits),
    windows=st.integers(0, 9),
)
captures = st.builds(
    Capture, names, st.builds(TableId, names, names), st.integers(1, 2**32 - 1), positions, st.integers(0), names
)


@given(st.one_of(progresses, captures))
def test_round_trip(record: Progress | Capture) -> None:
    assert decode_progress(record.encode()) == record


@given(captures, captures)
def test_one_live_record_per_slot_and_table(a: Capture, b: Capture) -> None:
    assert (a.key == b.key) == ((a.slot, a.table) == (b.slot, b.table))


@given(st.from_regex(r"[a-z0-9_]{1,63}", fullmatch=True), captures)
def test_a_capture_does_not_replace_a_progress(slot: str, capture: Capture) -> None:
    assert Progress(slot, "", 1, Lsn(0), Lsn(0), {}).key != capture.key


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b'{"kind":"x"}', b'{"kind":"progress","slot":"s"}'])
def test_anything_else_breaks_the_contract(value: bytes) -> None:
    with pytest.raises(ContractError):
        decode_progress(value)


def test_a_capture_of_an_older_writer_has_no_membership() -> None:
    capture = Capture("s", TableId("public", "t"), 1, Lsn(1), 0, "7")
    record = json.loads(capture.encode())
    del record["membership"]
    decoded = decode_progress(json.dumps(record).encode())
    assert isinstance(decoded, Capture) and decoded.membership == ""
