"""Takes lines of `COPY … TO STDOUT` (text format), returns fields or, by a generated function per relation, messages.

The function uses the same conversions as the encoders of the stream (`conversions.convert`). A line that it cannot
encode takes the table-driven path, which defines the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from cdc_consumer.change_rows.avro_bytes import long
from cdc_consumer.change_rows.conversions import SLOW_PATH, convert, has_two_pieces, names
from cdc_consumer.change_rows.encode import number
from cdc_consumer.change_rows.generate import EncodedRow, indent
from cdc_consumer.change_rows.values import RowParser
from shared_schema.avro import ChangeCodec
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PhysicalType
from shared_schema.table_schema import TableSchema

LineFields = list[bytes | None]

NO_XID = 0
"""A snapshot belongs to no transaction."""

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def split_copy_line(line: bytes, width: int) -> LineFields:
    """Split one line (with its line end) -> the text of each column, None for NULL."""
    if not width:
        return []
    texts = line[:-1].split(b"\t")
    if len(texts) != width:
        raise ValueError(f"{len(texts)} columns copied, {width} expected")
    if b"\\" not in line:
        return texts  # type: ignore[return-value]
    return [None if text == b"\\N" else _unescape(text) if b"\\" in text else text for text in texts]


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)


class CopyEncoder:
    """Turns the copied rows of one table at one position into Avro messages."""

    def __init__(self, codec: ChangeCodec, header: bytes, at: Lsn, now_us: int) -> None:
        self._codec = codec
        self._header = header
        self._at = at
        self._now_us = now_us
        self._width = len(codec.schema.columns)
        self._copied = _function(codec.schema)
        self._parser = RowParser(codec.schema)
        # op is I; changed_cols and partial are null, snapshot is true, and row is not null
        self._head = header + b"\0" + long(at.value)
        self._tail = long(NO_XID) + long(now_us) + b"\0\0\x01\x02"

    def encode(self, line: bytes, seq: int) -> EncodedRow:
        """Encode a line with its number -> key and value."""
        fields = split_copy_line(line, self._width)
        try:
            return self._copied(fields, self._head, number(seq), self._tail)
        except SLOW_PATH:
            return self._table_driven(fields, seq)

    def _table_driven(self, fields: LineFields, seq: int) -> EncodedRow:
        values = tuple(None if f is None else self._parser.value(i, f) for i, f in enumerate(fields))
        row = ChangeRow(Op.INSERT, Stamp(self._at, seq), NO_XID, self._now_us, values, snapshot=True)
        return self._codec.encode_key(values), self._header + self._codec.encode_body(row)


@lru_cache(maxsize=4096)
def _function(schema: TableSchema) -> Callable[[LineFields, bytes, bytes, bytes], EncodedRow]:
    """Generate and compile the function `(fields, head, number, tail)` -> key and value."""
    kinds, columns = [c.type for c in schema.columns], [c.name for c in schema.columns]
    lines: list[str] = []

    def pieces(ordinals: list[int]) -> str:
        return "".join(f"x{i},y{i}," if has_two_pieces(kinds[i]) else f"x{i}," for i in ordinals)

    for i, kind in enumerate(kinds):
        null = f"x{i}=N0; y{i}=E" if has_two_pieces(kind) else f"x{i}=N0"
        taken = (
            [f"x{i}=BT[b]"] if kind.physical_type is PhysicalType.BOOLEAN else ["q=0; p=l=len(b)", *convert(i, kind)]
        )
        lines += [f"b=a[{i}]", f"if b is None: {null}", "else:", *indent(taken)]
    key = f"J(({pieces([columns.index(name) for name in schema.key])}))" if schema.key else "None"
    lines.append(f"return {key},J((head,seq,tail,{pieces(list(range(len(kinds))))}))")
    space = names(schema, frozenset())
    source = "\n".join(["def copied(a,head,seq,tail):", *indent(lines)])
    exec(compile(source, f"<generated for copies of relation {schema.relid}>", "exec"), space)  # noqa: S102
    function: Callable[[LineFields, bytes, bytes, bytes], EncodedRow] = space["copied"]
    return function
