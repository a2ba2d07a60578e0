"""Damaged frames of a real server give a typed error and publish nothing, or exactly the rows the reference reads."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from cdc_consumer.change_rows.encode import TransactionEncoder
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.errors import MalformedMessage
from cdc_consumer.frame_handler import FrameHandler
from cdc_consumer.health import Health
from cdc_consumer.initial_copy import InitialCopy
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Begin, LogicalMessage, Relation
from cdc_consumer.pgoutput.relations import RelationFacts, Relations
from cdc_consumer.progress_records import ProgressRecords
from cdc_consumer.resume import StartingPoint
from cdc_consumer.routes import Routes
from cdc_consumer.rows import TransactionRows
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Delivered, Sink, SlotRecord
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.tree_news import NewsReader
from cdc_consumer.wal.catalog import relation_facts
from cdc_consumer.wal.compared import ComparedPositions
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.log_clock import LogClock
from cdc_consumer.wal.session import ReplicationSession, ServerIdentity
from shared_schema.avro import codec
from shared_schema.change_row import ChangeRow
from shared_schema.control import LogMessage, SchemaChange
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.settings import load_settings
from shared_schema.table_schema import TableId, TableSchema
from tests.cdc_consumer.harness import Connection
from tests.cdc_consumer.history import SCHEMA, run_transaction
from tests.cdc_consumer.pgoutput.encoding import encode as message_bytes

DAMAGES = int(os.environ.get("DAMAGES", "1500"))

Written = list[tuple[bytes | None, bytes]]


class ListOutlet:
    def __init__(self, schema: TableSchema, to: Written) -> None:
        self._codec = codec(schema)
        self._to = to

    def write(self, key: bytes | None, value: bytes) -> None:
        self._to.append((key, value))

    def encoder(self, reader: TableReader, begin: Begin) -> TransactionEncoder:
        return TransactionEncoder(reader, self._codec.header, begin)

    def write_all(self, rows: Written) -> None:
        self._to += rows

    def append(self, row: ChangeRow) -> None:
        self.write(None if row.values is None else self._codec.encode_key(row.values), self._codec.encode(row))


@dataclass
class Doubles:
    """In-memory doubles of the frame handler's dependencies; published rows move from `open` to `published`."""

    open: Written = field(default_factory=list)
    published: Written = field(default_factory=list)
    is_complete = True
    transaction_limit_s = None

    def row_writer(self, schema: TableSchema) -> ListOutlet:
        return ListOutlet(schema, self.open)

    def flush(self) -> Delivered:
        return Delivered()

    def commit(self, records: Sequence[SlotRecord]) -> None:
        self.published += self.open
        self.open.clear()

    def control(self, record: LogMessage | SchemaChange) -> None:
        self.open.append((None, repr(record).encode()))

    held_at = None
    unfinished = None

    def take_changed(self) -> tuple[Capture, ...]:
        return ()

    def is_captured(self, relid: int) -> bool:
        return True

    unfinished = None

    @property
    def recorded(self) -> dict[TableId, object]:
        return {}

    def begin_before(self, position: Lsn) -> None: ...
    def request(self) -> None: ...
    def send(self) -> None: ...


class EveryTable(CapturedTables):
    """Every relation of the stream is captured."""

    def find(self, relid: int) -> Capture | None:
        return Capture("s", TableId("public", "t"), relid, Lsn(0), 0)


class Stream:
    """A frame handler fed by hand."""

    def __init__(self, facts: Callable[[Relation], RelationFacts], settings: ConsumerSettings, start: Lsn) -> None:
        self.doubles = doubles = Doubles()
        self.frontier = Frontier(start)
        sink, captures, feedback = cast(Sink, doubles), cast(Captures, doubles), cast(Feedback, doubles)
        metrics, versions = Metrics(Health()), SchemaVersions({}, lambda _: None)
        tables = EveryTable({}, metrics)
        routes = Routes(Relations(facts), tables, sink, versions, lambda _: ())
        rows = TransactionRows(routes, tables, versions, sink, metrics=metrics, part=None)
        point = StartingPoint(ServerIdentity("1", 1, start), start, start, start)
        records = ProgressRecords(settings, point, None, versions, captures=captures, tables=tables)
        batcher = TransactionBatcher(
            settings=settings, frontier=self.frontier, sink=sink, records=records, feedback=feedback,
            captures=captures, metrics=metrics, health=Health(), clock=LogClock(), compared=ComparedPositions(),
            has_frontier=False,
        )  # fmt: skip
        self._handler = FrameHandler(
            frontier=self.frontier, history=None, rows=rows, sink=sink, batcher=batcher, captures=captures,
            initial_copy=cast(InitialCopy, doubles), feedback=feedback, news=NewsReader(lambda: None),
            metrics=metrics,
        )  # fmt: skip

    def outcome(self, frames: list[bytes]) -> Written | type[TrickleError]:
        """Return what is published of the frames, or the error; any other exception fails the test."""
        try:
            self._handler.handle_frames(frames)
        except TrickleError as error:
            return type(error)
        return [*self.doubles.published, *self.doubles.open]


@pytest.fixture
def frames(db: Connection, database: str, topic_prefix: str) -> list[bytes]:
    """Return the frames that a server sends for some random transactions."""
    pick = random.Random(11)
    db.execute(SCHEMA.encode())
    db.execute("CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE other (d date, m mood, b bytea, t timestamptz, f float8)")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE other")
    with ReplicationSession(database) as session:
        at, _ = session.create_slot(topic_prefix, temporary=True, export=False)
        for _ in range(25):
            run_transaction(db, pick)
        db.execute(
            "INSERT INTO other VALUES ('2000-01-31', 'ok', '\\x00ff', now(), 0.1), (NULL, NULL, NULL, NULL, NULL)"
        )
        db.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', 'x')")
        session.start(topic_prefix, at, ("pg_trickle",))
        received: list[bytes] = []
        while more := session.receive(10_000, 1.0):
            received += more
    return received


@pytest.fixture
def facts(db: Connection) -> Callable[[Relation], RelationFacts]:
    known: dict[tuple[Any, ...], RelationFacts] = {}

    def lookup(relation: Relation) -> RelationFacts:
        types = [(c.type_oid, c.typmod) for c in relation.columns]
        place = (relation.relid, *types)
        if place not in known:
            known[place] = relation_facts(db, relation.relid, [(o, max(m, -1)) for o, m in types if o < 2**31])
        return known[place]

    return lookup


def damage(frame: bytes, pick: random.Random) -> bytes:
    """Damage a frame in one way: cut it, flip a bit, insert a byte, remove one, or replace all bytes."""
    data, at = bytearray(frame), pick.randrange(len(frame))
    match pick.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << pick.randrange(8)
        case 2:
            data.insert(at, pick.randrange(256))
        case 3:
            del data[at]
        case _:
            data = data[: min(25, at)] + pick.randbytes(pick.randrange(60))
    return bytes(data)


def test_damaged_frames(
    frames: list[bytes],
    facts: Callable[[Relation], RelationFacts],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    settings, pick = load_settings(ConsumerSettings), random.Random(int(os.environ.get("DAMAGE_SEED", "7")))
    start = Lsn(0)
    whole = Stream(facts, settings, start).outcome(frames)
    assert isinstance(whole, list) and len(whole) > 100
    errors = same = 0
    # A few frames before and after the damage are enough, with all earlier relation messages of the stream.
    described = [f for f in frames if kind(f) in b"RY"]
    begins = [i for i, f in enumerate(frames) if kind(f) == b"B"]
    for _ in range(DAMAGES):
        first = pick.randrange(len(begins))
        piece = frames[begins[first] : begins[min(first + 2, len(begins) - 1)]] or frames[begins[first] :]
        at = pick.randrange(len(piece))
        damaged = [*described, *piece[:at], damage(piece[at], pick), *piece[at + 1 :]]
        fast = Stream(facts, settings, start)
        outcome = fast.outcome(damaged)
        with monkeypatch.context() as patch:
            patch.setattr(TransactionRows, "encode_frames", lambda self, frames, first: 0)
            assert Stream(facts, settings, start).outcome(damaged) == outcome
        if isinstance(outcome, type):
            errors += 1
            # Everything published before the damage was complete; nothing after it counts.
            assert fast.frontier.open_commit is not None or fast.frontier.published <= fast.frontier.received
        else:
            same += 1
    assert errors > DAMAGES / 4 and same > 0


def test_a_frame_cut_short_is_never_accepted(
    frames: list[bytes], facts: Callable[[Relation], RelationFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    settings, pick = load_settings(ConsumerSettings), random.Random(3)
    for _ in range(200):
        at = pick.randrange(len(frames))
        cut = frames[at][: pick.randrange(len(frames[at]))]
        assert isinstance(Stream(facts, settings, Lsn(0)).outcome([*frames[:at], cut]), type)


def kind(frame: bytes) -> bytes:
    return frame[25:26] if frame[:1] == b"w" else b"k"


def test_messages_in_an_order_no_server_sends(
    frames: list[bytes], facts: Callable[[Relation], RelationFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    described = [f for f in frames if kind(f) in b"RY"]
    begin = next(f for f in frames if kind(f) == b"B")
    row = next(f for f in frames if kind(f) in b"IUD")
    commit = next(f for f in frames if kind(f) == b"C")
    truncate = next(f for f in frames if kind(f) == b"T")
    other = commit[:27] + struct.pack(">Q", 1) + commit[35:]
    for wrong in (
        [row],
        [truncate],
        [begin, row, begin],
        [begin, row, commit, commit],
        [begin, row, commit, row],
        [begin, row, other],
        [commit],
    ):
        stream = Stream(facts, load_settings(ConsumerSettings), Lsn(0))
        assert stream.outcome([*described, *wrong]) is MalformedMessage
    assert isinstance(
        Stream(facts, load_settings(ConsumerSettings), Lsn(0)).outcome([*described, begin, row, commit]), list
    )


def test_a_message_outside_of_transactions_moves_the_frontier_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keepalive is needed: on a busy connection it may come late, and a reader may wait for this message."""
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    stream = Stream(lambda _: cast(RelationFacts, None), load_settings(ConsumerSettings), Lsn(100))
    for lsn, expected in ((Lsn(90), 0), (Lsn(100), 0), (Lsn(150), 1), (Lsn(180), 2)):
        message = LogicalMessage(False, lsn, "app", b"x")
        found = stream.outcome([b"w" + bytes(24) + message_bytes(message)])
        assert isinstance(found, list) and len(found) == expected
        assert stream.frontier.received == max(lsn, Lsn(100))
