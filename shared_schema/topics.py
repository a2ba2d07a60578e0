"""Converts between tables and topic names. Injective: two relations never share a topic, whatever their names contain.

In names of metrics Kafka does not distinguish `.` and `_`, and it rejects a topic whose name differs from another one
only in these. So the schema's part has no underscore (it becomes -5f), while the table's part keeps its underscores:
the part before the first separator after the prefix is always the schema.
"""

from __future__ import annotations

import re

from shared_schema.errors import SettingsError
from shared_schema.table_schema import TableId

DEFAULT_PREFIX = "trickle"
DEFAULT_PUBLICATION_PREFIX = "trickle_out"

BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
"""For every topic: retention and compaction use the broker's clock, because the local clock may be wrong. A broker
rejects messages with a timestamp in the future."""

TOPIC_NAME_MAX = 249
"""Kafka's own limit: a topic is a folder name with a suffix."""

_SAFE = re.compile(r"[A-Za-z0-9_]")
_ESCAPED = re.compile(r"-([0-9a-f]{2})")
_UNDERSCORE = f"-{ord('_'):02x}"
_PREFIX = re.compile(r"[A-Za-z0-9_]+(?:[.][A-Za-z0-9_]+)*")


def check_prefix(prefix: str) -> str:
    """Return the prefix, or raise SettingsError if Kafka or the name patterns cannot use it."""
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            f"topic prefix {prefix!r} is not valid", hint="use letters, digits, _ and dots between them"
        )
    return prefix


def escape_name(part: str) -> str:
    """Return the name with only letters, digits, _ and -xx, for topics and folders. Injective."""
    return "".join(c if _SAFE.match(c) else "".join(f"-{b:02x}" for b in c.encode()) for c in part)


def _unescape(part: str) -> str:
    raw = _ESCAPED.sub(lambda m: chr(int(m.group(1), 16)), part)
    return raw.encode("latin-1").decode()


def table_topic(prefix: str, table: TableId) -> str:
    """Return the topic of a table: `trickle.public.orders`.

    Characters that Kafka does not allow become -xx, the hexadecimal of their UTF-8 bytes.
    """
    schema = escape_name(table.schema).replace("_", _UNDERSCORE)
    topic = f"{prefix}.{schema}.{escape_name(table.name)}"
    if len(topic) > TOPIC_NAME_MAX:
        raise SettingsError(
            f"the topic name of {table} would be {len(topic)} characters long",
            hint=f"Kafka allows {TOPIC_NAME_MAX}; shorten the topic prefix or the table name",
        )
    return topic


def table_of_topic(prefix: str, topic: str) -> TableId | None:
    """Return the relation whose change rows a topic holds; None for the progress and schema topics."""
    parts = topic.removeprefix(f"{prefix}.").split(".")
    if not topic.startswith(f"{prefix}.") or len(parts) != 2:
        return None
    return TableId(_unescape(parts[0]), _unescape(parts[1]))


def progress_topic(prefix: str) -> str:
    """Return the topic of the progress records (compacted)."""
    return f"{prefix}.progress"


def schemas_topic(prefix: str) -> str:
    """Return the topic of the Avro schemas (compacted): fingerprint -> schema."""
    return f"{prefix}.schemas"


def control_topic(prefix: str) -> str:
    """Return the topic of log messages and schema changes, which their stamps order with the change rows."""
    return f"{prefix}.control"


def beats_topic(prefix: str) -> str:
    """Return the topic of the consumer's beats, which no row depends on."""
    return f"{prefix}.beats"


def subscribe_pattern(prefix: str) -> str:
    """Return the regular expression for Spark's subscribePattern: all table topics and the progress topic."""
    quoted = re.escape(prefix)
    return rf"{quoted}\.(progress|[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)"
