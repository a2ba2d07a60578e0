"""Requests of SQL functions, from the control topic, in; rows with the responses in `pgt_answers` out.

A function cannot commit, so no other session sees what it writes while it waits. A non-transactional message in the log
is seen: the consumer puts it on the control topic. The response is a row that the function does see, because each of
its statements takes a new snapshot. The function repeats its request until it has a response, so a restart loses none.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from applier.catalog.database import Connection, Database
from applier.errors import Infrastructure
from applier.plan.depth import Thresholds
from applier.refresh import explain_query
from shared_schema.topics import control_topic

log = logging.getLogger(__name__)

PREFIX = "pg_trickle"
REQUEST = "ask "
WAIT_S = 0.5
PAUSE_S = 2.0
"""After a failure, before the next request is read."""

KEEP = "1 hour"
"""How long responses stay."""


def limit_waits(connection: Connection) -> None:
    """Limit lock waits: the session that waits for us may hold a lock on the table that the request is about."""
    connection.execute("SET lock_timeout = '1s'")


def parse_request(value: bytes | None) -> dict[str, Any] | None:
    """Return the request in a message of the control topic; None when it holds none."""
    try:
        record = json.loads(value or b"")
        if record.get("kind") != "message" or record.get("prefix") != PREFIX or record.get("transactional"):
            return None
        content = str(record.get("content", ""))
        request = json.loads(content.removeprefix(REQUEST)) if content.startswith(REQUEST) else None
    except ValueError:
        return None
    keys = ("question", "query", "search_path")
    return request if isinstance(request, dict) and all(isinstance(request.get(k), str) for k in keys) else None


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
        self._answered: set[str] = set()
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
                    if message is not None and message.error() is None and (request := parse_request(message.value())):
                        self._answer(request)
            except (KafkaException, Infrastructure, psycopg.Error) as error:
                log.warning("a request could not be answered", extra={"error": str(error).splitlines()[0]})
                stopping.wait(PAUSE_S)
            finally:
                consumer.close()

    def _answer(self, request: dict[str, Any]) -> None:
        question = str(request["question"])
        if question in self._answered:
            return
        answer = explain_query.verdict(
            self._database.connection, str(request["query"]), str(request["search_path"]), self._thresholds
        )
        connection = self._database.connection
        with connection.transaction():
            connection.execute("DELETE FROM pgtrickle.pgt_answers WHERE answered_at < now() - %s::interval", (KEEP,))
            connection.execute(
                "INSERT INTO pgtrickle.pgt_answers (question, answer) VALUES (%s::uuid, %s::jsonb)"
                " ON CONFLICT (question) DO NOTHING",
                (question, json.dumps(answer)),
            )
        self._answered.add(question)
