"""TableSchema <-> Avro schema, and the header that tells a reader which schema a message was written with.

Without a schema registry a message is `b"T\\x01"` + 8-byte fingerprint + Avro body, and the schema is found in the
`<prefix>.schemas` topic under the fingerprint. With a registry it is Confluent's wire format, and the schema is found
in the registry, and in the schemas topic under the hexadecimal of its number. The fingerprint covers the whole schema
text, PostgreSQL types and key included, so a change that Avro itself would not notice (varchar(10) -> varchar(20)) is
still a new version.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from functools import lru_cache
from typing import Any

import fastavro

from shared_schema.change_row import ChangeRow, Op, Stamp, Value, pack_columns, unpack_columns
from shared_schema.errors import ContractError
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

MAGIC = b"T\x01"
FINGERPRINT_BYTES = 8
HEADER_BYTES = len(MAGIC) + FINGERPRINT_BYTES

REGISTRY_MAGIC = b"\0"
REGISTRY_ID_BYTES = 4
"""Confluent's wire format: a zero byte and the schema's number in the registry."""

_ENVELOPE: tuple[tuple[str, Any], ...] = (
    ("op", {"type": "enum", "name": "op", "symbols": ["I", "D", "T"]}),
    ("lsn", "long"),
    ("seq", "long"),
    ("xid", "long"),
    ("commit_ts", "long"),
    ("changed_cols", ["null", "bytes"]),
    ("partial", ["null", "bytes"]),
    ("snapshot", "boolean"),
)

_NAME_START = re.compile(r"[A-Za-z]")
_NAME_CHAR = re.compile(r"[A-Za-z0-9]")


def avro_name(name: str) -> str:
    """An Avro-legal twin of any PostgreSQL name, injective: what is no letter or digit becomes _, __ or _xHEX_.

    A single underscore between letters or digits stays as it is, so ordinary names do not change.
    """
    out: list[str] = []
    for i, char in enumerate(name):
        before, after = name[i - 1] if i else "", name[i + 1] if i + 1 < len(name) else ""
        plain_underscore = (
            char == "_" and bool(_NAME_CHAR.match(before)) and bool(_NAME_CHAR.match(after)) and after != "x"
        )
        legal = _NAME_START.match(char) if i == 0 else _NAME_CHAR.match(char)
        out.append(char if legal or plain_underscore else f"_x{ord(char):x}_")
    return "".join(out)


def change_schema(schema: TableSchema) -> dict[str, Any]:
    """The Avro record of one relation's change rows, PostgreSQL's view of it in the `pg_*` properties."""
    row_fields = [
        {
            "name": avro_name(column.name),
            "type": column.type.avro,
            "default": None,
            "pg_name": column.name,
            "pg_type": column.type.display,
            "pg_base": column.type.name,
            "pg_oid": column.type.oid,
            "pg_typmod": column.type.typmod,
        }
        for column in schema.columns
    ]
    row = {"type": "record", "name": "row", "fields": row_fields}
    return {
        "type": "record",
        "name": "change",
        "namespace": f"pgtrickle.{avro_name(schema.table.schema)}.{avro_name(schema.table.name)}",
        "pg_schema": schema.table.schema,
        "pg_table": schema.table.name,
        "pg_relid": schema.relid,
        "pg_key": list(schema.key),
        "pg_replica_identity": schema.replica_identity.value,
        "fields": [{"name": name, "type": kind} for name, kind in _ENVELOPE]
        + [{"name": "row", "type": ["null", row], "default": None}],
    }


def key_schema(schema: TableSchema) -> dict[str, Any] | None:
    """The Avro record of a message key: the primary-key columns; None for a keyless relation."""
    if not schema.key:
        return None
    return {
        "type": "record",
        "name": "key",
        "namespace": f"pgtrickle.{avro_name(schema.table.schema)}.{avro_name(schema.table.name)}",
        "fields": [{"name": avro_name(name), "type": schema.column(name).type.avro} for name in schema.key],
    }


def parse_table_schema(avro_schema: dict[str, Any]) -> TableSchema:
    """The inverse of change_schema."""
    try:
        row = avro_schema["fields"][-1]["type"][1]
        columns = tuple(
            Column(f["pg_name"], PgType(f["pg_oid"], f["pg_typmod"], f["pg_base"], f["pg_type"])) for f in row["fields"]
        )
        return TableSchema(
            table=TableId(avro_schema["pg_schema"], avro_schema["pg_table"]),
            relid=avro_schema["pg_relid"],
            columns=columns,
            key=tuple(avro_schema["pg_key"]),
            replica_identity=ReplicaIdentity(avro_schema["pg_replica_identity"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ContractError("an Avro schema does not describe change rows") from error


def schema_json(avro_schema: dict[str, Any]) -> str:
    """The one text form of a schema: what is fingerprinted, registered and stored."""
    return json.dumps(avro_schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(text: str) -> bytes:
    """Schema text -> 8 bytes."""
    return hashlib.sha256(text.encode()).digest()[:FINGERPRINT_BYTES]


class ChangeCodec:
    """Encodes and decodes the change rows of one schema version; table-driven, the reference for faster ones."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._text = schema_json(change_schema(schema))
        self._header = MAGIC + fingerprint(self._text)
        self._parsed = fastavro.parse_schema(json.loads(self._text))
        key = key_schema(schema)
        self._key_parsed = fastavro.parse_schema(key) if key else None
        self._fields = [avro_name(column.name) for column in schema.columns]
        names = [column.name for column in schema.columns]
        self._key_ordinals = [names.index(name) for name in schema.key]
        self._special = [len(column.type.avro) == 3 for column in schema.columns]
        self._row_branch = f"pgtrickle.{avro_name(schema.table.schema)}.{avro_name(schema.table.name)}.row"

    @property
    def text(self) -> str:
        """The schema as registered."""
        return self._text

    @property
    def id(self) -> bytes:
        """The fingerprint."""
        return self._header[len(MAGIC) :]

    @property
    def header(self) -> bytes:
        """What a message begins with when its schema is on the schemas topic."""
        return self._header

    def encode(self, row: ChangeRow) -> bytes:
        """Change row -> message value."""
        return self._header + self.encode_body(row)

    def encode_body(self, row: ChangeRow) -> bytes:
        """Change row -> Avro bytes without a header."""
        width = len(self._fields)
        record = {
            "op": row.op.value,
            "lsn": row.stamp.lsn.value,
            "seq": row.stamp.seq,
            "xid": row.xid,
            "commit_ts": row.commit_ts_us,
            "changed_cols": None if row.changed is None else pack_columns(row.changed, width),
            "partial": pack_columns(row.unknown, width) if row.unknown else None,
            "snapshot": row.snapshot,
            "row": None if row.values is None else (self._row_branch, self._named(row.values)),
        }
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed, record)
        return out.getvalue()

    def encode_key(self, values: tuple[Value, ...]) -> bytes | None:
        """Row image -> message key; None for keyless relations.

        It has no header, so that a new schema version does not move a key to another partition.
        """
        if self._key_parsed is None:
            return None
        out = io.BytesIO()
        named = self._named(values)
        key = {self._fields[i]: named[self._fields[i]] for i in self._key_ordinals}
        fastavro.schemaless_writer(out, self._key_parsed, key)
        return out.getvalue()

    def _named(self, values: tuple[Value, ...]) -> dict[str, Any]:
        """Fields of the row record; a special value names its union branch, fastavro would take it for a date."""
        named: dict[str, Any] = dict(zip(self._fields, values, strict=True))
        for field, special in zip(self._fields, self._special, strict=True):
            if special and isinstance(named[field], str):
                named[field] = ("string", named[field])
        return named

    def decode(self, message: bytes) -> ChangeRow:
        """Message value -> change row; the header must be this schema's."""
        if message.startswith(REGISTRY_MAGIC):
            # Numbers of a registry are no fingerprints: whoever looked this codec up by it must be right.
            return self.decode_body(message[len(REGISTRY_MAGIC) + REGISTRY_ID_BYTES :])
        if not message.startswith(self._header):
            raise ContractError(f"a message of {self.schema.table} was written with another schema version")
        return self.decode_body(message[HEADER_BYTES:])

    def decode_body(self, body: bytes) -> ChangeRow:
        """Avro bytes without the header -> change row."""
        try:
            record: Any = fastavro.schemaless_reader(io.BytesIO(body), self._parsed, None)
        except (EOFError, IndexError, ValueError, OverflowError) as error:
            raise ContractError(f"a message of {self.schema.table} is not valid Avro") from error
        changed, partial, row = record["changed_cols"], record["partial"], record["row"]
        return ChangeRow(
            op=Op(record["op"]),
            stamp=Stamp(Lsn(record["lsn"]), record["seq"]),
            xid=record["xid"],
            commit_ts_us=record["commit_ts"],
            values=None if row is None else tuple(row[f] for f in self._fields),
            changed=None if changed is None else unpack_columns(changed),
            unknown=frozenset() if partial is None else unpack_columns(partial),
            snapshot=record["snapshot"],
        )


def registry_header(number: int) -> bytes:
    """What a message begins with when its schema has this number in the registry."""
    return REGISTRY_MAGIC + number.to_bytes(REGISTRY_ID_BYTES, "big")


@lru_cache(maxsize=4096)
def codec(schema: TableSchema) -> ChangeCodec:
    """The codec of a schema version; building one parses the schema, so it is kept."""
    return ChangeCodec(schema)


def header_fingerprint(message: bytes) -> bytes:
    """The fingerprint in a message's header, or the schema's number in the registry: its key in the schemas topic."""
    if message.startswith(REGISTRY_MAGIC) and len(message) > REGISTRY_ID_BYTES:
        return message[len(REGISTRY_MAGIC) : len(REGISTRY_MAGIC) + REGISTRY_ID_BYTES]
    if len(message) < HEADER_BYTES or not message.startswith(MAGIC):
        raise ContractError("a message has no schema header", hint="was it written by pg-trickle-cdc?")
    return message[len(MAGIC) : HEADER_BYTES]
