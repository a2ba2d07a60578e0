"""Wraps librdkafka's transactional producer: takes records, returns delivered offsets, raises typed errors.

Nothing here blocks for long without calling `idle`, which keeps the replication connection alive while a broker is slow
or unavailable.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc_consumer.errors import OversizeMessage, TopicError
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.failures import diagnose_kafka, is_retryable, kafka_error
from cdc_consumer.sinks.topics import Topics, client_options
from shared_schema.progress import Offsets
from shared_schema.topics import progress_topic

TRANSACTION_TIMEOUT_MS = 900_000
"""The longest a broker allows by default; a source commit that takes longer to send cannot be published."""

STATISTICS_EVERY_MS = 5_000
"""How often librdkafka reports its statistics, with the number of its own retries."""

SINK_STEP_S = 0.01
"""How long one wait may last before `idle` is called again, which may receive data from the server."""


class TransactionalProducer:
    """A producer with the slot's transactional id. Creating it fences the previous producer with that id."""

    def __init__(self, settings: ConsumerSettings, topics: Topics, idle: Callable[[], None], metrics: Metrics) -> None:
        self._topics = topics
        self._idle = idle
        self._retries = metrics.retries.labels("kafka")
        self._repeated = 0
        self._progress_topic = progress_topic(settings.topic_prefix)
        self.open = False
        """Whether a transaction is open."""
        self._offsets: Offsets = {}
        """The offset after the last record of each partition, except progress, since the last `drain`."""
        self.progress_end = 0
        """The offset after the last record of the progress topic; 0 if none was written."""
        self._failed: tuple[KafkaError, str | None] | None = None
        """The first record that was not delivered: the error, and its topic."""
        self._producer = Producer(
            {
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 65_536,
                "linger.ms": 5,
                "compression.type": "lz4",
                "statistics.interval.ms": STATISTICS_EVERY_MS,
                **client_options(settings),
                "stats_cb": self._count_retries,
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "acks": "all",
                "enable.idempotence": True,
            }
        )
        self.offer = self._producer.produce
        """`(topic, value, key, partition, report)`: librdkafka's own function, for the fast loop; it may raise."""
        self._complete(self._producer.init_transactions, "taking over the slot's transactions")

    def begin(self) -> None:
        """Open a transaction unless one is open."""
        if self.open:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise self._diagnose(kafka_error(exception), "beginning a transaction") from exception
        self.open = True

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        """Add a record with a delivery report; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition, self.delivered)
            except BufferError:
                self._serve(self._producer.poll, SINK_STEP_S, "delivering rows")
                self._idle()
                continue
            except KafkaException as exception:
                error = kafka_error(exception)
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._oversize(topic, value, error) from exception
                raise self._diagnose(error, f"writing to {topic}") from exception
            return

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Process the delivery report of a record."""
        if error is not None:
            self._failed = self._failed or (error, message.topic())
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            return
        if topic == self._progress_topic:
            self.progress_end = max(self.progress_end, offset + 1)
            return
        # If the broker had already stored a batch, it confirms it without an offset: -1 means "ask the broker later".
        self._offsets.setdefault(topic, {})[partition] = offset + 1 if offset >= 0 else -1

    def drain(self) -> Offsets:
        """Wait until every record is delivered -> the end offset of each partition written since the last call."""
        while self._serve(self._producer.flush, SINK_STEP_S, "delivering rows"):
            self._idle()
        if self._failed is not None:
            error, topic = self._failed
            raise self._diagnose(error, "delivering rows", topic)
        offsets, self._offsets = self._offsets, {}
        for topic, ends in offsets.items():
            for partition in [p for p, end in ends.items() if end < 0]:
                ends[partition] = self._topics.end_offset(topic, partition)
        return offsets

    def commit(self, doing: str) -> None:
        """Commit the transaction; returns when it is committed."""
        self._complete(self._producer.commit_transaction, doing)
        self.open = False

    def abort(self) -> None:
        """Abort the open transaction. Errors do not matter: an unfinished transaction is never read."""
        self.open, self._offsets = False, {}
        try:
            self._producer.purge()
            self._producer.abort_transaction(5.0)
        except KafkaException:
            return

    def poll(self) -> None:
        """Process delivery reports that have arrived."""
        self._serve(self._producer.poll, 0.0, "delivering rows")

    def _diagnose(self, error: KafkaError, doing: str, topic: str | None = None) -> TopicError:
        """Return the typed error. After a fatal error every call only says "fatal"; the next poll gives the cause."""
        if error.code() == KafkaError._FATAL:
            try:
                self._serve(self._producer.poll, 0.0, doing)
            except TopicError as cause:
                return cause
        return diagnose_kafka(error, doing, topic)

    def _serve(self, call: Callable[[float], int], timeout_s: float, doing: str) -> int:
        """Call poll or flush. Both run callbacks, and both raise a fatal error that occurred meanwhile."""
        try:
            return call(timeout_s)
        except KafkaException as exception:
            raise diagnose_kafka(kafka_error(exception), doing) from exception
        except SystemError as error:
            # A delivery report followed the fatal error in the same call: the Python binding then raises SystemError.
            if isinstance(error.__cause__, KafkaException):
                raise diagnose_kafka(kafka_error(error.__cause__), doing) from error
            raise

    def _complete(self, call: Callable[[], None], doing: str) -> None:
        """Run a transactional call on a separate thread and call `idle` until it has ended.

        The call itself has no timeout. A call that timed out and was repeated could be confused with the late answer to
        its first attempt: librdkafka does not reliably distinguish them on a busy machine.
        """
        while True:
            outcome: Future[None] = Future()
            threading.Thread(target=_run, args=(call, outcome), name="transaction", daemon=True).start()
            try:
                while not _ended(outcome, SINK_STEP_S):
                    self._idle()
                outcome.result()
            except KafkaException as exception:
                error = kafka_error(exception)
                if not is_retryable(error):
                    raise self._diagnose(error, doing) from exception
                self._retries.inc()
                time.sleep(SINK_STEP_S)
                self._idle()
            else:
                return

    def _count_retries(self, statistics: str) -> None:
        """Count librdkafka's own retries and reconnects; its figures are totals since the producer was created."""
        brokers = json.loads(statistics).get("brokers", {}).values()
        repeated = sum(broker.get("txretries", 0) + max(0, broker.get("connects", 0) - 1) for broker in brokers)
        self._retries.inc(max(0, repeated - self._repeated))
        self._repeated = max(self._repeated, repeated)

    def _oversize(self, topic: str, value: bytes | None, error: KafkaError) -> OversizeMessage:
        return OversizeMessage(
            f"a change row of {len(value or b'')} bytes does not fit into topic {topic}: {error.str()}",
            hint="raise message.max.bytes on the broker and in PG_TRICKLE_KAFKA_OPTIONS, then start again",
            topic=topic,
        )


def _run(call: Callable[[], None], outcome: Future[None]) -> None:
    try:
        call()
    except BaseException as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(None)


def _ended(outcome: Future[None], timeout_s: float) -> bool:
    try:
        outcome.exception(timeout_s)
    except TimeoutError:
        return False
    return True
