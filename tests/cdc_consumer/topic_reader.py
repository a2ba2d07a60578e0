"""Reads the topics independently: plain fastavro, read_committed, without the product's own decoder.

It knows only the documented contract: header, schema by fingerprint, envelope fields, bitmasks.
"""

from __future__ import annotations

import datetime
import io
import json
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

LEAF = ("tableoid", "__pgt_leaf")
"""The leaf column on a topic and in a buffer table: always the last one."""

Text = str | None
Image = tuple[Text, ...]


@dataclass(frozen=True)
class Row:
    """A change row with its values as PostgreSQL would print them."""

    op: str
    lsn: int
    seq: int
    values: Image
    columns: tuple[str, ...]
    unknown: frozenset[int]
    changed: frozenset[int] | None
    snapshot: bool
    key: bytes | None
    partition: int
    offset: int
    commit_ts: int


@dataclass
class Content:
    """Everything committed under a prefix."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    progress: list[dict[str, Any]] = field(default_factory=list)
    captures: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    """Parts of checkpoints. The progress records above are complete: each names what its checkpoint names, too."""
    control: list[dict[str, Any]] = field(default_factory=list)

    @property
    def frontier(self) -> int:
        return position(self.progress[-1]["frontier"]) if self.progress else 0

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offsets of a topic's partitions from the progress records."""
        ends: dict[int, int] = {}
        if topic.endswith(".control"):
            return {0: max((record["control_end"] for record in self.progress), default=0)}
        for record in self.progress:
            for partition, end in record["end_offsets"].get(topic, {}).items():
                ends[int(partition)] = max(end, ends.get(int(partition), 0))
        return ends


@dataclass(frozen=True)
class Schema:
    """A schema version, parsed once."""

    parsed: Any
    fields: tuple[tuple[str, str], ...]
    """(Avro name, PostgreSQL base type)"""
    columns: tuple[str, ...]

    @classmethod
    def of(cls, schema: dict[str, Any]) -> Schema:
        fields = schema["fields"][-1]["type"][1]["fields"]
        return cls(
            fastavro.parse_schema(schema),
            tuple((f["name"], f["pg_base"]) for f in fields),
            tuple(f["pg_name"] for f in fields),
        )


def position(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def open_reader(bootstrap: str) -> Consumer:
    """Return a reader of committed records that signals the end of each partition."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "independent-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "log_level": 2,
        }
    )


def wait_for_frontier(consumer: Consumer, prefix: str, target: int, still: Callable[[], bool]) -> None:
    """Read the progress topic until its frontier reaches the target, as long as `still` returns true."""

    def is_reached(record: dict[str, Any]) -> bool:
        return record["kind"] == "progress" and position(record["frontier"]) >= target

    wait_for_record(consumer, prefix, is_reached, still)


def wait_for_record(
    consumer: Consumer, prefix: str, is_it: Callable[[dict[str, Any]], bool], still: Callable[[], bool]
) -> None:
    """Read the committed records of the progress topic until one of them is it, as long as `still` returns true."""
    topic = f"{prefix}.progress"
    while topic not in consumer.list_topics(timeout=20).topics:
        assert still()
        time.sleep(0.05)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while True:
        message: Any = consumer.poll(0.2)
        if message is not None and message.error() is None and message.value() is not None:
            if is_it(json.loads(message.value())):
                return
        else:
            assert still(), "no record of the progress topic is the one that is waited for"


def read_topics(consumer: Consumer, prefix: str) -> Content:
    """Read every topic of the prefix from its beginning to its end."""
    found = {t: m for t, m in consumer.list_topics(timeout=20).topics.items() if t.startswith(f"{prefix}.")}
    # Beats come every second and no row depends on them.
    found.pop(f"{prefix}.beats", None)
    content, schemas = Content(), dict[str, Schema]()
    # Progress first: its end offsets define how far the other topics must be read.
    order = {f"{prefix}.progress": 0, f"{prefix}.schemas": 1}
    for topic in sorted(found, key=lambda t: order.get(t, 2)):
        for message in _drain(consumer, topic, list(found[topic].partitions), content.ends(topic)):
            if order.get(topic, 2) == 2 and not _known(schemas, prefix, message):
                # It was registered after the schemas were read.
                for schema in _drain(consumer, f"{prefix}.schemas", [0], {}):
                    _take(content, schemas, prefix, schema)
            _take(content, schemas, prefix, message)
    return content


def _known(schemas: dict[str, Schema], prefix: str, message: Any) -> bool:
    value: bytes = message.value()
    start, end = (2, 10) if value[:1] == b"T" else (1, 5)
    return message.topic() == f"{prefix}.control" or value[start:end].hex() in schemas


def _drain(consumer: Consumer, topic: str, partitions: list[int], ends: dict[int, int]) -> list[Any]:
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    messages, ended, deadline = [], set[int](), time.monotonic() + 60
    reached = dict.fromkeys(partitions, 0)
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{topic} did not end"
        message: Any = consumer.poll(1.0)
        if message is None:
            continue
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            # The current end: the transaction's marker may not be in this partition yet.
            if reached[message.partition()] >= ends.get(message.partition(), 0):
                ended.add(message.partition())
        else:
            messages.append(message)
            reached[message.partition()] = message.offset() + 1
    return messages


def _take(content: Content, schemas: dict[str, Schema], prefix: str, message: Any) -> None:
    topic, value = message.topic(), message.value()
    if topic == f"{prefix}.schemas":
        schemas[message.key().decode()] = Schema.of(json.loads(value))
    elif topic == f"{prefix}.progress":
        if value is not None:
            record = json.loads(value)
            match record["kind"]:
                case "progress":
                    content.progress.append(_complete(content, record))
                case "capture":
                    content.captures.append(record)
                case "checkpoint":
                    content.checkpoints.append(record)
                case kind:
                    raise AssertionError(kind)
    elif topic == f"{prefix}.control":
        content.control.append(json.loads(value))
    else:
        content.rows[topic.removeprefix(f"{prefix}.")].append(_row(schemas, message))


def _complete(content: Content, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with all end offsets: those of its checkpoint, and its own, which are newer."""
    if (place := record.get("checkpoint")) is None:
        return record
    parts = {part["part"]: part for part in content.checkpoints if part["offset"] == place["offset"]}
    assert set(parts) == set(range(place["parts"])), "a progress record whose checkpoint is not there"
    ends: dict[str, dict[str, int]] = {}
    for source in (*parts.values(), record):
        for topic, partitions in source["end_offsets"].items():
            ends.setdefault(topic, {}).update(partitions)
    return record | {"end_offsets": ends}


def _row(schemas: dict[str, Schema], message: Any) -> Row:
    value: bytes = message.value()
    assert value[:2] == b"T\x01" or value[:1] == b"\0"
    start, end = (2, 10) if value[:1] == b"T" else (1, 5)
    schema = schemas[value[start:end].hex()]
    body = io.BytesIO(value[end:])
    record: Any = fastavro.schemaless_reader(body, schema.parsed, None)
    assert body.read() == b""
    image = record["row"]
    values = () if image is None else tuple(pg_text(base, image[name]) for name, base in schema.fields)
    return Row(
        record["op"],
        record["lsn"],
        record["seq"],
        values,
        schema.columns,
        _columns(record["partial"]) or frozenset(),
        _columns(record["changed_cols"]),
        record["snapshot"],
        message.key(),
        message.partition(),
        message.offset(),
        record["commit_ts"],
    )


def _columns(mask: bytes | None) -> frozenset[int] | None:
    if mask is None:
        return None
    bits = int.from_bytes(mask, "little")
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def pg_text(base: str, value: Any) -> Text:
    """Return the text that PostgreSQL prints for a value; floats are normalised by float_text."""
    match value:
        case None:
            return None
        case bool():
            return "t" if value else "f"
        case float():
            return float_text(base, value)
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return "\\x" + value.hex()
        case datetime.datetime():
            text = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
            text += f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
            return text + ("+00" if value.tzinfo else "")
        case datetime.date():
            return f"{value.year:04}-{value:%m-%d}"
        case str():
            return value
        case _:
            raise AssertionError(f"{base} came as {type(value)}")


def float_text(base: str, value: float) -> str:
    """Return the bits, because PostgreSQL and Python print the same float differently."""
    return struct.pack(">f" if base == "float4" else ">d", value).hex()


def replay(rows: list[Row]) -> Counter[Image]:
    """Apply change rows in stamp order; return the table, without the leaf column.

    Partial images are completed from the row they replace.
    """
    state: Counter[Image] = Counter()
    removed: Image = ()
    for row in rows:
        match row.op:
            case "T" if row.values:
                state = Counter({image: count for image, count in state.items() if image[-1] != row.values[-1]})
            case "T":
                state.clear()
            case "D":
                removed = _matching(state, row)
                state[removed] -= 1
                state += Counter()
            case "I":
                state[tuple(removed[i] if i in row.unknown else v for i, v in enumerate(row.values))] += 1
            case _:
                raise AssertionError(row.op)
    if rows and rows[-1].columns[-1:] and rows[-1].columns[-1] in LEAF:
        table: Counter[Image] = Counter()
        for image, count in state.items():
            table[image[:-1]] += count
        return table
    return state


def _matching(state: Counter[Image], row: Row) -> Image:
    if not row.unknown:
        assert state[row.values] > 0, f"a row that is not there is deleted at {row.lsn:X}/{row.seq}"
        return row.values
    known = [i for i in range(len(row.values)) if i not in row.unknown]
    found = [image for image in state if all(image[i] == row.values[i] for i in known)]
    assert len(found) == 1, f"{len(found)} rows match the key deleted at {row.lsn:X}/{row.seq}"
    return found[0]


def check_order(rows: list[Row]) -> None:
    """Check that stamps only grow per partition, no stamp comes twice, and the halves of an UPDATE are adjacent."""
    # A copy begins with one T row in every partition.
    stamps = [(row.lsn, row.seq, row.partition if row.op == "T" and row.snapshot else 0) for row in rows]
    assert len(set(stamps)) == len(stamps), "a change row is on the topic twice"
    for partition in {row.partition for row in rows}:
        # A leaf partition that joins later is copied between the changes of the others.
        own = [
            (row.lsn, row.seq)
            for row in rows
            if row.partition == partition and not (row.snapshot and row.columns and row.columns[-1] in LEAF)
        ]
        assert own == sorted(own), "change rows are out of order"
    by_stamp = {(row.lsn, row.seq): row for row in rows}
    for row in rows:
        if row.op == "D" and row.changed is not None:
            other = by_stamp[row.lsn, row.seq + 1]
            assert other.op == "I" and other.changed == row.changed
