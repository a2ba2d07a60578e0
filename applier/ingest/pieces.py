"""One micro-batch in; its messages on the driver, in pieces of a limited number of bytes, out.

Spark limits a micro-batch by the number of its messages, and nobody knows beforehand how large they are. So the tasks
count bytes while they read, and send what fits; of the other messages they send only the offsets. The driver reads
those itself, piece by piece. An ordinary micro-batch is one piece, and one Spark job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place
from pyspark.sql import DataFrame

from applier.ingest.stream import ClientOptions, reaching_kafka

MESSAGE_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())],
)
"""The columns of a piece."""

POLL_S = 1.0

ANSWERS_WITHIN_S = 60.0
"""A broker that sends no message for so long is not available."""

_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Messages of one partition that did not fit: offsets from `first` to `last`, both included."""

    topic: str
    partition: int
    first: int
    last: int


def read_pieces(batch: DataFrame, most: int, options: ClientOptions) -> Iterator[pa.Table]:
    """Yield all messages of a micro-batch; of each partition in its order. A piece has at most about `most` bytes, and
    one more message."""
    # The name is a text, so that Spark compiles the query only once.
    fits = f"pg_within_budget('{next(_NUMBERS)}', {most}L, octet_length(value))"
    messages = batch.selectExpr(
        "topic", "partition", "offset", f"CASE WHEN {fits} THEN value END AS value", "octet_length(value) AS bytes"
    ).toArrow()
    if messages["value"].null_count == messages["bytes"].null_count:
        yield messages.select(MESSAGE_SCHEMA.names)
        return
    present, left_out = split_left_out(messages)
    del messages
    yield present
    del present
    yield from _read(left_out, most, options)


def split_left_out(messages: pa.Table) -> tuple[pa.Table, list[LeftOut]]:
    """Return the messages before the first one of their partition that did not fit, and the others as offsets.

    A message without bytes is a tombstone, which always fits; but none may come before those that precede it.
    """
    did_not_fit = messages.filter(pc.and_(pc.is_null(messages["value"]), pc.is_valid(messages["bytes"])))
    present, left_out = messages.select(MESSAGE_SCHEMA.names), []
    firsts = did_not_fit.group_by(["topic", "partition"]).aggregate([("offset", "min")])
    for topic, partition, first in zip(
        *(firsts[name].to_pylist() for name in ("topic", "partition", "offset_min")), strict=True
    ):
        same = pc.and_(pc.equal(present["topic"], topic), pc.equal(present["partition"], partition))
        after = pc.and_(same, pc.greater_equal(present["offset"], first))
        last = pc.max(present.filter(after)["offset"]).as_py()
        left_out.append(LeftOut(topic, partition, first, last))
        present = present.filter(pc.invert(after))
    return present, left_out


def _read(ranges: list[LeftOut], most: int, options: ClientOptions) -> Iterator[pa.Table]:
    """Yield the messages of these offsets, in pieces."""
    reader = options | {
        "group.id": "pg-trickle-messages",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # What was deleted meanwhile must not be skipped: the next start finds out whether a capture replaces it.
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": min(65_536, max(1_024, most // 1_024)),
    }
    with closing(Consumer(reader)) as consumer, reaching_kafka():
        for each in ranges:
            consumer.assign([Place(each.topic, each.partition, each.first)])
            offsets: list[int] = []
            values: list[bytes | None] = []
            size = 0
            for message in _messages(consumer, each):
                offsets.append(message.offset() or 0)
                values.append(message.value())
                size += len(values[-1] or b"")
                if size >= most:
                    yield _to_table(each, offsets, values)
                    offsets, values, size = [], [], 0
            if offsets:
                yield _to_table(each, offsets, values)


def _messages(consumer: Consumer, wanted: LeftOut) -> Iterator[Message]:
    silent_s = 0.0
    while silent_s < ANSWERS_WITHIN_S:
        message = consumer.poll(POLL_S)
        if message is None:
            silent_s += POLL_S
            continue
        silent_s = 0.0
        if (error := message.error()) is None:
            if (message.offset() or 0) <= wanted.last:
                yield message
            if (message.offset() or 0) >= wanted.last:
                return
        elif error.code() == KafkaError._PARTITION_EOF or not error.retriable():
            # The last one was there a moment ago, so the end of the partition cannot come before it.
            raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _to_table(source: LeftOut, offsets: list[int], values: list[bytes | None]) -> pa.Table:
    rows = len(offsets)
    columns = [[source.topic] * rows, [source.partition] * rows, offsets, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, MESSAGE_SCHEMA, strict=True)], schema=MESSAGE_SCHEMA)
