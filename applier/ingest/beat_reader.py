"""The beats topic in; the consumer's beats, as they arrive, out."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from shared_schema.beats import Beat, decode_beat
from shared_schema.errors import ContractError
from shared_schema.topics import beats_topic

log = logging.getLogger(__name__)

BEAT_PAUSE_S = 0.2


class BeatReader:
    """Reads from the end of the topic on: only new beats say something. A context, which closes the Kafka client."""

    def __init__(self, prefix: str, client: dict[str, str | int | float | bool], slot: str) -> None:
        self._slot = slot
        self._consumer = Consumer(
            client
            | {"group.id": f"pg-trickle-beats-{slot}", "enable.auto.commit": False, "auto.offset.reset": "latest"}
        )
        self._consumer.assign([TopicPartition(beats_topic(prefix), 0, OFFSET_END)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self, timeout_s: float) -> Beat | None:
        """Wait for a beat of the slot; None if none came, whatever the reason: then only its age counts."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        if message.error() is not None or (value := message.value()) is None:
            # Such as: there is no such topic, because an older consumer or another applier writes this prefix.
            time.sleep(BEAT_PAUSE_S)
            return None
        try:
            beat = decode_beat(value)
        except ContractError:
            log.warning("a beat cannot be read")
            return None
        return beat if beat.slot == self._slot else None
