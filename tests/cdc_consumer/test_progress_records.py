"""Progress records stay small however many tables there are, and say with their checkpoint exactly what was written."""

from __future__ import annotations

import random
from typing import Any, cast

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.progress_records import CHECKPOINT_RECORDS, ProgressRecords
from cdc_consumer.resume import StartingPoint
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Delivered
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.wal.session import ServerIdentity
from shared_schema.checkpoints import CheckpointParts, complete_progress
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Checkpoint, Offsets, Progress
from shared_schema.settings import load_settings
from shared_schema.table_schema import TableId

TABLES = 13_500
LARGEST_RECORD = 200_000
"""Bytes; before, a record with so many tables was larger than Kafka accepts."""


class NoExport:
    """Captures in which every relation is captured and no export runs."""

    unfinished = None

    def is_captured(self, relid: int) -> bool:
        return True


def settings() -> ConsumerSettings:
    return load_settings(ConsumerSettings, database_url="postgresql://h/db", kafka_bootstrap="h:1")


def records(stored: Progress | None, tables: CapturedTables) -> ProgressRecords:
    start = Lsn(100)
    point = StartingPoint(ServerIdentity("1", 1, start), start, start, start)
    captures = cast(Any, NoExport())
    return ProgressRecords(
        settings(), point, stored, SchemaVersions({}, lambda _: None), captures=captures, tables=tables
    )


def topic(number: int) -> str:
    return f"trickle.public.a_table_with_a_name_{number}"


class Reader:
    """Reads checkpoints and progress records in the order of the topic."""

    def __init__(self) -> None:
        self._parts = CheckpointParts()

    def read(self, checkpoint: list[Checkpoint], progress: Progress) -> Progress:
        for part in checkpoint:
            self._parts.add(part)
        assert progress.checkpoint is not None
        parts = self._parts.find(progress.checkpoint)
        assert parts is not None
        return complete_progress(progress, parts)


def test_records_of_many_tables_are_small_and_exact() -> None:
    pick, reader, ends, written = random.Random(3), Reader(), Offsets(), 0
    tables = CapturedTables({}, Metrics(Health()))
    made, offset = records(None, tables), 0
    for number in range(3_000):
        # First every table once, as in a first load, then a few of them in each transaction.
        few = range(number * 10, number * 10 + 10) if number < TABLES // 10 else pick.choices(range(TABLES), k=10)
        new: Offsets = {topic(n): {0: number + 1} for n in few}
        ends |= new
        captured = tuple(Capture("pg_trickle", TableId("public", f"t{n}"), n + 1, Lsn(1), 0) for n in few)
        captured = captured if number < TABLES // 10 else ()
        offset += 2
        checkpoint, progress = made.build(
            Lsn(200 + number), Lsn(200 + number), Delivered(new, 0, offset), captured=captured, last=None, part=None
        )
        for capture in captured:
            tables.add(capture)
        sizes = [*(len(part.encode()) for part in checkpoint), len(progress.encode())]
        assert max(sizes) < 3 * LARGEST_RECORD and sizes[-1] < LARGEST_RECORD
        written += sum(sizes)
        if number % 100 == 0 or number > 2_990:
            whole = reader.read(checkpoint, progress)
            assert whole.end_offsets == ends and len(whole.captures) == len(tables.recorded)
        else:
            for part in checkpoint:
                reader._parts.add(part)
    # Naming every table each time would be some 3 000 times 740 kB.
    assert written / 3_000 < 150_000


def test_a_long_capture_is_not_repeated_in_every_record() -> None:
    """One new leaf among thousands: each record named all of them until the next checkpoint."""
    tables, reader = CapturedTables({}, Metrics(Health())), Reader()
    made, sizes = records(None, tables), []
    leaves = {leaf: Lsn(leaf) for leaf in range(10_000, 14_000)}
    wide = Capture("pg_trickle", TableId("public", "wide"), 7, Lsn(1), 0, leaves=leaves)
    for number in range(6):
        captured = (wide,) if number == 2 else ()
        delivered = Delivered({topic(1): {0: number}}, 0, 2 * number)
        checkpoint, progress = made.build(Lsn(200), Lsn(200), delivered, captured=captured, last=None, part=None)
        for capture in captured:
            tables.add(capture)
        sizes.append(len(progress.encode()))
        last = reader.read(checkpoint, progress)
    assert last.captures == (wide,) and max(sizes) < 10_000, sizes


def test_a_restart_goes_on_with_what_was_stored() -> None:
    stored = Progress("pg_trickle", "1", 1, Lsn(100), Lsn(100), {topic(1): {0: 5}}, schemas={7: "ab"})
    captured = Capture("pg_trickle", TableId("public", "t"), 7, Lsn(1), 0)
    tables = CapturedTables({captured.table: captured}, Metrics(Health()))
    made, reader = records(stored, tables), Reader()
    last = None
    for number in range(2 * CHECKPOINT_RECORDS + 2):
        new: Offsets = {topic(2): {0: number}}
        checkpoint, progress = made.build(
            Lsn(200), Lsn(200), Delivered(new, 0, 10 * number), captured=(), last=None, part=None
        )
        assert (number % CHECKPOINT_RECORDS == 0) == bool(checkpoint)
        last = reader.read(checkpoint, progress)
    assert last is not None and last.end_offsets == {topic(1): {0: 5}, topic(2): {0: 2 * CHECKPOINT_RECORDS + 1}}
    assert last.schemas == {7: "ab"} and last.captures == (captured,)


def test_a_sink_without_topics_gets_complete_records() -> None:
    captured = Capture("pg_trickle", TableId("public", "t"), 7, Lsn(1), 0)
    stored = Progress("pg_trickle", "1", 1, Lsn(100), Lsn(100), {}, schemas={7: "ab"})
    made = records(stored, CapturedTables({captured.table: captured}, Metrics(Health())))
    checkpoint, progress = made.build(Lsn(200), Lsn(200), Delivered(), captured=(captured,), last=None, part=None)
    assert not checkpoint and progress.checkpoint is None
    assert progress.schemas == {7: "ab"} and progress.captures == ()
