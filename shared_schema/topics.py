"""Topic names. Injective: two relations never share a topic, whatever characters their names hold.

Kafka takes `.` and `_` for the same character where it names metrics, and refuses a topic that differs from another
only by them. So the schema's part has no underscore (it becomes -5f) and the table's part keeps its own: what stands
before the first separator behind the prefix is the schema, whichever way it is read.
"""

from __future__ import annotations

import re

from shared_schema.errors import SettingsError
from shared_schema.table_schema import TableId

DEFAULT_PREFIX = "trickle"
DEFAULT_PUBLICATION_PREFIX = "trickle_out"

BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
"""Of every topic: retention and compaction go by the broker's clock, and ours may be wrong. A broker refuses messages
that say they are from the future."""

TOPIC_NAME_MAX = 249
"""Kafka's own limit: a topic is a folder name with a suffix."""

_SAFE = re.compile(r"[A-Za-z0-9_]")
_ESCAPED = re.compile(r"-([0-9a-f]{2})")
_UNDERSCORE = f"-{ord('_'):02x}"
_PREFIX = re.compile(r"[A-Za-z0-9_]+(?:[.][A-Za-z0-9_]+)*")


def check_prefix(prefix: str) -> str:
    """Return the prefix, or raise SettingsError when Kafka or the name patterns could not take it."""
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(f"topic prefix {prefix!r} is not usable", hint="use letters, digits, _ and inner dots")
    return prefix


def escape_name(part: str) -> str:
    """A name in letters, digits, _ and -xx only, injective: for topics and folders."""
    return "".join(c if _SAFE.match(c) else "".join(f"-{b:02x}" for b in c.encode()) for c in part)


def _unescape(part: str) -> str:
    raw = _ESCAPED.sub(lambda m: chr(int(m.group(1), 16)), part)
    return raw.encode("latin-1").decode()


def table_topic(prefix: str, table: TableId) -> str:
    """`trickle.public.orders`; characters Kafka refuses become -xx, the hexadecimal of their UTF-8 bytes."""
    schema = escape_name(table.schema).replace("_", _UNDERSCORE)
    topic = f"{prefix}.{schema}.{escape_name(table.name)}"
    if len(topic) > TOPIC_NAME_MAX:
        raise SettingsError(
            f"the topic name of {table} would be {len(topic)} characters long",
            hint=f"Kafka allows {TOPIC_NAME_MAX}; shorten the topic prefix or the table name",
        )
    return topic


def table_of_topic(prefix: str, topic: str) -> TableId | None:
    """The relation whose change rows a topic carries, None for the progress and schema topics."""
    parts = topic.removeprefix(f"{prefix}.").split(".")
    if not topic.startswith(f"{prefix}.") or len(parts) != 2:
        return None
    return TableId(_unescape(parts[0]), _unescape(parts[1]))


def progress_topic(prefix: str) -> str:
    """Compacted: how far the topics of this prefix are complete."""
    return f"{prefix}.progress"


def schemas_topic(prefix: str) -> str:
    """Compacted: fingerprint -> Avro schema."""
    return f"{prefix}.schemas"


def control_topic(prefix: str) -> str:
    """Log messages and schema changes, in order with the change rows by their stamps."""
    return f"{prefix}.control"


def subscribe_pattern(prefix: str) -> str:
    """Regular expression for Spark's subscribePattern: every table topic and the progress topic of the prefix."""
    quoted = re.escape(prefix)
    return rf"{quoted}\.(progress|[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)"
