"""Questions through the log: only signed ones of the last minute are answered, once, with the asker's rights."""

from __future__ import annotations

import json
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from applier.catalog.database import Database
from applier.catalog.install import install_catalog
from applier.plan.depth import Thresholds
from applier.refresh.planning import explain_query
from applier.runtime import requests as requests_module
from applier.runtime.requests import MAX_OPEN, VALID_S, QuestionParts, Request, Requests, parse_request
from applier.sql.analyze.analyze import RequestedQuery
from shared_schema.change_row import Stamp
from shared_schema.control import LogMessage, encode_control
from shared_schema.lsn import Lsn
from shared_schema.signed_messages import READ_KEY, signature
from shared_schema.topics import control_topic
from tests.fixtures.kafka import KafkaBroker

Connection = psycopg.Connection[Any]

KEY = bytes(range(32))
ASKED = RequestedQuery("SELECT 1", "({QUERY})", 17, 4, (("one", 23, -1, "integer"),), "shape")


def body(**changes: Any) -> dict[str, Any]:
    found = {
        "question": str(uuid.UUID(int=7)),
        "asker": "somebody",
        "at": 100.5,
        "query": ASKED.query,
        "tree": ASKED.tree,
        "view": ASKED.view,
        "text_at": ASKED.text_at,
        "columns": [list(column) for column in ASKED.columns],
        "shape": ASKED.shape,
    }
    return {name: value for name, value in (found | changes).items() if value is not None}


def record(content: str, *, transactional: bool = False, prefix: str = "pg_trickle") -> bytes:
    return encode_control("s", LogMessage(Stamp(Lsn(1), 0), 0, transactional, prefix, content.encode()))


def signed(text: str, kind: str = "ask", key: bytes = KEY) -> str:
    return f"{kind} {signature(kind, text, key, None)} {text}"


def test_a_signed_question_is_read() -> None:
    expected = Request(str(uuid.UUID(int=7)), "somebody", 100.5, ASKED)
    assert parse_request(record(signed(json.dumps(body()))), KEY, QuestionParts()) == expected


def test_a_long_question_comes_in_parts() -> None:
    """In any order, beside those of others; of too many that never end the oldest are forgotten."""
    expected, text, parts = (
        Request(str(uuid.UUID(int=7)), "somebody", 100.5, ASKED),
        json.dumps(body()),
        QuestionParts(),
    )

    def arrive(mark: str, number: int) -> Request | None:
        piece = text[:50] if number == 0 else text[50:]
        return parse_request(record(signed(f"{mark} {number} 2 {piece}", kind="ask_part")), KEY, parts)

    assert arrive("x", 1) is None and arrive("y", 0) is None and arrive("x", 1) is None
    assert arrive("x", 0) == expected
    assert arrive("y", 1) == expected
    for number in range(MAX_OPEN + 1):
        assert arrive(f"m{number}", 0) is None
    assert arrive("m0", 1) is None
    assert parse_request(record(signed("x 0", kind="ask_part")), KEY, parts) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        record("wake"),
        record("ask " + json.dumps({"question": str(uuid.uuid4()), "query": "SELECT 1", "search_path": "evil"})),
        record("ask " + json.dumps(body())),
        record(signed(json.dumps(body()), key=bytes(32))),
        record(signed(json.dumps(body()), kind="ddl")),
        record(signed(json.dumps(body())).replace("somebody", "postgres")),
        record(signed(json.dumps(body())), transactional=True),
        record(signed(json.dumps(body())), prefix="other"),
        record(signed("no json")),
        record(signed("[1]")),
        record(signed(json.dumps(body(tree=None)))),
        record(signed(json.dumps(body(question="nope")))),
        record(signed(json.dumps(body(columns=[1])))),
        record(signed(json.dumps(body(at="soon")))),
    ],
)
def test_anything_else_is_not(value: bytes | None) -> None:
    assert parse_request(value, KEY, QuestionParts()) is None


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        yield connection


def asked(db: Connection, query: str) -> RequestedQuery:
    """Analyse a query as the SQL function does it."""
    with db.transaction(force_rollback=True):
        [(view,)] = db.execute("SELECT pgtrickle._analyse(%s, 'public')", (query,)).fetchall()
        [(said,)] = db.execute("SELECT pgtrickle._analysed(%s, %s)", (view, query)).fetchall()
    columns = tuple(tuple(column) for column in said["columns"])
    return RequestedQuery(said["query"], said["tree"], said["view"], said["text_at"], columns, said["shape"])


def answer(db: Connection, requests: Requests, request: Request) -> dict[str, Any] | None:
    requests._answer(request)
    found = db.execute("SELECT answer FROM pgtrickle.pgt_answers WHERE question = %s", (request.question,)).fetchone()
    return None if found is None else dict(found[0])


def question(asked: RequestedQuery, asker: str, at: float | None = None) -> Request:
    return Request(str(uuid.uuid4()), asker, time.time() if at is None else at, asked)


def test_questions_are_answered_once_while_they_are_new_and_with_the_rights_of_the_asker(
    db: Connection, database: str
) -> None:
    requests = Requests("trickle", {}, Database(database), Thresholds())
    good = asked(db, "SELECT v, count(*) AS n FROM t GROUP BY v")
    said = answer(db, requests, question(good, "postgres"))
    assert said is not None and said["supported"] and said["row_key"] == ["v"]
    place = answer(db, requests, question(asked(db, "SELECT id,\n random() AS r FROM t"), "postgres"))
    assert place is not None and (place["code"], place["line"]) == ("volatile_function", 2)

    for at in (time.time() - VALID_S - 1, time.time() + VALID_S + 1):
        assert answer(db, requests, question(good, "postgres", at)) is None
    again = question(good, "postgres")
    assert answer(db, requests, again) is not None
    db.execute("DELETE FROM pgtrickle.pgt_answers")
    assert answer(db, requests, again) is None

    stranger = f"stranger_{secrets.token_hex(4)}"
    db.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(stranger)))
    try:
        denied = answer(db, requests, question(good, stranger))
        assert denied is not None and denied["code"] == "42501" and "public.t" in denied["problem"]
        db.execute(sql.SQL("GRANT SELECT (v) ON t TO {}").format(sql.Identifier(stranger)))
        allowed = answer(db, requests, question(good, stranger))
        assert allowed is not None and allowed["supported"]
    finally:
        db.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(stranger)))

    db.execute("ALTER TABLE t ADD COLUMN w int")
    altered = answer(db, requests, question(good, "postgres"))
    assert altered is not None and altered["code"] == "55P03"


def test_the_thread_survives_whatever_a_question_raises(
    db: Connection, database: str, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception that nobody foresaw does not end it, and its text is not shown: the next question is answered."""
    prefix = f"ask{secrets.token_hex(4)}"
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(control_topic(prefix), 1, 1)])[control_topic(prefix)].result(30)
    good, real, raised = asked(db, "SELECT v FROM t"), explain_query.verdict, threading.Event()

    def verdict(*arguments: Any) -> Any:
        if raised.is_set():
            return real(*arguments)
        raised.set()
        raise RecursionError("a secret")

    monkeypatch.setattr(explain_query, "verdict", verdict)
    monkeypatch.setattr(requests_module, "PAUSE_S", 0.1)
    [(key,)] = db.execute(READ_KEY).fetchall()
    stopping, producer = threading.Event(), Producer(client)
    thread = threading.Thread(target=Requests(prefix, client, Database(database), Thresholds()).run, args=(stopping,))
    thread.start()
    try:
        until, found = time.monotonic() + 30, 0
        while not found and time.monotonic() < until:
            asks = body(question=str(uuid.uuid4()), asker="postgres", at=time.time(), query=good.query, tree=good.tree)
            asks |= {"view": good.view, "text_at": good.text_at, "shape": good.shape}
            asks["columns"] = [list(column) for column in good.columns]
            producer.produce(control_topic(prefix), record(signed(json.dumps(asks), key=bytes(key))))
            producer.flush(10)
            time.sleep(0.5)
            [(found,)] = db.execute("SELECT count(*) FROM pgtrickle.pgt_answers").fetchall()
        assert raised.is_set() and found and thread.is_alive() and "a secret" not in caplog.text
    finally:
        stopping.set()
        thread.join(30)
