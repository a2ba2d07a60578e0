"""Reads a stream table back from Delta (delta-rs) and from its topic (plain consumer), as multisets of text rows."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from shared_schema import avro
from shared_schema.change_row import Op

Bag = Counter[tuple[Any, ...]]


def in_postgres(connection: psycopg.Connection[tuple[object, ...]], name: str) -> Bag:
    """Read the stream table in PostgreSQL."""
    return Counter(connection.execute(f"TABLE {name}".encode()).fetchall())


def in_delta(root: str, name: str) -> Bag:
    """Read its Delta table; empty if it does not exist yet."""
    try:
        table = DeltaTable(f"{root}/public/{name}").to_pyarrow_table()
    except DeltaError:
        return Counter()
    return Counter(zip(*[table[column].to_pylist() for column in table.column_names], strict=True))


def on_topic(bootstrap: str, name: str) -> Bag:
    """Replay its topic from the beginning."""
    messages = _read(bootstrap, f"trickle_out.public.{name}")
    schemas = [avro.parse_table_schema(json.loads(text)) for text in _read(bootstrap, "trickle_out.schemas")]
    codecs = {avro.codec(schema).id: avro.codec(schema) for schema in schemas}
    rows: Bag = Counter()
    for message in messages:
        row = codecs[avro.header_fingerprint(message)].decode(message)
        if row.op is Op.TRUNCATE or row.values is None:
            rows.clear()
            continue
        columns = codecs[avro.header_fingerprint(message)].schema.columns
        numerics = [c.type.name == "numeric" for c in columns]
        values = tuple(
            Decimal(v) if is_numeric and isinstance(v, str) else v
            for v, is_numeric in zip(row.values, numerics, strict=True)
        )
        rows[values] += row.op.weight
    return Counter({row: n for row, n in rows.items() if n})


def _read(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    out: list[bytes] = []
    try:
        while (message := consumer.poll(10)) is not None:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return out
            if error is not None:
                raise KafkaException(error)
            out.append(message.value() or b"")
    finally:
        consumer.close()
    raise TimeoutError(f"{topic} did not reply")
