"""Ticks with real topics: nothing that a broker does holds a tick, and a topic that fell behind misses nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from applier.sinks.delta import MemoryDelta
from applier.sinks.kafka.publisher import TopicPublisher
from applier.zset import WEIGHT
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from tests.applier.runtime.conftest import FEW, Ticks, change, create
from tests.applier.sinks.kafka.test_publisher import Topics
from tests.fixtures.kafka import KafkaBroker


def assert_topic_holds(ticks: Ticks, topics: Topics) -> None:
    [few] = ticks.tables.planned.values()
    expected = Counter(ticks.lab.connection.execute("TABLE few").fetchall())
    assert topics.replay(few).rows == expected


def test_a_full_result_while_the_topic_is_behind(make_ticks: Callable[..., Ticks], kafka: KafkaBroker) -> None:
    """What came before it was not queued, and can no longer be computed: the topic is given all rows."""
    topics = Topics(kafka)
    ticks = make_ticks(topics.open)
    downstream = ticks.writer.downstream
    create(ticks, few=FEW)
    ticks.lab.step()
    ticks.run()
    ticks.topics.publish()
    assert_topic_holds(ticks, topics)
    limit, downstream._max_rows = downstream._max_rows, lambda: 0
    for _ in range(2):
        change(ticks)
        ticks.run()
    # Delta has the second one, so nobody holds it any more.
    assert ticks.delta_sink.flush() == []
    ticks.lab.connection.execute("SELECT pgtrickle.reinitialize_stream_table('few')")
    change(ticks)
    ticks.run()
    assert ticks.lab.differences("few", FEW) == 0
    # Only now the topic has its first delta.
    ticks.topics.publish()
    downstream._max_rows = limit
    change(ticks)
    ticks.run()
    ticks.topics.publish()
    assert_topic_holds(ticks, topics)
    assert ticks.delta_sink.flush() == []
    ticks.assert_all_closed()


def test_a_repair_does_not_wait_for_its_topic(
    make_ticks: Callable[..., Ticks], kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics(kafka)
    ticks = make_ticks(topics.open)
    downstream = ticks.writer.downstream
    create(ticks, few=FEW)
    ticks.lab.step()
    ticks.run()
    ticks.topics.publish()
    [few] = ticks.tables.planned.values()
    rows = pa.table({"c0": pa.array(range(3_000), pa.int32()), "c1": pa.array([1] * 3_000, pa.int64())})
    lengthy = MemoryDelta(
        LsnRange(Lsn(ticks.lab.now.value - 1), ticks.lab.now),
        rows.append_column(WEIGHT, pa.array([1] * 3_000, pa.int64())),
    )
    real = TopicPublisher._send_row

    def send_slowly(*arguments: Any) -> None:
        time.sleep(0.01)
        real(*arguments)

    monkeypatch.setattr(TopicPublisher, "_send_row", send_slowly)
    monkeypatch.setattr(TopicPublisher, "frontier", lambda *_: ORIGIN)
    downstream.add(few, lengthy)
    downstream.wake()
    publishing = threading.Thread(target=ticks.topics.publish)
    publishing.start()
    while few.id not in ticks.topics._publishing:
        time.sleep(0.01)
    connection = ticks.lab.connection
    connection.execute("UPDATE pgtrickle.pgt_stream_tables SET sinks_differ_since = now()")
    connection.execute("SELECT pgtrickle.reinitialize_stream_table('few')")
    change(ticks)
    began = time.monotonic()
    ticks.run()
    assert time.monotonic() - began < 15 and ticks.lab.differences("few", FEW) == 0
    publishing.join()
    monkeypatch.undo()
    ticks.topics.publish()
    assert_topic_holds(ticks, topics)
