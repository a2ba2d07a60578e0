"""Records of the `<prefix>.control` topic (JSON): log messages and schema changes, ordered with change rows by stamp.

`LogMessage`    pg_logical_emit_message(). Inside a transaction its stamp has the commit LSN of the transaction and an
                ordinal of its own among the rows; outside, the LSN of the last byte of its own record and ordinal 0.
`SchemaChange`  rows of the table from this stamp on are written with another schema version.

They are written in the transaction of the rows before and after them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from shared_schema.change_row import Stamp
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A logical message in the log; `xid` is 0 outside a transaction."""

    stamp: Stamp
    xid: int
    transactional: bool
    prefix: str
    content: bytes
    omitted_bytes: int = 0
    """The size of a content that is too large for the topic and is left out."""

    def fields(self) -> dict[str, Any]:
        """What the JSON object holds besides the stamp."""
        fields: dict[str, Any] = {
            "kind": "message",
            "xid": self.xid,
            "transactional": self.transactional,
            "prefix": self.prefix,
        }
        try:
            fields["content"] = self.content.decode()
        except UnicodeDecodeError:
            fields["content_base64"] = base64.b64encode(self.content).decode()
        if self.omitted_bytes:
            fields["omitted_bytes"] = self.omitted_bytes
        return fields


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A new schema version. `changes` describes the differences in words; only added columns are `compatible`."""

    stamp: Stamp
    table: TableId
    relid: int
    old: str
    new: str
    compatible: bool
    changes: tuple[str, ...]

    def fields(self) -> dict[str, Any]:
        """What the JSON object holds besides the stamp."""
        return {
            "kind": "schema",
            "schema": self.table.schema,
            "table": self.table.name,
            "relid": self.relid,
            "old": self.old,
            "new": self.new,
            "compatible": self.compatible,
            "changes": list(self.changes),
        }


ControlRecord = LogMessage | SchemaChange


def encode_control(slot: str, record: ControlRecord) -> bytes:
    """Encode a control record -> message value."""
    stamp = {"slot": slot, "lsn": str(record.stamp.lsn), "seq": record.stamp.seq}
    return json.dumps(stamp | record.fields(), separators=(",", ":"), ensure_ascii=False).encode()
