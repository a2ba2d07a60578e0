"""Deltas that PostgreSQL has committed in; the same on their topics, beside the ticks, out.

A thread of its own: however many rows a fill has, no tick waits for a broker. What fails is tried again; a delta that
cannot be published suspends its stream table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.errors import Infrastructure, PublishingFailed
from applier.sinks.commit_to_visible import TOPIC, CommitToVisible
from applier.sinks.downstream import Downstream
from applier.sinks.kafka.sink import TopicSink

log = logging.getLogger(__name__)

PUBLISHING_LOOK_EVERY_S = 0.25

FINISH_WITHIN_S = 5.0

PUBLISHING_RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses before publishing is tried again while the broker is not available; the last applies to all later ones."""


def open_topics(topics: TopicSink) -> None:
    """Before the first tick: find out where the topics end, so that nobody has to catch up without need."""
    try:
        topics.open()
    except Infrastructure as error:
        log.warning("the topics are opened later", extra={"error": error.log_text})


@dataclass(frozen=True)
class Publishing:
    """Publishes in the background; `catalog` has a connection of its own."""

    downstream: Downstream
    catalog: Catalog
    visible: CommitToVisible
    on_failure: Callable[[BaseException], None]

    def run(self, stopping: threading.Event) -> None:
        """Publish until `stopping` is set; report a failure to the main thread, which then stops the applier."""
        failures = 0
        if (topics := self.downstream.topics) is None:
            return
        try:
            while not stopping.is_set():
                topics.wait_for_release(PUBLISHING_LOOK_EVERY_S)
                try:
                    # Though there may be nothing to publish: ticks need the frontiers of the topics.
                    topics.open()
                    self.publish(stopping)
                    failures = 0
                except (Infrastructure, psycopg.OperationalError) as error:
                    pause = PUBLISHING_RETRY_S[min(failures, len(PUBLISHING_RETRY_S) - 1)]
                    failures += 1
                    metrics.PUBLISHING_FAILURES.inc()
                    problem = str(error).splitlines()[0]
                    log.warning("publishing will be repeated", extra={"error": problem, "after_s": pause})
                    stopping.wait(pause)
        except BaseException as error:
            self.on_failure(error)
            raise

    def publish(self, stopping: threading.Event | None = None) -> None:
        """Publish what is queued; suspend a stream table whose rows cannot be published."""
        if self.downstream.topics is None:
            return
        try:
            for table, delta in self.downstream.topics.publish(stopping):
                self.visible.observe(TOPIC, table, delta.lsn_range.lower)
        except PublishingFailed as error:
            log.exception("stream table suspended", extra={"error": error.log_text})
            # First: if the catalog cannot be reached, it catches up, fails again and is suspended then.
            self.downstream.forget(error.pgt_id)
            self.catalog.stream_tables.suspend(error.pgt_id, error)
            metrics.SUSPENSIONS.inc()

    def finish(self) -> None:
        """At a clean stop: publish what is queued as far as a few seconds allow; the next start publishes the rest."""
        stopping = threading.Event()
        timer = threading.Timer(FINISH_WITHIN_S, stopping.set)
        timer.start()
        try:
            self.publish(stopping)
        except (Infrastructure, psycopg.OperationalError) as error:
            log.warning("the last deltas are not published", extra={"error": str(error).splitlines()[0]})
        finally:
            timer.cancel()
