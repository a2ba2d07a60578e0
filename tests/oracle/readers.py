"""Reads a stream table from its three places, each with an independent reader: psycopg, delta-rs, fastavro."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

Row = tuple[Any, ...]
Bag = Counter[Row]

HEADER = 10
"""Length of the header: two bytes of magic and eight of schema fingerprint."""


def query_result(connection: psycopg.Connection[Row], name: str) -> Bag:
    """Return the current result of the stream table's own query, evaluated by PostgreSQL."""
    found = connection.execute(
        "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", (name,)
    ).fetchone()
    assert found is not None, f"no stream table {name}"
    return Counter(connection.execute(str(found[0]).encode()).fetchall())


def in_postgres(connection: psycopg.Connection[Row], name: str) -> Bag:
    return Counter(connection.execute(f'TABLE "{name}"'.encode()).fetchall())


def in_delta(root: str, name: str, schema: str = "public") -> Bag:
    try:
        table = DeltaTable(f"{root}/{schema}/{name}").to_pyarrow_table()
    except TableNotFoundError as error:
        raise AssertionError(f"{name} is not in Delta yet") from error
    return Counter(zip(*[table[column].to_pylist() for column in table.column_names], strict=True))


@dataclass
class TopicReplay:
    """Reads a publication topic from its beginning and applies its change rows; can continue where it stopped."""

    bootstrap: str
    topic: str
    schemas_topic: str
    rows: Bag = field(default_factory=Counter)
    stamps: list[tuple[int, int]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    last_range: tuple[int, int] | None = None
    """Number and LSN of the last LSN range."""
    _position: int = 0
    _broken: AssertionError | None = None
    """The first change row that did not fit: what is read again after it says nothing."""

    def catch_up(self) -> Bag:
        if self._broken is not None:
            raise self._broken
        messages = self._read(self.topic, self._position)
        # Read after the rows: a schema is committed with the first row that needs it, never later.
        schemas = {key.decode(): json.loads(value) for key, value, _ in self._read(self.schemas_topic, 0)}
        parsed = {key: fastavro.parse_schema(schema) for key, schema in schemas.items()}
        for _, value, offset in messages:
            schema_id = value[2:HEADER].hex()
            record: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER:]), parsed[schema_id], None)
            try:
                self._apply(record, schemas[schema_id])
            except AssertionError as error:
                self._broken = error
                raise
            self._position = offset + 1
        return Counter({row: n for row, n in self.rows.items() if n})

    def _apply(self, record: dict[str, Any], schema: dict[str, Any]) -> None:
        stamp = record["lsn"], record["seq"]
        assert not self.stamps or stamp > self.stamps[-1], f"stamp {stamp} after {self.stamps[-1]}"
        self.stamps.append(stamp)
        self._assert_no_gap((record["xid"], record["lsn"]), restarts=record["op"] == "T")
        if record["op"] == "T":
            self.rows.clear()
            return
        columns = schema["fields"][-1]["type"][1]["fields"]
        names = [column["pg_name"] for column in columns]
        if self.columns and len(names) > len(self.columns) and names[: len(self.columns)] == self.columns:
            # A column that a later schema adds is NULL in the rows before.
            added = (None,) * (len(names) - len(self.columns))
            self.rows = Counter({row + added: n for row, n in self.rows.items()})
        self.columns = names
        row = tuple(_value(column["pg_base"], record["row"][column["name"]]) for column in columns)
        self.rows[row] += 1 if record["op"] == "I" else -1
        assert self.rows[row] >= 0, f"{row} was withdrawn before it was there"

    def _assert_no_gap(self, current: tuple[int, int], *, restarts: bool) -> None:
        """Check that LSN ranges are numbered without a gap, each at an LSN after the last."""
        last, self.last_range = self.last_range, current
        if restarts:
            assert current[0] == 1, f"a topic that begins again begins with LSN range {current[0]}"
        elif last is not None and current != last:
            assert current[0] == last[0] + 1 and current[1] > last[1], f"LSN range {current} after {last}"

    def _read(self, topic: str, start: int) -> list[tuple[bytes, bytes, int]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "oracle",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, 0, start)])
        out: list[tuple[bytes, bytes, int]] = []
        try:
            while True:
                message = consumer.poll(10)
                assert message is not None, f"{topic} did not answer"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return out
                out.append((message.key() or b"", message.value() or b"", message.offset() or 0))
        finally:
            consumer.close()


def _value(pg_base: str, value: Any) -> Any:
    return Decimal(value) if pg_base == "numeric" and isinstance(value, str) else value


def assert_same(expected: Bag, got: Bag, where: str) -> None:
    missing, extra = expected - got, got - expected
    assert not missing and not extra, f"{where}: missing {list(missing)[:3]}, unexpected {list(extra)[:3]}"


def eventually(check: Callable[[], None], within_s: float = 90) -> None:
    """Repeat a check until it passes; for sinks that are written in the background."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            check()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.25)
