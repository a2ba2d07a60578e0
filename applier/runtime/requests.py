"""Answers questions that SQL functions ask through the log.

A function cannot commit, so what it writes is seen by nobody while it waits; a non-transactional message in the log is.
The consumer puts it on the control topic, it is answered here, and the answer is a row that the function does see: each
of its statements looks anew. The function asks again until it has an answer, so nothing is lost in a restart.
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
"""After a failure, before the next question is read."""

KEEP = "1 hour"
"""How long answers stay."""


def limit_waits(connection: Connection) -> None:
    """Whoever asks may have locked what the question is about, and waits for us."""
    connection.execute("SET lock_timeout = '1s'")


def request_of(value: bytes | None) -> dict[str, Any] | None:
    """The question in a message of the control topic; None when it is none."""
    try:
        record = json.loads(value or b"")
        if record.get("kind") != "message" or record.get("prefix") != PREFIX or record.get("transactional"):
            return None
        content = str(record.get("content", ""))
        asked = json.loads(content.removeprefix(REQUEST)) if content.startswith(REQUEST) else None
    except ValueError:
        return None
    wanted = ("question", "query", "search_path")
    return asked if isinstance(asked, dict) and all(isinstance(asked.get(k), str) for k in wanted) else None


class Requests:
    """Reads the control topic from its end on, one question at a time, on a thread and a connection of its own."""

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
        """Until told to stop; nothing that goes wrong here touches the stream tables."""
        while not stopping.is_set():
            consumer = self._open()
            try:
                consumer.assign([TopicPartition(self._topic, 0, OFFSET_END)])
                while not stopping.is_set():
                    message = consumer.poll(WAIT_S)
                    if message is not None and message.error() is None and (asked := request_of(message.value())):
                        self._answer(asked)
            except (KafkaException, Infrastructure, psycopg.Error) as error:
                log.warning("a question could not be answered", extra={"error": str(error).splitlines()[0]})
                stopping.wait(PAUSE_S)
            finally:
                consumer.close()

    def _answer(self, asked: dict[str, Any]) -> None:
        question = str(asked["question"])
        if question in self._answered:
            return
        answer = explain_query.verdict(
            self._database.connection, str(asked["query"]), str(asked["search_path"]), self._thresholds
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
