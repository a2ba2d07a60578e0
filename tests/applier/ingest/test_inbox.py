"""For any batching and interleaving of messages, the inbox releases the same complete rows, once and in order."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.ingest.inbox import Inbox, Lost, Skipped
from applier.trace.align import LSN, SEQ
from applier.trace.stamped_rows import Chunk, Run, StampedRow
from applier.zset import WEIGHT
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.pg_types import PgType
from shared_schema.progress import Capture, Checkpoint, CheckpointPlace, ComparedRange, Progress, decode_progress
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

INT = PgType(23, -1, "int4", "integer")
PROGRESS = ("t.progress", 0)


def schema(name: str) -> TableSchema:
    return TableSchema(TableId("public", name), 1, (Column("x", INT),), (), ReplicaIdentity.FULL)


def arrival(table: str, lsn: int, seq: int) -> StampedRow:
    return StampedRow(ChangeRow(Op.INSERT, Stamp(Lsn(lsn), seq), 1, 0, (seq,)), schema(table))


def chunk(arrivals: list[StampedRow]) -> Chunk:
    rows = [a.row for a in arrivals]
    columns = {
        "c0": pa.array([r.stamp.seq for r in rows], pa.int32()),
        WEIGHT: pa.array([1] * len(rows), pa.int64()),
        LSN: pa.array([r.stamp.lsn.value for r in rows], pa.int64()),
        SEQ: pa.array([r.stamp.seq for r in rows], pa.int64()),
    }
    return Chunk(pa.table(columns), arrivals[0].schema)


def stamps(runs: list[Run]) -> list[Stamp]:
    found = []
    for run in runs:
        if isinstance(run, Chunk):
            pairs = zip(run.rows[LSN].to_pylist(), run.rows[SEQ].to_pylist(), strict=True)
            found += [Stamp(Lsn(lsn), seq) for lsn, seq in pairs]
        else:
            found += [a.row.stamp for a in run]
    return found


def progress(frontier: int, **ends: int) -> Progress:
    return Progress("s", "sys", 1, ORIGIN, Lsn(frontier), {f"t.public.{t}": {0: end} for t, end in ends.items()})


def at(table: str) -> tuple[str, int]:
    return f"t.public.{table}", 0


def test_a_progress_record_alone_is_not_enough() -> None:
    inbox = Inbox()
    inbox.add_record(PROGRESS, 0, progress(10, a=2))
    inbox.add_row(at("a"), 0, arrival("a", 5, 0))
    assert inbox.advance() == ORIGIN
    inbox.add_row(at("a"), 1, arrival("a", 5, 1))
    assert inbox.advance() == Lsn(10)
    assert [stamp.seq for stamp in stamps(inbox.take(inbox.frontier)[TableId("public", "a")])] == [0, 1]


def test_rows_of_an_unfinished_commit_stay() -> None:
    inbox = Inbox()
    inbox.add_row(at("a"), 0, arrival("a", 5, 0))
    inbox.add_row(at("a"), 1, arrival("a", 12, 0))
    inbox.add_record(PROGRESS, 0, progress(10, a=1))
    inbox.advance()
    assert [stamp.lsn.value for stamp in stamps(inbox.take(inbox.frontier)[TableId("public", "a")])] == [5]
    inbox.add_record(PROGRESS, 1, progress(20, a=2))
    inbox.advance()
    assert [stamp.lsn.value for stamp in stamps(inbox.take(inbox.frontier)[TableId("public", "a")])] == [12]


def test_rows_are_taken_up_to_the_frontier_whose_captures_are_known() -> None:
    """Between looking at the captures and taking rows, the frontier may move past the capture of another table."""
    inbox = Inbox()
    inbox.add_row(at("a"), 0, arrival("a", 5, 0))
    inbox.add_record(PROGRESS, 0, progress(10, a=1))
    until = inbox.advance()
    inbox.add_row(at("b"), 0, arrival("b", 12, 0))
    inbox.add_record(PROGRESS, 1, progress(20, a=1, b=1))
    assert not inbox.has_room(-1) and inbox.frontier == Lsn(20)
    assert inbox.take(until).keys() == {TableId("public", "a")}
    assert inbox.take(inbox.advance()).keys() == {TableId("public", "b")}


def test_a_commit_that_starts_at_the_frontier_is_not_before_it() -> None:
    inbox = Inbox()
    inbox.add_row(at("a"), 0, arrival("a", 10, 0))
    inbox.add_record(PROGRESS, 0, progress(10, a=0))
    inbox.advance()
    assert inbox.take(inbox.frontier) == {}


def test_a_restart_skips_rows_that_the_traces_hold() -> None:
    inbox = Inbox(Lsn(10), {"t.public.a": {0: 4}})
    inbox.add_row(at("a"), 4, arrival("a", 9, 0))
    inbox.add_row(at("a"), 5, arrival("a", 10, 0))
    inbox.add_record(PROGRESS, 0, progress(10, a=4))
    inbox.add_record(PROGRESS, 1, progress(11, a=6))
    assert inbox.advance() == Lsn(11)
    assert [stamp.lsn.value for stamp in stamps(inbox.take(inbox.frontier)[TableId("public", "a")])] == [10]


def test_an_old_progress_record_needs_no_offsets() -> None:
    inbox = Inbox(Lsn(10), {})
    inbox.add_record(PROGRESS, 0, progress(8, a=100))
    inbox.add_record(PROGRESS, 1, progress(11))
    assert inbox.advance() == Lsn(11)


def test_a_record_counts_with_what_its_checkpoint_names() -> None:
    inbox, place = Inbox(), CheckpointPlace(3, 2)
    for part, ends in enumerate(({"t.public.a": {0: 2}}, {"t.public.b": {0: 1}})):
        captured = (Capture("s", TableId("public", "ab"[part]), 7, Lsn(3), 0),)
        inbox.add_record(PROGRESS, 3 + part, Checkpoint("s", 3, part, 2, ends, {}, captured))
    inbox.add_record(PROGRESS, 5, replace(progress(10, c=1), checkpoint=place))
    for table, offset in (("c", 0), ("a", 0), ("b", 0)):
        inbox.add_row(at(table), offset, arrival(table, 5, offset))
        assert inbox.advance() == ORIGIN
    inbox.add_row(at("a"), 1, arrival("a", 5, 1))
    assert inbox.advance() == Lsn(10)
    inbox.add_record(PROGRESS, 6, replace(progress(20, c=2), checkpoint=place))
    assert inbox.advance() == Lsn(10)
    inbox.add_row(at("c"), 1, arrival("c", 15, 0))
    assert inbox.advance() == Lsn(20)
    assert set(inbox.captures) == {TableId("public", "a"), TableId("public", "b")}


def test_a_record_whose_checkpoint_was_compacted_is_dropped() -> None:
    """Its own partitions are read, but nobody knows which others it means; a newer record says it."""
    inbox = Inbox()
    inbox.add_record(PROGRESS, 4, Checkpoint("s", 3, 1, 2, {}, {}, ()))
    inbox.add_record(PROGRESS, 5, replace(progress(10), checkpoint=CheckpointPlace(3, 2)))
    assert inbox.advance() == ORIGIN
    inbox.add_record(PROGRESS, 6, Checkpoint("s", 6, 0, 1, {"t.public.a": {0: 1}}, {}, ()))
    inbox.add_record(PROGRESS, 7, replace(progress(20), checkpoint=CheckpointPlace(6, 1)))
    assert inbox.advance() == ORIGIN
    inbox.add_row(at("a"), 0, arrival("a", 5, 0))
    assert inbox.advance() == Lsn(20)


def test_captures_are_remembered() -> None:
    inbox = Inbox()
    capture = Capture("s", TableId("public", "a"), 7, Lsn(3), 0)
    inbox.add_record(PROGRESS, 0, capture)
    assert inbox.captures == {capture.table: capture}


@given(data=st.data())
def test_any_batching_gives_the_same_rows_in_order(data: st.DataObject) -> None:
    """Kafka guarantees the order inside a partition only."""
    commits = data.draw(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3), min_size=1, max_size=6))
    queues: dict[str, list[tuple[int, StampedRow]]] = {"a": [], "b": []}
    records: list[Progress] = []
    for number, tables in enumerate(commits):
        lsn = 10 * (number + 1)
        for seq, table in enumerate(tables):
            queues[table].append((len(queues[table]), arrival(table, lsn, seq)))
        records.append(progress(lsn + 5, **{t: len(queues[t]) for t in set(tables)}))
    pending: dict[str, list[object]] = {"a": list(queues["a"]), "b": list(queues["b"]), "progress": list(records)}
    inbox = Inbox()
    got: dict[str, list[Stamp]] = {"a": [], "b": []}
    position = 0
    while any(pending.values()):
        source = data.draw(st.sampled_from([name for name, left in pending.items() if left]))
        item = pending[source].pop(0)
        if isinstance(item, Progress):
            inbox.add_record(PROGRESS, position, item)
            position += 1
        elif isinstance(item, tuple):
            offset, row = item
            for _ in range(data.draw(st.integers(1, 2))):  # a message may be delivered twice
                if data.draw(st.booleans()):
                    inbox.add_row(at(source), offset, row)
                else:
                    following = pending[source][: data.draw(st.integers(0, 4))]
                    some = [item, *(one for one in following if isinstance(one, tuple))]
                    del pending[source][: len(some) - 1]
                    inbox.add_chunk(at(source), np.array([number for number, _ in some]), chunk([a for _, a in some]))
        if data.draw(st.booleans()):
            frontier = inbox.advance()
            for relation, runs in inbox.take(inbox.frontier).items():
                assert all(stamp.lsn < frontier for stamp in stamps(runs))
                got[relation.name] += stamps(runs)
    inbox.advance()
    for relation, runs in inbox.take(inbox.frontier).items():
        got[relation.name] += stamps(runs)
    assert got == {t: [a.row.stamp for _, a in queue] for t, queue in queues.items()}


def test_restart_offsets_point_at_the_first_row_not_yet_durable() -> None:
    inbox = Inbox()
    for offset, lsn in enumerate([5, 5, 8, 12, 12]):
        inbox.add_row(at("a"), offset, arrival("a", lsn, offset))
    inbox.add_record(PROGRESS, 7, progress(20, a=5))
    assert inbox.restart_offsets(Lsn(8)) == {"t.public.a": {0: 2}}
    assert inbox.restart_offsets(Lsn(9)) == {"t.public.a": {0: 3}}
    assert inbox.restart_offsets(Lsn(100)) == {"t.public.a": {0: 5}}
    many = Inbox()
    rows = [arrival("a", lsn, offset) for offset, lsn in enumerate([5, 5, 8, 12, 12])]
    many.add_chunk(at("a"), np.arange(5), chunk(rows))
    assert many.restart_offsets(Lsn(8)) == {"t.public.a": {0: 2}}
    assert many.restart_offsets(Lsn(9)) == {"t.public.a": {0: 3}}
    assert many.restart_offsets(Lsn(100)) == {"t.public.a": {0: 5}}


def emptied(table: str, lsn: int) -> StampedRow:
    return StampedRow(ChangeRow(Op.TRUNCATE, Stamp(Lsn(lsn), 0), 1, 0, None), schema(table))


def test_the_next_capture_replaces_rows_deleted_unread() -> None:
    a = TableId("public", "a")
    inbox = Inbox(Lsn(10), {"t.public.a": {0: 1}})
    # Offsets 1 to 4, of commits before 30, are deleted; the table was captured again at 39.
    inbox.skip(Skipped(at("a"), a, first=5, until=Lsn(39)))
    inbox.add_row(at("a"), 5, arrival("a", 33, 0))
    inbox.add_chunk(at("a"), np.array([6]), chunk([arrival("a", 35, 0)]))
    inbox.add_record(PROGRESS, 0, progress(30, a=4))
    inbox.add_record(PROGRESS, 1, progress(39, a=7))
    # The rows up to there have gaps, even if they look complete.
    assert inbox.advance() == Lsn(10)
    inbox.add_row(at("a"), 7, emptied("a", 39))
    inbox.add_row(at("a"), 8, arrival("a", 39, 1))
    inbox.add_record(PROGRESS, 2, progress(40, a=9))
    assert inbox.advance() == Lsn(40)
    assert inbox.gaps == {a: Lsn(39)}
    assert stamps(inbox.take(inbox.frontier)[a]) == [Stamp(Lsn(39), 0), Stamp(Lsn(39), 1)]


def test_an_incomplete_capture_replaces_nothing() -> None:
    """That concerns its relation alone: the others go on."""
    inbox = Inbox(Lsn(10), {"t.public.a": {0: 1}})
    inbox.skip(Skipped(at("a"), TableId("public", "a"), first=8, until=Lsn(39)))
    inbox.add_row(at("a"), 8, arrival("a", 39, 1))
    inbox.add_row(at("b"), 0, arrival("b", 39, 2))
    inbox.add_record(PROGRESS, 2, progress(40, a=9, b=1))
    assert inbox.advance() == Lsn(40)
    [lost] = inbox.unreadable()
    assert (lost.table, lost.since) == (TableId("public", "a"), Lsn(39)) and "t.public.a was deleted" in lost.problem
    assert stamps(inbox.take(inbox.frontier)[TableId("public", "b")]) == [Stamp(Lsn(39), 2)]


def test_rows_deleted_unread_without_a_later_capture() -> None:
    inbox, table = Inbox(Lsn(10), {"t.public.a": {0: 1}}), TableId("public", "a")
    inbox.lose(Lost(at("a"), table, first=4, problem="why"))
    inbox.add_row(at("a"), 4, arrival("a", 20, 0))
    inbox.add_record(PROGRESS, 2, progress(21, a=5))
    assert inbox.advance() == Lsn(21)
    assert [(one.table, one.since, one.problem) for one in inbox.unreadable()] == [(table, Lsn(10), "why")]


def test_a_message_that_cannot_be_decoded_holds_nobody_back() -> None:
    inbox = Inbox(Lsn(5))
    inbox.add_row(at("a"), 0, arrival("a", 7, 0))
    inbox.add_unreadable(at("a"), 1, TableId("public", "a"), "why")
    inbox.add_row(at("a"), 2, arrival("a", 9, 0))
    # Nothing before it in its partition: its commit may be any since the frontier.
    inbox.add_unreadable(at("b"), 0, TableId("public", "b"), "why not")
    inbox.add_unreadable(at("b"), 1, TableId("public", "b"), "again")
    inbox.add_record(PROGRESS, 0, progress(10, a=3, b=2))
    assert inbox.advance() == Lsn(10) and len(stamps(inbox.take(inbox.frontier)[TableId("public", "a")])) == 2
    lost = {one.table.name: one for one in inbox.unreadable()}
    assert (lost["a"].since, lost["a"].problem) == (Lsn(7), "why")
    assert (lost["b"].since, lost["b"].problem) == (Lsn(5), "why not")
    inbox.forget_unreadable(lost["a"])
    assert [one.table.name for one in inbox.unreadable()] == ["b"]


def test_many_messages_that_cannot_be_decoded_after_many_commits() -> None:
    """The inbox is locked meanwhile, and a tick waits for it."""
    inbox, table = Inbox(), TableId("public", "a")
    for number in range(20_000):
        inbox.add_row(at("a"), number, arrival("a", number + 1, 0))
    began = time.monotonic()
    for number in range(5_000):
        inbox.add_unreadable(at("a"), 20_000 + number, table, "why")
    assert time.monotonic() - began < 2
    assert [one.since for one in inbox.unreadable()] == [Lsn(20_000)]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_restart_begins_before_every_row_it_needs_in_whatever_order_they_came(lsns: list[int], order: Random) -> None:
    """Rows of one micro-batch are added in chunks first, so not in the order of their offsets."""
    inbox, rows = Inbox(), list(enumerate(sorted(lsns)))
    order.shuffle(rows)
    for offset, lsn in rows:
        inbox.add_row(at("a"), offset, arrival("a", lsn, offset))
    for frontier in range(1, 10):
        needed = [offset for offset, lsn in rows if lsn >= frontier]
        # Checkpoints move forward only; what a later one needs is not before what an earlier one does.
        assert inbox.restart_offsets(Lsn(frontier))["t.public.a"][0] == min(needed, default=len(rows))


def test_there_is_room_unless_a_tick_can_take_rows() -> None:
    inbox = Inbox()
    inbox.add_row(at("a"), 0, arrival("a", 5, 0))
    inbox.count_bytes(100)
    assert inbox.has_room(100)
    # All of it is one unfinished commit: only with more of it the commit ends.
    assert inbox.has_room(99)
    inbox.add_record(PROGRESS, 0, progress(10, a=1))
    assert not inbox.has_room(99) and inbox.has_room(100)
    inbox.take(inbox.frontier)
    assert inbox.has_room(0)


def compared(frontier: int, *compared_range: int, slot_at: int = 1, server: str = "1", **ends: int) -> Progress:
    """A record whose writer compared from one position until another; without them its writer does not compare."""
    since_until = ComparedRange(*map(Lsn, compared_range)) if compared_range else None
    offsets = {f"t.public.{name}": {0: end} for name, end in ends.items()}
    return Progress("s", server, 1, Lsn(slot_at), Lsn(frontier), offsets, compared=since_until)


def shown(*records: Progress, inbox: Inbox | None = None) -> list[int]:
    """Return the frontier after each record."""
    inbox, frontiers = inbox or Inbox(sources_elsewhere=True), []
    for offset, record in enumerate(records):
        inbox.add_record(PROGRESS, offset, decode_progress(record.encode()))
        frontiers.append(inbox.advance().value)
    return frontiers


def test_frontiers_of_sources_elsewhere_wait_for_the_comparison() -> None:
    """None is shown before its position was compared, and none between a difference and the copy that ends it."""
    records = [
        compared(10, 5, 9),
        compared(12, 5, 11),
        compared(20, 5, 11),
        # Something differed since 11. What was written because of it is before 25.
        compared(22, 25, 24),
        compared(30, 25, 28),
        compared(30, 25, 40),
        compared(41, 25, 44),
    ]
    assert shown(*records) == [0, 10, 10, 10, 10, 30, 41]
    assert shown(*records, inbox=Inbox()) == [10, 12, 20, 22, 30, 30, 41], "who sees the catalog does not wait"


def test_a_start_of_the_consumer_shows_nothing_that_it_did_not_compare() -> None:
    records = [compared(10, 5, 12), compared(14, 5, 12), compared(15, 0, 0), compared(16, 24, 20), compared(30, 24, 31)]
    assert shown(*records) == [10, 10, 10, 10, 30]


def test_an_earlier_range_counts_for_rows_that_come_later() -> None:
    inbox = Inbox(sources_elsewhere=True)
    assert shown(compared(10, 5, 11, a=1), compared(30, 25, 40, a=2), inbox=inbox) == [0, 0]
    inbox.mark_read(at("a"), 0)
    assert inbox.advance() == Lsn(10)
    inbox.mark_read(at("a"), 1)
    assert inbox.advance() == Lsn(30)


@pytest.mark.parametrize(
    ("records", "frontiers"),
    [
        ([compared(10), compared(12)], [10, 12]),
        # A consumer that compares is replaced by an older one.
        ([compared(10, 5, 9), compared(12)], [0, 12]),
        # The other way round.
        ([compared(10), compared(12, 0, 0), compared(20, 16, 22)], [10, 10, 20]),
        # A new slot, whose first range reaches back to before what the last one had said.
        ([compared(39, 5, 9), compared(45, 38, 40, slot_at=2), compared(45, 38, 46, slot_at=2)], [0, 0, 45]),
        # Another server, with lower positions.
        ([compared(900, 5, 9), compared(12, 0, 0, server="2"), compared(12, 8, 20, server="2")], [0, 0, 12]),
    ],
)
def test_no_writer_leaves_a_frontier_that_holds_the_next_ones(records: list[Progress], frontiers: list[int]) -> None:
    assert shown(*records) == frontiers


def test_a_start_of_the_applier_waits_for_nothing_that_it_showed() -> None:
    inbox = Inbox(Lsn(20), sources_elsewhere=True)
    assert shown(compared(20, 5, 19), compared(22, 5, 19), inbox=inbox) == [20, 20]
    assert inbox.progress is not None and inbox.progress.frontier == Lsn(20)
