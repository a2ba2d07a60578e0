"""Turns the errors that librdkafka reports into this project's typed errors."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from cdc_consumer.errors import BrokerUnavailable, Fenced, OversizeMessage, PublishFailed, TopicError

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_OVERSIZE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_ABSENT = {KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._MSG_TIMED_OUT}


def kafka_error(exception: KafkaException) -> KafkaError:
    """Return the error inside the exception."""
    error: KafkaError = exception.args[0]
    return error


def diagnose_kafka(error: KafkaError, doing: str, topic: str | None = None) -> TopicError:
    """Return the typed error for a librdkafka error; `doing` says what the consumer did, for a row of which `topic`."""
    said = error.str()
    if error.code() in _FENCED or "fenced" in said.lower():
        return Fenced(
            f"another instance took over while {doing}: {said}",
            hint="only one instance writes for a slot; this one stands by until the other one stops",
        )
    if error.code() in _OVERSIZE:
        return OversizeMessage(
            f"a message is too large while {doing}: {said}",
            hint="raise message.max.bytes on the broker and in PG_TRICKLE_KAFKA_OPTIONS, then start again",
            topic=topic,
        )
    if error.code() in _ABSENT:
        return BrokerUnavailable(
            f"no Kafka broker answered while {doing}: {said}", hint="check PG_TRICKLE_KAFKA_BOOTSTRAP"
        )
    if error.code() == KafkaError.INVALID_TIMESTAMP:
        # Only for topics that another program created: topics of this project use the broker's clock.
        return PublishFailed(
            f"Kafka failed while {doing}: {said}",
            hint="the clock of this machine is ahead of the broker's clock: correct it, or set"
            " message.timestamp.type=LogAppendTime on the topic, then start again",
        )
    return PublishFailed(
        f"Kafka failed while {doing}: {said}", hint="start again: the consumer resumes after the last transaction"
    )


def is_retryable(error: KafkaError) -> bool:
    """Return whether librdkafka allows to repeat the same call."""
    return bool(error.retriable()) or error.code() == KafkaError._TIMED_OUT
