"""Where reading begins on topics with deleted records: which rows are missing, which are replaced, which were none."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from applier.errors import StreamLost
from applier.ingest.inbox import Skipped
from applier.ingest.start_offsets import find_start_offsets
from applier.settings import ApplierSettings
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture, Progress
from shared_schema.table_schema import TableId
from tests.fixtures.kafka import KafkaBroker

T = TableId("public", "t")


class Written:
    """Writes the topic of one table and its progress as the consumer does: in transactions, each with its marker."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.prefix, self.topic = prefix, f"{prefix}.public.t"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        made = [NewTopic(name, 1, 1) for name in (self.topic, f"{prefix}.progress")]
        for one in self.admin.create_topics(made).values():
            one.result(30)
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": prefix})
        self.producer.init_transactions(30)
        self.settings = ApplierSettings(
            database_url="postgresql://nobody@127.0.0.1/none",  # type: ignore[arg-type]
            kafka_bootstrap=bootstrap,
            topic_prefix=prefix,
        )

    def commit(self, rows: int, *records: Progress | Capture) -> None:
        self.producer.begin_transaction()
        for _ in range(rows):
            self.producer.produce(self.topic, b"row")
        for record in records:
            self.producer.produce(f"{self.prefix}.progress", record.encode(), record.key)
        self.producer.commit_transaction(30)

    def reaches(self, frontier: int, end: int) -> Progress:
        return Progress("s", "", 1, ORIGIN, Lsn(frontier), {self.topic: {0: end}})

    def delete_all(self) -> None:
        for deleted in self.admin.delete_records([TopicPartition(self.topic, 0, OFFSET_END)]).values():
            deleted.result(30)


def test_what_was_deleted_unread_is_noticed(kafka: KafkaBroker, topic_prefix: str) -> None:
    written = Written(kafka.bootstrap, topic_prefix)
    written.commit(3, written.reaches(10, end=3))

    def begin(key_filter: int, frontier: int) -> tuple[int, list[Skipped]]:
        found = find_start_offsets(written.settings, {written.topic: {0: key_filter}}, Lsn(frontier))
        assert not found.lost
        return found.offsets[written.topic][0], found.skipped

    def lose(position: int, frontier: int) -> tuple[int, list[tuple[TableId, int]]]:
        found = find_start_offsets(written.settings, {written.topic: {0: position}}, Lsn(frontier))
        assert not found.skipped and all(f"deleted from topic {written.topic}" in lost.problem for lost in found.lost)
        return found.offsets[written.topic][0], [(lost.table, lost.first) for lost in found.lost]

    assert begin(1, 5) == (1, [])
    written.delete_all()
    # Three rows and the marker of their transaction are deleted: a reader that has the rows misses nothing.
    assert begin(3, 10) == (4, [])
    assert lose(2, 5) == (4, [(T, 4)])
    written.commit(2, written.reaches(20, end=6), Capture("s", T, 1, Lsn(19), 1))
    assert begin(2, 5) == (4, [Skipped((written.topic, 0), T, first=4, until=Lsn(19))])
    assert lose(2, 19) == (4, [(T, 4)])
    with pytest.raises(StreamLost, match=f"prefix {topic_prefix}"):
        find_start_offsets(written.settings, {"other.public.t": {0: 7}}, Lsn(5))


def test_every_partition_begins_where_it_is_needed(kafka: KafkaBroker, topic_prefix: str) -> None:
    """Positions of some partitions of some topics are known; the others are read from what Kafka still has."""
    written = Written(kafka.bootstrap, topic_prefix)
    names = [f"{topic_prefix}.public.u{i}" for i in range(3)]
    for one in written.admin.create_topics([NewTopic(name, 20, 1) for name in names]).values():
        one.result(30)
    written.producer.begin_transaction()
    for partition in range(20):
        for _ in range(partition):
            written.producer.produce(names[0], b"row", partition=partition)
    written.producer.commit_transaction(30)
    emptied = [TopicPartition(names[0], partition, 3) for partition in range(5, 20)]
    for deleted in written.admin.delete_records(emptied).values():
        deleted.result(30)
    positions = {names[0]: {7: 5, 8: 2}, names[1]: {19: 4}}
    found = find_start_offsets(written.settings, positions, ORIGIN).offsets
    assert found[names[0]] == {p: 5 if p == 7 else 3 if p >= 5 else 0 for p in range(20)}
    assert found[names[1]] == {p: 4 if p == 19 else 0 for p in range(20)}
    assert found[names[2]] == dict.fromkeys(range(20), 0) and found[written.topic] == {0: 0}
    assert found.keys() == {*names, written.topic, f"{topic_prefix}.progress"}
