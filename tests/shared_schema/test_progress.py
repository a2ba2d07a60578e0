"""Records of the progress topic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.errors import ContractError
from shared_schema.lsn import LSN_MAX, Lsn
from shared_schema.progress import (
    Capture,
    Checkpoint,
    CheckpointPlace,
    ComparedRange,
    LastCommit,
    Progress,
    ProgressRecord,
    UnfinishedCopies,
    decode_progress,
)
from shared_schema.table_schema import TableId

positions = st.integers(0, LSN_MAX).map(Lsn)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
tables = st.builds(TableId, names, names)
offsets = st.dictionaries(names, st.dictionaries(st.integers(0, 99), st.integers(0, 2**60), max_size=3), max_size=3)
commits = st.builds(LastCommit, positions, st.integers(0, 2**32), st.integers(), st.lists(names, max_size=2).map(tuple))
captures = st.builds(Capture, names, tables, st.integers(1, 2**32 - 1), positions, st.integers(0), names)
schemas = st.dictionaries(st.integers(1, 2**32 - 1), names, max_size=3)
several = st.lists(captures, max_size=2).map(tuple)
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
    schemas=schemas,
    unfinished=st.one_of(
        st.none(), st.builds(UnfinishedCopies, positions, st.lists(tables, min_size=1, max_size=2).map(tuple))
    ),
    checkpoint=st.one_of(st.none(), st.builds(CheckpointPlace, st.integers(0, 2**60), st.integers(1, 99))),
    captures=several,
    compared=st.one_of(st.none(), st.builds(ComparedRange, positions, positions)),
)
numbers = st.integers(0, 99)
checkpoints = st.builds(Checkpoint, names, st.integers(0, 2**60), numbers, numbers, offsets, schemas, several)


@given(st.one_of(progresses, captures, checkpoints))
def test_round_trip(record: ProgressRecord) -> None:
    assert decode_progress(record.encode()) == record


def test_what_was_compared() -> None:
    record = Progress("s", "", 1, Lsn(0), Lsn(7), {}, compared=ComparedRange(Lsn(5), Lsn(9)))
    fields = json.loads(record.encode())
    assert fields.pop("compared") == ["0/5", "0/9"]
    older = decode_progress(json.dumps(fields).encode())
    assert isinstance(older, Progress) and older.compared is None, "a consumer that does not compare"
    for broken in ([], ["0/5"], ["0/5", 9], ["0/5", "0/7", "0/9"], {"since": "0/5"}, 7):
        with pytest.raises(ContractError):
            decode_progress(json.dumps({**fields, "compared": broken}).encode())


@given(checkpoints, checkpoints, captures)
def test_a_part_replaces_the_same_part_and_nothing_else(a: Checkpoint, b: Checkpoint, capture: Capture) -> None:
    assert (a.key == b.key) == ((a.slot, a.part) == (b.slot, b.part))
    assert a.key not in (capture.key, Progress("s", "", 1, Lsn(0), Lsn(0), {}).key)


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
