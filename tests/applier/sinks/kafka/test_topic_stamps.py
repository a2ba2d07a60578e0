"""What is on a publication topic: no stamp twice, also when another stream table takes the name; nothing expires."""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from applier.sinks.kafka.publisher import TopicPublisher
from shared_schema.lsn import ORIGIN, Lsn
from tests.applier.sinks.kafka.test_change_rows import SINCE, delta, stream_table
from tests.fixtures.kafka import KafkaBroker
from tests.oracle import TopicReplay


def publisher(kafka: KafkaBroker, prefix: str) -> TopicPublisher:
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap}
    return TopicPublisher(prefix, client, transactional_id=prefix, replication_factor=1)


def retention(kafka: KafkaBroker, topic: str) -> set[str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = admin.describe_configs([resource])[resource].result(20)
    return {found[name].value for name in ("retention.ms", "retention.bytes")}


def test_a_rebuilt_stream_table_repeats_no_stamp(kafka: KafkaBroker, topic_prefix: str) -> None:
    """It takes the name at the frontier of the old one: a reader that drops known stamps must lose no row."""
    old = stream_table((0,))
    new = replace(old, id=2)
    sink = publisher(kafka, topic_prefix)
    sink.publish([(old, replace(delta({}, ORIGIN), lsn_range=replace(delta({}).lsn_range, lower=ORIGIN, upper=SINCE)))])
    sink.publish([(old, delta({(1, "x"): 1, (2, "y"): 1, (3, "z"): 1}))])
    assert sink.frontier(old) == Lsn(20)
    # After a restart, too.
    sink = publisher(kafka, topic_prefix)
    sink.publish([(new, delta({(1, "x"): 1, (2, "y"): 1}, ORIGIN))])
    replay = TopicReplay(kafka.bootstrap, f"{topic_prefix}.public.st", f"{topic_prefix}.schemas")
    assert replay.catch_up() == {(1, "x"): 1, (2, "y"): 1}
    assert len(replay.stamps) == len(set(replay.stamps)) == 6


def test_a_topic_keeps_its_rows(kafka: KafkaBroker, topic_prefix: str) -> None:
    """The copy of a stream table is on its topic; a topic of an earlier version has the broker's retention."""
    topic = f"{topic_prefix}.public.st"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    assert "604800000" in retention(kafka, topic)
    publisher(kafka, topic_prefix).publish([(stream_table((0,)), delta({(1, "x"): 1}, ORIGIN))])
    publisher(kafka, topic_prefix)
    assert retention(kafka, topic) == {"-1"}
    other = replace(stream_table((0,)), id=3, table=replace(stream_table((0,)).table, name="new"))
    publisher(kafka, topic_prefix).publish([(other, delta({(1, "x"): 1}, ORIGIN))])
    assert retention(kafka, f"{topic_prefix}.public.new") == {"-1"}
