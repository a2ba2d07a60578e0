"""Takes the settings that the topics of tables have at the broker, says which of them lose or reject rows. Pure.

Somebody may have created the topics before, or altered them: the broker creates topics with its own defaults, and tools
for operators have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

MESSAGE_BYTES = 1_000_000
"""The largest message that librdkafka sends by default; brokers accept a little more by default."""

PRODUCER_LIMIT = "message.max.bytes"


def find_compaction(present: Mapping[str, str | None]) -> bool:
    """Return whether the broker deletes all but the last change row of each key."""
    return "compact" in (present.get("cleanup.policy") or "")


def find_risks(present: Mapping[str, str | None], retention_ms: int, message_bytes: int) -> list[tuple[str, str]]:
    """Return what is dangerous about the settings of a topic, and the setting that mends it.

    `retention_ms` is how long change rows should be there, -1 for ever; `message_bytes` is the largest message that the
    consumer sends.
    """
    kept_ms, kept_bytes, largest = (
        _number(present, name) for name in ("retention.ms", "retention.bytes", "max.message.bytes")
    )
    risks: list[tuple[str, str]] = []
    if kept_ms is not None and kept_ms >= 0 and (retention_ms < 0 or kept_ms < retention_ms):
        wanted = "for ever" if retention_ms < 0 else f"{retention_ms} ms"
        problem = f"its rows are deleted after {kept_ms} ms, PG_TRICKLE_TOPIC_RETENTION_MS says {wanted}"
        risks.append((problem, f"retention.ms={retention_ms}"))
    if kept_bytes is not None and kept_bytes >= 0:
        risks.append((f"its rows are deleted beyond {kept_bytes} bytes", "retention.bytes=-1"))
    if largest is not None and largest < message_bytes:
        problem = f"rows above {largest} bytes are rejected, which stops the table"
        risks.append((problem, f"max.message.bytes={message_bytes}"))
    return risks


def mending_command(topic: str, setting: str) -> str:
    """Return the command that sets a setting of a topic."""
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {setting}"


def _number(present: Mapping[str, str | None], name: str) -> int | None:
    value = present.get(name)
    return None if value is None else int(value)
