"""A checkpoint in parts, and a record that continues it, together say what one complete record would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared_schema.checkpoints import CHECKPOINT_PART_BYTES, CheckpointParts, complete_progress, cut_checkpoint
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, CheckpointPlace, Progress
from shared_schema.table_schema import TableId
from tests.shared_schema.test_progress import captures, offsets, schemas

MESSAGE_BYTES = 1_000_000
"""The largest message of a producer with default settings."""


@given(offsets, schemas, st.lists(captures, max_size=3), offsets, schemas)
def test_parts_and_what_followed_are_everything(
    ends: dict[str, dict[int, int]],
    known: dict[int, str],
    captured: list[Capture],
    later_ends: dict[str, dict[int, int]],
    later_known: dict[int, str],
) -> None:
    collected = CheckpointParts()
    for part in cut_checkpoint("s", 7, ends, known, captured):
        collected.add(part)
    place = CheckpointPlace(7, 1)
    record = Progress("s", "", 1, Lsn(1), Lsn(9), later_ends, schemas=later_known, checkpoint=place)
    parts = collected.find(place)
    assert parts is not None and parts is collected.find(place)
    whole = complete_progress(record, parts)
    for topic in ends.keys() | later_ends.keys():
        expected = ends.get(topic, {}) | later_ends.get(topic, {})
        assert whole.end_offsets.get(topic, {}) == expected
    assert whole.schemas == known | later_known and whole.checkpoint is None
    assert {c.table for c in whole.captures} == {c.table for c in captured}


def test_many_tables_are_cut_into_parts_that_fit() -> None:
    tables = [TableId("a_schema_with_a_name", f"{'a_table_with_a_long_name' * 2}_{i}") for i in range(13_500)]
    ends = {f"trickle.{table}": {partition: 2**50 for partition in range(3)} for table in tables}
    captured = [Capture("slot", table, 10**9 + i, Lsn(2**60), 10**9, "123456,234567", "0123456789abcdef")
                for i, table in enumerate(tables)]  # fmt: skip
    parts = cut_checkpoint("slot", 5, ends, dict.fromkeys(range(10**9, 10**9 + 13_500), "0123456789abcdef"), captured)
    assert max(len(part.encode()) for part in parts) < 2 * CHECKPOINT_PART_BYTES < MESSAGE_BYTES
    assert {part.parts for part in parts} == {len(parts)}
    record = Progress("slot", "", 1, Lsn(1), Lsn(9), {}, checkpoint=CheckpointPlace(5, len(parts)))
    whole = complete_progress(record, parts)
    assert whole.end_offsets == ends and len(whole.captures) == len(whole.schemas) == 13_500


def test_a_checkpoint_of_which_a_part_is_missing_is_not_one() -> None:
    ends = {f"t{i}": {0: i} for i in range(20_000)}
    first, second = (cut_checkpoint("s", offset, ends, {}, ()) for offset in (1, 2))
    assert len(first) > 1
    collected = CheckpointParts()
    for part in (*first[:-1], *second):
        collected.add(part)
    assert collected.find(CheckpointPlace(1, len(first))) is None
    assert collected.find(CheckpointPlace(2, len(second))) is not None
    collected.add(first[-1])
    assert collected.find(CheckpointPlace(1, len(first))) is None
