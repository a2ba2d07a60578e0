"""Writes encoded rows to one topic, inside the producer's transaction, and learns the end offsets with few reports."""

from __future__ import annotations

import zlib

from confluent_kafka import KafkaException

from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.sinks.producer import TransactionalProducer

REPORTED_BYTES = 100_000
"""Rows of this size get a delivery report each: the broker may reject a row for its size, and the error must say so."""


class TopicChannel:
    """A topic in the open transaction.

    The last row of each partition is held back until the end of the transaction, and only this row gets a delivery
    report. The report gives the partition's end offset. If the delivery of an earlier row failed, the commit fails.
    """

    __slots__ = ("_held", "_partitions", "_producer", "topic")

    def __init__(self, producer: TransactionalProducer, topic: str, partitions: int) -> None:
        self.topic = topic
        self._producer = producer
        self._partitions = partitions
        self._held: dict[int, EncodedRow] = {}

    def write(self, key: bytes | None, value: bytes) -> None:
        """Add an encoded row to the open transaction; open one if needed."""
        held, partition = self._held, 0
        if self._partitions > 1 and key:
            partition = zlib.crc32(key) % self._partitions
        if not held:
            self._producer.begin()
        elif (row := held.get(partition)) is not None:
            self._send(partition, [row])
        held[partition] = key, value

    def write_all(self, rows: list[EncodedRow]) -> None:
        """Add several encoded rows to the open transaction."""
        held = self._held
        if self._partitions > 1:
            for key, value in rows:
                self.write(key, value)
            return
        if not held:
            self._producer.begin()
        else:
            rows = [held[0], *rows]
        held[0] = rows[-1]
        self._send(0, rows[:-1])

    def write_everywhere(self, value: bytes) -> None:
        """Add an encoded row without a key to every partition, after the row that is held back there."""
        self._producer.begin()
        for partition in range(self._partitions):
            if (row := self._held.get(partition)) is not None:
                self._producer.produce(self.topic, row[1], row[0], partition)
                # Two delivery reports for one partition are harmless; the second one has the larger offset.
                self._held[partition] = None, value
            else:
                self._producer.produce(self.topic, value, None, partition)

    def release(self) -> None:
        """Send the rows that are held back: the transaction ends."""
        for partition, (key, value) in self._held.items():
            self._producer.produce(self.topic, value, key, partition)
        self._held.clear()

    def drop(self) -> None:
        """Drop the rows that are held back: the transaction is aborted."""
        self._held.clear()

    def _send(self, partition: int, rows: list[EncodedRow]) -> None:
        """Pass rows to the producer. Every row goes through this loop, so it must be fast."""
        topic, offer, report = self.topic, self._producer.offer, self._producer.delivered
        for key, value in rows:
            try:
                offer(topic, value, key, partition, report if len(value) >= REPORTED_BYTES else None)
            except (BufferError, KafkaException):
                # The producer did not accept the row: wait for room, or raise the typed error.
                self._producer.produce(topic, value, key, partition)
