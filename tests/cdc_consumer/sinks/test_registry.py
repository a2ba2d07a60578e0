"""A schema registry: Confluent's wire format, read back by an independent reader that knows only the registry."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import fastavro
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from applier.ingest.schemas import SchemaReader
from cdc_consumer.errors import RegistryRefused, RegistryUnavailable
from cdc_consumer.sinks.registry import SchemaRegistry
from shared_schema.avro import header_fingerprint, registry_header
from shared_schema.table_schema import TableId
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, until
from tests.cdc_consumer.test_refused_tables import stopped
from tests.cdc_consumer.topic_reader import open_reader

TABLE = TableId("public", "t")


class Registry(BaseHTTPRequestHandler):
    """The part of the REST contract that producers and consumers use."""

    subjects: ClassVar[dict[str, list[int]]] = {}
    schemas: ClassVar[dict[int, str]] = {}
    frozen: ClassVar[set[str]] = set()
    """Subjects that accept no further version."""
    users: ClassVar[set[str]] = set()
    log: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.log.append(self.path)
        if self.users and self.headers.get("Authorization") not in self.users:
            return self._answer(401, {"error_code": 40101, "message": "Unauthorized"})
        assert self.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
        _, subjects, subject, versions = self.path.split("/")
        assert (subjects, versions) == ("subjects", "versions")
        try:
            fastavro.parse_schema(json.loads(content["schema"]))
        except Exception:
            return self._answer(422, {"error_code": 42201, "message": "Invalid schema"})
        known = self.subjects.setdefault(subject, [])
        for number in known:
            if self.schemas[number] == content["schema"]:
                return self._answer(200, {"id": number})
        if subject in self.frozen:
            return self._answer(409, {"error_code": 409, "message": "Schema being registered is incompatible"})
        number = len(self.schemas) + 100_001
        self.schemas[number] = content["schema"]
        known.append(number)
        return self._answer(200, {"id": number})

    def do_GET(self) -> None:
        number = int(self.path.removeprefix("/schemas/ids/"))
        self._answer(200, {"schema": self.schemas[number]})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    for held in (Registry.subjects, Registry.schemas, Registry.frozen, Registry.users, Registry.log):
        held.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def values(consumer: Consumer, topic: str) -> Iterator[bytes]:
    reader = open_reader(consumer.bootstrap)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while (message := reader.poll(5.0)) is not None and message.error() is None:
        yield message.value() or b""
    reader.close()


def read_with_registry(consumer: Consumer, topic: str) -> list[dict[str, Any]]:
    records = []
    for value in values(consumer, topic):
        assert value[:1] == b"\0"
        schema = fastavro.parse_schema(json.loads(Registry.schemas[int.from_bytes(value[1:5], "big")]))
        body = io.BytesIO(value[5:])
        records.append(fastavro.schemaless_reader(body, schema, None))
        assert body.read() == b""
    return records  # type: ignore[return-value]


def test_rows_in_the_registrys_wire_format(make_consumer: MakeConsumer, db: Connection, registry: str) -> None:
    consumer = make_consumer(schema_registry_url=registry)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, d date); ALTER TABLE t REPLICA IDENTITY FULL")
    db.execute("INSERT INTO t VALUES (1, 'infinity'); ALTER PUBLICATION pg_trickle ADD TABLE t")
    consumer.start()
    db.execute("UPDATE t SET d = '2024-02-29'")
    db.execute("ALTER TABLE t ADD more text; INSERT INTO t VALUES (2, NULL, 'x')")
    db.execute("TRUNCATE t; INSERT INTO t VALUES (3, '0044-03-15 BC', 'y')")
    check(consumer, ["public.t"])
    topic = f"{consumer.prefix}.public.t"
    records = read_with_registry(consumer, topic)
    assert [r["op"] for r in records] == ["I", "D", "I", "I", "T", "I"]
    assert [r["row"] and r["row"]["id"] for r in records] == [1, 1, 1, 2, None, 3]
    assert records[0]["row"]["d"] == "infinity" and records[3]["row"]["more"] == "x"
    # The applier finds the same schemas on the schemas topic, by the same numbers.
    schemas = SchemaReader(consumer.prefix, {"bootstrap.servers": consumer.bootstrap})
    decoded = [schemas.codec(value).decode(value) for value in values(consumer, topic)]
    schemas.close()
    assert [row.op.value for row in decoded] == [r["op"] for r in records]
    assert [row.values and row.values[0] for row in decoded] == [1, 1, 1, 2, None, 3]
    assert list(Registry.subjects) == [f"{topic}-value"] and len(Registry.subjects[f"{topic}-value"]) == 2


def test_a_refused_version_stops_its_table_before_its_first_row(
    make_consumer: MakeConsumer, db: Connection, registry: str
) -> None:
    consumer = make_consumer(schema_registry_url=registry)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY)")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE t, u")
    consumer.start()
    db.execute("INSERT INTO t VALUES (1, 1)")
    consumer.caught_up()
    subject = f"{consumer.prefix}.public.t-value"
    Registry.frozen.add(subject)
    db.execute("ALTER TABLE t ALTER v TYPE text; INSERT INTO t VALUES (2, 'two'); INSERT INTO u VALUES (1)")
    reason = stopped(consumer, "t")
    assert "incompatible" in reason and f"PUT /config/{subject}" in reason
    db.execute("INSERT INTO u VALUES (2); INSERT INTO t VALUES (3, 'three')")
    check(consumer, ["public.u"])
    assert consumer.metric("pg_trickle_cdc_reconnects_total") == 1
    assert "Traceback" not in consumer.log.read_text()
    assert [r["row"]["v"] for r in read_with_registry(consumer, f"{consumer.prefix}.public.t")] == [1]
    Registry.frozen.clear()
    assert consumer.stop() == 0
    consumer.start()
    until(lambda: not consumer.caught_up().captures[-1].get("stopped"), "captured again")
    check(consumer, ["public.t", "public.u"])


def test_user_and_password(registry: str) -> None:
    Registry.users.add("Basic " + base64.b64encode(b"me:p@ss").decode())
    with pytest.raises(RegistryRefused, match="denied access"):
        SchemaRegistry(registry).register(TABLE, "s", '"int"')
    known = SchemaRegistry(registry.replace("://", "://me:p%40ss@"))
    assert known.register(TABLE, "a/b", '"int"') == known.register(TABLE, "a/b", '"int"') == 100_001
    assert Registry.log[-1] == "/subjects/a%2Fb/versions"


def test_no_registry_there() -> None:
    with pytest.raises(RegistryUnavailable) as caught:
        SchemaRegistry("http://user:secret@127.0.0.1:1").register(TABLE, "s", '"int"')
    assert "secret" not in str(caught.value) and caught.value.retryable


def test_the_number_is_the_key_in_the_schemas_topic() -> None:
    assert header_fingerprint(registry_header(258) + b"body") == b"\0\0\1\2"
