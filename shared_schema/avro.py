"""Converts between TableSchema and Avro schema, encodes change rows, and writes the header that identifies the schema.

Without a schema registry a message is `b"T\\x01"` + 8-byte fingerprint + Avro body, and the `<prefix>.schemas` topic
holds the schema under the fingerprint. With a registry the message has Confluent's wire format, and the schema is in
the registry, and in the schemas topic under its registry id in hexadecimal. The fingerprint covers the whole schema
text, including PostgreSQL types and key. So a change that Avro itself does not see (varchar(10) -> varchar(20)) is
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
"""Confluent's wire format: a zero byte and the schema's id in the registry."""

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
    """Return a valid Avro name for any PostgreSQL name. Injective.

    Characters other than letters and digits become _xHEX_. A single underscore between letters or digits does not
    change, so ordinary names stay as they are.
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
    """Return the Avro record of a relation's change rows; the `pg_*` properties hold PostgreSQL's description."""
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
    """Return the Avro record of a message key: the primary-key columns; None for a relation without a key."""
    if not schema.key:
        return None
    return {
        "type": "record",
        "name": "key",
        "namespace": f"pgtrickle.{avro_name(schema.table.schema)}.{avro_name(schema.table.name)}",
        "fields": [{"name": avro_name(name), "type": schema.column(name).type.avro} for name in schema.key],
    }


def parse_table_schema(avro_schema: dict[str, Any]) -> TableSchema:
    """Return the TableSchema of an Avro schema: the inverse of change_schema."""
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
    """Return the canonical text of a schema, which is fingerprinted, registered and stored."""
    return json.dumps(avro_schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(text: str) -> bytes:
    """Return the fingerprint of a schema text, 8 bytes."""
    return hashlib.sha256(text.encode()).digest()[:FINGERPRINT_BYTES]


class ChangeCodec:
    """Encodes and decodes the change rows of one schema version. Table-driven; the reference for generated encoders."""

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
        """The schema text as registered."""
        return self._text

    @property
    def id(self) -> bytes:
        """The fingerprint."""
        return self._header[len(MAGIC) :]

    @property
    def header(self) -> bytes:
        """The first bytes of a message whose schema is on the schemas topic."""
        return self._header

    def encode(self, row: ChangeRow) -> bytes:
        """Encode a change row -> message value."""
        return self._header + self.encode_body(row)

    def encode_body(self, row: ChangeRow) -> bytes:
        """Encode a change row -> Avro bytes without a header."""
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
        """Encode the key of a row image -> message key; None for relations without a key.

        The key has no header, so that a new schema version does not move a key to another partition.
        """
        if self._key_parsed is None:
            return None
        out = io.BytesIO()
        named = self._named(values)
        key = {self._fields[i]: named[self._fields[i]] for i in self._key_ordinals}
        fastavro.schemaless_writer(out, self._key_parsed, key)
        return out.getvalue()

    def _named(self, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields of the row record.

        A special value names its union branch explicitly, because fastavro would treat it as a date.
        """
        named: dict[str, Any] = dict(zip(self._fields, values, strict=True))
        for field, special in zip(self._fields, self._special, strict=True):
            if special and isinstance(named[field], str):
                named[field] = ("string", named[field])
        return named

    def decode(self, message: bytes) -> ChangeRow:
        """Decode a message value -> change row; the message must have the header of this schema."""
        if message.startswith(REGISTRY_MAGIC):
            # A registry id is not a fingerprint and cannot be checked here: the caller must have found the codec by it.
            return self.decode_body(message[len(REGISTRY_MAGIC) + REGISTRY_ID_BYTES :])
        if not message.startswith(self._header):
            raise ContractError(f"a message of {self.schema.table} was written with another schema version")
        return self.decode_body(message[HEADER_BYTES:])

    def decode_body(self, body: bytes) -> ChangeRow:
        """Decode Avro bytes without the header -> change row."""
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
    """Return the first bytes of a message whose schema has this id in the registry."""
    return REGISTRY_MAGIC + number.to_bytes(REGISTRY_ID_BYTES, "big")


@lru_cache(maxsize=4096)
def codec(schema: TableSchema) -> ChangeCodec:
    """Return the codec of a schema version. Cached, because building one parses the schema."""
    return ChangeCodec(schema)


def header_fingerprint(message: bytes) -> bytes:
    """Return the fingerprint or the registry id in a message's header: the schema's key in the schemas topic."""
    if message.startswith(REGISTRY_MAGIC) and len(message) > REGISTRY_ID_BYTES:
        return message[len(REGISTRY_MAGIC) : len(REGISTRY_MAGIC) + REGISTRY_ID_BYTES]
    if len(message) < HEADER_BYTES or not message.startswith(MAGIC):
        raise ContractError("a message has no schema header", hint="was it written by pg-trickle-cdc?")
    return message[len(MAGIC) : HEADER_BYTES]
