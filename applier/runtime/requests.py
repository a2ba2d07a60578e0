"""Requests of SQL functions, from the control topic, in; rows with the responses in `pgt_answers` out.

A function cannot commit, so no other session sees what it writes while it waits. A non-transactional message in the log
is seen: the consumer puts it on the control topic. The response is a row that the function does see, because each of
its statements takes a new snapshot. The function repeats its request until it has a response, so a restart loses none.

Anybody may write a message, so only signed ones are read: `pgtrickle._ask` signs who asks, when and what. A later copy
is out of date, an immediate one has an answer already. Nothing of a request is run: it comes as the tree that
PostgreSQL made of the query in the asker's own session, with the asker's rights.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from applier.catalog.database import Connection, Database
from applier.errors import Infrastructure
from applier.plan.depth import Thresholds
from applier.refresh.planning import explain_query
from applier.sql.analyze.analyze import RequestedQuery
from applier.unexpected import to_trickle_error
from shared_schema.signed_messages import PREFIX, READ_KEY, read_signed
from shared_schema.topics import control_topic

log = logging.getLogger(__name__)

KIND = "ask"
PART = "ask_part"
"""A question that is too long for one record of the topic comes in several, one after the other."""

MAX_OPEN = 4
"""So many questions may arrive in parts at the same time; of more, the oldest is forgotten. It is repeated anyway."""
WAIT_S = 0.5
PAUSE_S = 2.0
"""After a failure, before the next request is read."""

KEEP = "1 hour"
"""How long responses stay."""

VALID_S = 60.0
"""How old a question may be. `_ask` repeats it every two seconds, signed anew."""


def limit_waits(connection: Connection) -> None:
    """Limit lock waits: the session that waits for us may hold a lock on the table that the request is about."""
    connection.execute("SET lock_timeout = '1s'")


@dataclass(frozen=True, slots=True)
class Request:
    """A signed question: who asks, when by the server's clock, and what."""

    question: str
    asker: str
    at_s: float
    requested: RequestedQuery


class QuestionParts:
    """The parts of questions that have arrived, until the last one of each is there."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, str]] = {}

    def add(self, body: str) -> str | None:
        """Add a part; return the whole once it is complete."""
        mark, number, count, text = body.split(" ", 3)
        parts = self._open.setdefault(mark, {})
        parts[int(number)] = text
        if len(parts) == int(count):
            del self._open[mark]
            return "".join(parts[i] for i in sorted(parts))
        while len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        return None


def parse_request(value: bytes | None, key: bytes, parts: QuestionParts) -> Request | None:
    """Return the request in a record of the control topic, or that which it completes; None when it holds none that is
    signed with the key."""
    try:
        record = json.loads(value or b"")
        if record.get("kind") != "message" or record.get("prefix") != PREFIX or record.get("transactional"):
            return None
        message = read_signed(str(record.get("content", "")).encode(), key, None)
        if message is None or message.kind not in (KIND, PART):
            return None
        whole = message.body if message.kind == KIND else parts.add(message.body)
        if whole is None:
            return None
        body = json.loads(whole)
        columns = tuple((str(n), int(oid), int(typmod), str(shown)) for n, oid, typmod, shown in body["columns"])
        texts = {name: str(body[name]) for name in ("query", "tree", "shape")}
        requested = RequestedQuery(**texts, view=int(body["view"]), text_at=int(body["text_at"]), columns=columns)
        return Request(str(uuid.UUID(body["question"])), str(body["asker"]), float(body["at"]), requested)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Requests:
    """Reads the control topic from its end, one request at a time, on a thread and a connection of its own."""

    def __init__(
        self,
        prefix: str,
        client: dict[str, str | int | float | bool],
        database: Database,
        thresholds: Thresholds,
    ) -> None:
        self._thresholds = thresholds
        self._topic = control_topic(prefix)
        self._database = database
        self._answered: dict[str, float] = {}
        """The questions of the last while and when they were asked: a copy is not answered again."""
        self._parts = QuestionParts()
        self._open: Callable[[], Consumer] = lambda: Consumer(
            client
            | {
                "group.id": "pg-trickle-questions",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": "false",
            }
        )

    def run(self, stopping: threading.Event) -> None:
        """Answer requests until `stopping` is set; no failure here affects the stream tables."""
        while not stopping.is_set():
            consumer = self._open()
            try:
                consumer.assign([TopicPartition(self._topic, 0, OFFSET_END)])
                while not stopping.is_set():
                    message = consumer.poll(WAIT_S)
                    if message is None or message.error() is not None:
                        continue
                    if request := parse_request(message.value(), self._key(), self._parts):
                        self._answer(request)
            except Exception as error:
                # Whatever it is, it concerns this request alone; the function that waits asks again or gives up.
                problem = to_trickle_error("a request", error).problem
                log.warning("a request could not be answered", extra={"error": problem})
                stopping.wait(PAUSE_S)
            finally:
                consumer.close()

    def _key(self) -> bytes:
        found = self._database.connection.execute(READ_KEY).fetchone()
        if found is None:
            raise Infrastructure("the key of signed messages cannot be read", hint="run `pg-trickle-applier install`")
        return bytes(found[0])  # type: ignore[call-overload, no-any-return]

    def _answer(self, request: Request) -> None:
        connection = self._database.connection
        now = float(str(connection.execute("SELECT date_part('epoch', clock_timestamp())").fetchall()[0][0]))
        if abs(now - request.at_s) > VALID_S or request.question in self._answered:
            return
        answer = explain_query.verdict(connection, request.requested, request.asker, self._thresholds)
        with connection.transaction():
            connection.execute("DELETE FROM pgtrickle.pgt_answers WHERE answered_at < now() - %s::interval", (KEEP,))
            connection.execute(
                "INSERT INTO pgtrickle.pgt_answers (question, answer) VALUES (%s::uuid, %s::jsonb)"
                " ON CONFLICT (question) DO NOTHING",
                (request.question, json.dumps(answer)),
            )
        self._answered = {question: at for question, at in self._answered.items() if now - at <= 2 * VALID_S}
        self._answered[request.question] = now
