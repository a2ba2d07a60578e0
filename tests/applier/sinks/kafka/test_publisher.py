"""Deltas on a real broker: long ones in several transactions that count together, continued or begun again."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from applier.errors import AnotherApplier, Infrastructure, PublishingFailed
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan, StreamPlan
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.delta_queue import TableDelta
from applier.sinks.downstream import TOPIC, Downstream
from applier.sinks.kafka import publisher as publisher_module
from applier.sinks.kafka.publisher import PublishingStopped, TopicPublisher
from applier.zset import WEIGHT
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.progress import Capture, Progress, ProgressRecord, decode_progress
from shared_schema.table_schema import Column, TableId
from tests import oracle
from tests.fixtures.kafka import KafkaBroker

INT = PgType(23, -1, "int4", "integer")


def stream_table(number: int) -> StreamTable:
    scan = Scan(TableId("public", "t"), 1, ("a",), (Field(ValueType.of_column(INT), True),), None)
    return StreamTable(number, TableId("public", f"st{number}"), 9, (Column("a", INT),), StreamPlan(scan, ("a",)))


ONE, TWO = stream_table(1), stream_table(2)


def delta(weights: dict[int, int], old: int, new: int) -> MemoryDelta:
    rows = {"c0": pa.array(list(weights), pa.int32()), WEIGHT: pa.array(list(weights.values()), pa.int64())}
    return MemoryDelta(LsnRange(Lsn(old), Lsn(new)), pa.table(rows))


class Topics:
    """The publication topics of one test, below a prefix of their own."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.bootstrap = kafka.bootstrap
        self.prefix = f"out{uuid.uuid4().hex[:8]}"

    def open(
        self,
        options: dict[str, str | int | float | bool] | None = None,
        confirm: Callable[[], None] = lambda: None,
    ) -> TopicPublisher:
        client = {"bootstrap.servers": self.bootstrap, **(options or {})}
        return TopicPublisher(self.prefix, client, transactional_id=self.prefix, replication_factor=1, confirm=confirm)

    def replay(self, table: StreamTable) -> oracle.TopicReplay:
        topic = f"{self.prefix}.public.{table.table.name}"
        replay = oracle.TopicReplay(self.bootstrap, topic, f"{self.prefix}.schemas")
        replay.catch_up()
        assert replay.stamps == sorted(set(replay.stamps)), "a stamp is repeated or out of order"
        return replay

    def progress(self) -> list[ProgressRecord]:
        """Return all records of the progress topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "test",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(f"{self.prefix}.progress", 0, 0)])
        found: list[ProgressRecord] = []
        try:
            while (message := consumer.poll(10)) is not None:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                found.append(decode_progress(message.value() or b""))
            raise AssertionError("the broker did not answer")
        finally:
            consumer.close()


@pytest.fixture
def topics(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Topics:
    monkeypatch.setattr(publisher_module, "PUBLICATION_PART_ROWS", 4)
    monkeypatch.setattr(publisher_module, "STOP_EVERY_ROWS", 1)
    return Topics(kafka)


def after(calls: int) -> Callable[[], bool]:
    """Return a condition that becomes true with the given call."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_parts_count_with_the_frontier_of_all_deltas_up_to_it(topics: Topics) -> None:
    publisher = topics.open()
    publisher.publish([(ONE, delta(dict.fromkeys(range(10), 1), 0, 10)), (TWO, delta({1: 2}, 0, 10))])
    records = topics.progress()
    parts = [r for r in records if isinstance(r, Progress) and r.part is not None]
    assert [(r.slot, r.frontier, r.part.rows) for r in parts if r.part] == [("st-1", ORIGIN, 4), ("st-1", ORIGIN, 8)]
    assert [type(r) for r in records[2:]] == [Capture, Capture, Progress, Progress], "in one transaction"
    assert {r.frontier for r in records[4:] if isinstance(r, Progress)} == {Lsn(10)}
    assert topics.replay(ONE).rows == Counter({(i,): 1 for i in range(10)})
    # An earlier frontier is complete before a later one, whoever is queued first.
    later = [(TWO, delta({5: 6}, 10, 30)), (ONE, delta({0: -1}, 10, 20)), (ONE, delta({7: -1}, 20, 30))]
    publisher.publish(later)
    progress = [r for r in topics.progress()[6:] if isinstance(r, Progress) and r.part is None]
    assert [(r.slot, r.frontier.value) for r in progress] == [("st-1", 20), ("st-2", 30), ("st-1", 30)]
    assert topics.replay(TWO).rows == Counter({(1,): 2, (5,): 6})
    assert topics.open().frontier(ONE) == Lsn(30)


def test_several_deltas_of_one_stream_table_are_numbered_one_after_the_other(topics: Topics) -> None:
    """After a restart the delta that the topic missed and the next one are published together."""
    publisher = topics.open()
    publisher.publish([(ONE, delta({1: 1}, 0, 10))])
    publisher.publish([(ONE, delta({2: 1}, 10, 20)), (ONE, delta({3: 6}, 20, 30)), (ONE, delta({3: -1}, 30, 40))])
    replay = topics.replay(ONE)
    assert replay.last_range == (4, 39)
    assert replay.rows == Counter({(1,): 1, (2,): 1, (3,): 5})
    assert topics.open().frontier(ONE) == Lsn(40)


@pytest.mark.parametrize("old", [0, 10], ids=["fill", "change"])
def test_what_was_begun_is_continued_by_the_process_that_has_it(topics: Topics, old: int) -> None:
    publisher = topics.open()
    if old:
        publisher.publish([(ONE, delta({100: 1}, 0, 10))])
    ten = delta(dict.fromkeys(range(10), 1), old, 20)
    with pytest.raises(PublishingStopped):
        publisher.publish([(ONE, ten), (TWO, delta({1: 1}, 0, 20))], after(7))
    again = topics.open()
    again.begun = publisher.begun
    assert again.frontier(ONE) == Lsn(old), "the part does not count"
    again.publish([(ONE, ten), (TWO, delta({1: 1}, 0, 20))])
    replay = topics.replay(ONE)
    assert replay.rows == Counter({(i,): 1 for i in (*range(10), *([100] if old else []))})
    assert len(replay.stamps) == 10 + bool(old), "each row once"
    assert again.frontier(ONE) == again.frontier(TWO) == Lsn(20)


@pytest.mark.parametrize("old", [0, 10], ids=["fill", "change"])
@pytest.mark.parametrize("new", [20, 30], ids=["same position", "later position"])
def test_what_another_process_begun_is_begun_again(topics: Topics, old: int, new: int) -> None:
    publisher = topics.open()
    if old:
        publisher.publish([(ONE, delta({100: 1}, 0, 10))])
    with pytest.raises(PublishingStopped):
        publisher.publish([(ONE, delta(dict.fromkeys(range(10), 1), old, 20))], after(7))
    other = topics.open()
    assert other.frontier(ONE) == ORIGIN, "whatever is on the topic, all rows must follow"
    # Computed again, in another order.
    other.publish([(ONE, delta(dict.fromkeys(range(9, 4, -1), 1), 0, new))])
    assert topics.replay(ONE).rows == Counter({(i,): 1 for i in range(5, 10)})
    other.publish([(ONE, delta({9: -1}, new, new + 10))])
    assert topics.replay(ONE).last_range == (2, new + 9)
    assert topics.open().frontier(ONE) == Lsn(new + 10)


def test_a_stream_table_is_forgotten_while_it_is_published(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop, or a commit in doubt, does not wait for the rest of a long delta."""
    monkeypatch.setattr(publisher_module, "PUBLICATION_PART_ROWS", 1_000)
    monkeypatch.setattr(publisher_module, "STOP_EVERY_ROWS", 256)
    in_second_part, is_forgotten = threading.Event(), threading.Event()
    publish = TopicPublisher.publish

    def publish_until_forgotten(
        publisher: TopicPublisher, deltas: Sequence[TableDelta], is_stopped: Callable[[], bool]
    ) -> None:
        looks = count(1)

        def look() -> bool:
            if next(looks) == 6:
                in_second_part.set()
                assert is_forgotten.wait(30)
            return is_stopped()

        publish(publisher, deltas, look)

    monkeypatch.setattr(TopicPublisher, "publish", publish_until_forgotten)
    downstream = Downstream(topics.open, None)
    assert downstream.topics is not None
    rows = dict.fromkeys(range(10_000), 1)
    downstream.followed.follow(ONE.id)
    downstream.add(ONE, delta(rows, 0, 10))
    downstream.wake()
    publishing = threading.Thread(target=downstream.topics.publish)
    publishing.start()
    assert in_second_part.wait(30)
    assert any(isinstance(r, Progress) and r.part for r in topics.progress())
    began = time.monotonic()
    downstream.forget(ONE.id)
    is_forgotten.set()
    assert downstream.await_frontiers(ONE) == {TOPIC: ORIGIN}
    assert time.monotonic() - began < 5
    publishing.join()
    assert downstream.is_drained([ONE.id])
    downstream.add(ONE, delta({1: 1}, 10, 20))
    assert downstream.is_drained([ONE.id]), "a delta after one that was dropped would leave a gap"
    downstream.followed.follow(ONE.id)
    downstream.add(ONE, delta({1: 1}, 0, 20))
    downstream.topics.publish()
    assert not downstream.is_drained([ONE.id]), "its tick may queue more with the same frontier"
    downstream.wake()
    downstream.topics.publish()
    assert topics.replay(ONE).rows == Counter({(1,): 1})
    assert downstream.frontiers(ONE) == {TOPIC: Lsn(20)}


def test_rows_that_cannot_be_encoded_concern_their_stream_table(topics: Topics) -> None:
    publisher = topics.open()
    texts = MemoryDelta(LsnRange(ORIGIN, Lsn(10)), pa.table({"c0": ["no number"], WEIGHT: pa.array([1], pa.int64())}))
    with pytest.raises(PublishingFailed) as failed:
        publisher.publish([(TWO, delta({1: 1}, 0, 10)), (ONE, texts)])
    assert failed.value.pgt_id == ONE.id
    publisher.publish([(TWO, delta({1: 1}, 0, 10))])
    assert topics.replay(TWO).rows == Counter({(1,): 1})


TEXT = PgType(25, -1, "text", "text")


def text_table(number: int, name: str) -> StreamTable:
    scan = Scan(TableId("public", "t"), 1, ("a",), (Field(ValueType.of_column(TEXT), True),), None)
    return StreamTable(number, TableId("public", name), 9, (Column("a", TEXT),), StreamPlan(scan, ("a",)))


def text_delta(value: str) -> MemoryDelta:
    return MemoryDelta(LsnRange(ORIGIN, Lsn(10)), pa.table({"c0": [value], WEIGHT: pa.array([1], pa.int64())}))


@pytest.mark.parametrize("refused_by", ["client", "broker"])
def test_a_row_that_is_too_large_concerns_its_stream_table(topics: Topics, refused_by: str) -> None:
    limit = 100_000_000 if refused_by == "broker" else 1_000_000
    publisher = topics.open({"message.max.bytes": limit})
    large = text_table(3, "large")
    with pytest.raises(PublishingFailed, match="too large") as failed:
        publisher.publish([(TWO, delta({1: 1}, 0, 10)), (large, text_delta("x" * 20_000_000))])
    assert failed.value.pgt_id == large.id and "message.max.bytes" in failed.value.hint
    publisher.publish([(TWO, delta({1: 1}, 0, 10))])
    assert topics.replay(TWO).rows == Counter({(1,): 1})


def test_a_topic_that_cannot_be_concerns_its_stream_table(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = topics.open()
    lengthy = text_table(3, "\u8868" * 21 + "\u8868" * 10)
    with pytest.raises(PublishingFailed, match="characters long") as failed:
        publisher.publish([(TWO, delta({1: 1}, 0, 10)), (lengthy, text_delta("x"))])
    assert failed.value.pgt_id == lengthy.id
    # As a broker answers that limits what may be created.
    monkeypatch.setitem(publisher_module.KEPT, "retention.ms", "no number")
    with pytest.raises(PublishingFailed, match="refuses its topic") as failed:
        publisher.publish([(text_table(4, "refused"), text_delta("x")), (TWO, delta({1: 1}, 0, 10))])
    assert failed.value.pgt_id == 4
    monkeypatch.undo()
    publisher.publish([(TWO, delta({1: 1}, 0, 10))])
    assert topics.replay(TWO).rows == Counter({(1,): 1})


def test_ticks_do_not_wait_for_a_broker(topics: Topics) -> None:
    """While nobody knows where a topic ends, a stream table does not follow it; then it catches up."""
    is_away = True

    def open_publisher() -> TopicPublisher:
        assert threading.current_thread() is not ticks, "only the publishing thread may wait"
        if is_away:
            raise Infrastructure("the broker is away")
        return topics.open()

    downstream, ticks = Downstream(open_publisher, None), threading.current_thread()
    assert downstream.topics is not None

    def on_another_thread(run: Callable[[], object]) -> None:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    assert downstream.frontiers(ONE) == {TOPIC: ORIGIN} and downstream.topics.frontier(ONE) is None
    assert downstream.follow_from(ONE) == {}
    downstream.add(ONE, delta({1: 1}, 10, 20))
    assert not downstream.is_drained([ONE.id]) and not downstream.drain(ONE.id)
    is_away = False
    on_another_thread(downstream.topics.open)
    assert downstream.follow_from(ONE) == {TOPIC: ORIGIN}
    downstream.add(ONE, delta({1: 1}, 0, 20))
    downstream.wake()
    on_another_thread(downstream.topics.publish)
    assert topics.replay(ONE).rows == Counter({(1,): 1}) and downstream.is_drained([ONE.id])


def test_the_backlog_of_the_topics_is_bounded(topics: Topics) -> None:
    downstream = Downstream(topics.open, None, lambda: 10)
    assert downstream.topics is not None
    for table in (ONE, TWO):
        downstream.followed.follow(table.id)
    downstream.add(ONE, delta(dict.fromkeys(range(5), 1), 0, 10))
    downstream.add(ONE, delta({5: 1}, 10, 20))
    downstream.wake()
    assert downstream.followed.unfollowed_sinks(ONE.id) == []
    downstream.add(TWO, delta(dict.fromkeys(range(20), 1), 0, 20))
    downstream.wake()
    downstream.add(ONE, delta({6: 1}, 20, 30))
    assert all(downstream.followed.unfollowed_sinks(table.id) == [TOPIC] for table in (ONE, TWO))
    assert not downstream.is_drained([])
    assert downstream.follow_from(ONE) == {}, "its first delta is still queued"
    with downstream.queued(ONE.id) as queued:
        assert [each.lsn_range.upper.value for each in queued] == [10]
    downstream.topics.publish()
    assert downstream.follow_from(ONE) == {TOPIC: Lsn(10)} and downstream.follow_from(TWO) == {TOPIC: Lsn(20)}
    downstream.add(ONE, delta({5: 1, 6: 1}, 10, 30))
    downstream.wake()
    downstream.topics.publish()
    assert downstream.is_drained([]) and topics.replay(ONE).rows == Counter({(i,): 1 for i in range(7)})


def test_a_publisher_that_was_replaced_cannot_come_back(topics: Topics) -> None:
    """It fences its successor once, finds that it was replaced, and the successor fences it for good."""
    owner = "old"

    def confirm() -> None:
        if owner != "old":
            raise AnotherApplier("replaced")

    old = topics.open(confirm=confirm)
    old.publish([(ONE, delta({1: 1}, 0, 10))])
    owner = "new"
    new = topics.open()
    with pytest.raises(Infrastructure):
        old.publish([(ONE, delta({2: 1}, 10, 20))])
    with pytest.raises(AnotherApplier):
        topics.open(confirm=confirm)
    # Between the first confirmation and the fencing it was stopped.
    looks = iter(["before", "after"])

    def confirm_late() -> None:
        if next(looks) == "after":
            raise AnotherApplier("replaced")

    with pytest.raises(AnotherApplier):
        topics.open(confirm=confirm_late)
    with pytest.raises(Infrastructure):
        new.publish([(ONE, delta({2: 1}, 10, 20))])
    again = topics.open()
    again.publish([(ONE, delta({2: 1}, 10, 20))])
    with pytest.raises(Infrastructure):
        old.publish([(ONE, delta({3: 1}, 10, 30))])
    assert topics.replay(ONE).rows == Counter({(1,): 1, (2,): 1})
