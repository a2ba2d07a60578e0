"""Errors of librdkafka: which of our errors they become, which are waited for, and which requests are retried."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc_consumer.errors import BrokerUnavailable, Fenced, OversizeMessage, PublishFailed, TopicError
from cdc_consumer.sinks.failures import diagnose_kafka, is_retryable, kafka_error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._FENCED, Fenced),
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError.MSG_SIZE_TOO_LARGE, OversizeMessage),
        (KafkaError.RECORD_LIST_TOO_LARGE, OversizeMessage),
        (KafkaError.INVALID_MSG_SIZE, OversizeMessage),
        (KafkaError._TIMED_OUT, BrokerUnavailable),
        (KafkaError._ALL_BROKERS_DOWN, BrokerUnavailable),
        (KafkaError._TRANSPORT, BrokerUnavailable),
        (KafkaError._MSG_TIMED_OUT, BrokerUnavailable),
        (KafkaError.INVALID_TIMESTAMP, PublishFailed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, PublishFailed),
        (KafkaError.INVALID_TXN_STATE, PublishFailed),
    ],
)
def test_every_code_is_one_of_our_errors(code: int, expected: type[TopicError]) -> None:
    error = diagnose_kafka(KafkaError(code), "writing a row")
    assert type(error) is expected
    assert "writing a row" in str(error) and error.hint
    # Only these are waited for: a broker that restarts, and the instance that took over.
    assert error.retryable is (expected in (BrokerUnavailable, Fenced))


def test_a_fatal_error_that_only_says_fenced() -> None:
    fatal = KafkaError(KafkaError._FATAL, "Producer fenced by a newer instance")
    assert isinstance(diagnose_kafka(fatal, "committing"), Fenced)
    assert isinstance(diagnose_kafka(KafkaError(KafkaError._FATAL, "sequence numbers"), "committing"), PublishFailed)


def test_a_wrong_clock_is_named() -> None:
    assert "clock" in diagnose_kafka(KafkaError(KafkaError.INVALID_TIMESTAMP), "writing").hint


def test_which_requests_may_be_retried() -> None:
    assert is_retryable(KafkaError(KafkaError._TIMED_OUT))
    assert is_retryable(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, retriable=True))
    assert not is_retryable(KafkaError(KafkaError.PRODUCER_FENCED))
    assert not is_retryable(KafkaError(KafkaError._FATAL, fatal=True))


def test_the_error_inside_an_exception() -> None:
    error = KafkaError(KafkaError._TRANSPORT)
    assert kafka_error(KafkaException(error)) is error
