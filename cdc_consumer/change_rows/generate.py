"""Writes, for one relation, the functions that turn its pgoutput tuples into Avro messages without values in between.

Only ordinary rows: whatever a function does not know (special values, tuples of another width, key images that changed)
raises one of `ODD`, and the row takes the table-driven way (`decode`, `Transaction.split`, `ChangeCodec.encode`), whose
bytes are the same by definition. The source is made of ordinals and numbers alone, never of names.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cdc_consumer.change_rows import avro_bytes
from shared_schema.change_row import pack_columns
from shared_schema.pg_types import Carrier, PgType
from shared_schema.table_schema import TableSchema

SEGMENT = 5
"""Columns compared at once between the images of an UPDATE."""


class OddRow(ValueError):
    """A row that only the table-driven way can read, or refuse."""


ODD = (ValueError, LookupError, OverflowError, struct.error)
"""What generated functions raise for odd rows."""

One = tuple[bytes | None, bytes]
"""(message key, message value)"""
Two = tuple[bytes | None, bytes, bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class Functions:
    """`(frame, position of the tuple's marker, ...)`; heads end before the number, tails begin behind it."""

    whole: Callable[[bytes, int, bytes, bytes, bytes, bytes], One]
    """(…, marker, head, number, tail): an INSERT, or a DELETE with a full image."""
    delete_key: Callable[[bytes, int, bytes, bytes, bytes], One]
    """(…, head, number, xid and time)"""
    update_key: Callable[[bytes, int, bytes, bytes, bytes, bytes, bytes], Two]
    """(…, head of D, head of I, both numbers, xid and time): without an old image."""
    update_full: Callable[[bytes, int, bytes, bytes, bytes, bytes, bytes], Two]


@lru_cache(maxsize=4096)
def functions(schema: TableSchema, identity: frozenset[int]) -> Functions:
    """Compile a relation's functions; the server repeats its descriptions, so they are kept."""
    writer = _Writer(schema, identity)
    space = names(schema, identity)
    source = "\n".join([*writer.whole(), *writer.delete_key(), *writer.update_key(), *writer.update_full()])
    exec(compile(source, f"<generated for relation {schema.relid}>", "exec"), space)  # noqa: S102
    return Functions(space["whole"], space["delete_key"], space["update_key"], space["update_full"])


def names(schema: TableSchema, identity: frozenset[int]) -> dict[str, Any]:
    """What generated code can refer to."""
    width = len(schema.columns)

    def mask(ordinals: frozenset[int]) -> bytes:
        return avro_bytes.column_bytes(pack_columns(ordinals, width))

    def changed(bits: int) -> bytes:
        return avro_bytes.column_bytes(bits.to_bytes((width + 7) // 8, "little")) + b"\0\0\x02"

    others = frozenset(range(width)) - identity
    partial = mask(others) if others else b"\0"
    return {
        "Odd": OddRow,
        "H": struct.Struct(">BI").unpack_from,
        "U": struct.Struct(">I").unpack_from,
        "J": b"".join,
        "N0": avro_bytes.NULL,
        "E": b"",
        "BO": avro_bytes.BOOLEANS.get,
        "SM": avro_bytes.SMALL,
        "CP": avro_bytes.COLUMN_PAIRS,
        "PA": avro_bytes.PAIRS,
        "EN": avro_bytes.ENDS,
        "HI": avro_bytes.HIGH,
        "DA": avro_bytes.DATES,
        "DY": avro_bytes.DAYS,
        "MI": avro_bytes.MINUTES,
        "SE": avro_bytes.SECONDS,
        "FR": avro_bytes.FRACTION,
        "CL": avro_bytes.column_long,
        "F4": struct.Struct("<f").pack,
        "F8": struct.Struct("<d").pack,
        "UH": binascii.unhexlify,
        "NEW": b"N" + struct.pack(">H", width),
        "OLD": b"O" + struct.pack(">H", width),
        "KEY": b"K" + struct.pack(">H", width),
        # changed_cols, partial, snapshot, and the branch of the row
        "CH": avro_bytes.Cache(changed),
        "CHANGED_D": mask(others) + partial + b"\0\x02",
        "CHANGED_I": mask(others) + b"\0\0\x02",
        "DELETED": b"\0" + partial + b"\0\x02",
    }


def _long(target: str, value: str) -> str:
    """Union branch 1 with an int or long."""
    middle = f"CP[{value}<<1&16383]+EN[{value}>>13]"
    return f"{target}=SM[{value}] if -8192<={value}<8192 else {middle} if 0<{value}<134217728 else CL({value})"


def convert(i: int, kind: PgType) -> list[str]:
    """Text in b[q:p], its length in l -> x, and y where the value is two pieces."""
    match kind.carrier:
        case Carrier.SMALLINT | Carrier.INT | Carrier.BIGINT:
            return ["v=int(b[q:p])", _long(f"x{i}", "v")]
        case Carrier.FLOAT:
            return [f"x{i}=b'\\x02'+F4(float(b[q:p]))"]
        case Carrier.DOUBLE:
            return [f"x{i}=b'\\x02'+F8(float(b[q:p]))"]
        case Carrier.DECIMAL:
            return _decimal(i, kind)
        case Carrier.DATE:
            return [f"x{i}=DA[b[q:p]]"]
        case Carrier.TIMESTAMP:
            return ["if b[p-3:p]!=b'+00': raise Odd", *_timestamp(i, 3)]
        case Carrier.TIMESTAMP_NTZ:
            return _timestamp(i, 0)
        case Carrier.BINARY:
            return [
                "if b[q:q+2]!=b'\\\\x': raise Odd",
                f"y{i}=UH(b[q+2:p])",
                f"l=len(y{i})",
                f"x{i}=SM[l] if l<8192 else CL(l)",
            ]
        case Carrier.TEXT:
            # Text that is not UTF-8 must be refused, not passed on.
            return [f"x{i}=SM[l] if l<8192 else CL(l)", f"y{i}=b[q:p]", f"y{i}.isascii() or y{i}.decode()"]
        case Carrier.BOOLEAN:
            raise AssertionError("booleans are whole columns")


def _decimal(i: int, kind: PgType) -> list[str]:
    precision, scale = kind.precision_scale or (0, 0)
    point = [f"if b[p-{scale + 1}]!=46: raise Odd", f"v=int(b[q:p-{scale + 1}]+b[p-{scale}:p])"]
    too_long = [f"if not -1{'0' * precision}<v<1{'0' * precision}: raise Odd"] if precision else []
    return [
        *(point if scale else ["v=int(b[q:p])"]),
        *too_long,
        "l=(v.bit_length()>>3)+1",
        f"x{i}=SM[l]",
        f"y{i}=v.to_bytes(l,'big',signed=True)",
    ]


def _timestamp(i: int, suffix: int) -> list[str]:
    end = f"p-{suffix}" if suffix else "p"
    return [
        "v=DY[b[q:q+10]]+MI[b[q+10:q+16]]+SE[b[q+16:q+19]]",
        f"if l!={19 + suffix}:",
        "  if b[q+19]!=46: raise Odd",
        f"  v+=int(b[q+20:{end}])*FR[l-{20 + suffix}]",
        "z=v<<1",
        f"x{i}=CP[z&16383]+PA[z>>14&16383]+HI[z>>28] if v>134217728 else CL(v)",
    ]


class _Writer:
    """Source lines of one relation's functions."""

    def __init__(self, schema: TableSchema, identity: frozenset[int]) -> None:
        self._types = [column.type for column in schema.columns]
        self._identity = identity
        self._width = len(self._types)
        names = [column.name for column in schema.columns]
        self._key = [names.index(name) for name in schema.key]

    def whole(self) -> list[str]:
        value = f"J((head,seq,tail,{self._pieces(range(self._width))}))"
        return [
            "def whole(b,p,mark,head,seq,tail):",
            *indent(["if b[p:p+3]!=mark: raise Odd", "p+=3", *self._tuple(), f"return {self._key_of()},{value}"]),
        ]

    def delete_key(self) -> list[str]:
        value = f"J((head,seq,xt,DELETED,{self._identity_pieces()}))"
        return [
            "def delete_key(b,p,head,seq,xt):",
            *indent(["if b[p:p+3]!=KEY: raise Odd", "p+=3", *self._tuple(), *self._known_identity()]),
            *indent([f"return {self._key_of(identity_only=True)},{value}"]),
        ]

    def update_key(self) -> list[str]:
        deleted = f"J((hd,sd,xt,CHANGED_D,{self._identity_pieces()}))"
        inserted = f"J((hi,si,xt,CHANGED_I,{self._pieces(range(self._width))}))"
        keys = self._key_of(identity_only=True), self._key_of()
        return [
            "def update_key(b,p,hd,hi,sd,si,xt):",
            *indent(["if b[p:p+3]!=NEW: raise Odd", "p+=3", *self._tuple(), *self._known_identity()]),
            *indent([f"return {keys[0]},{deleted},{keys[1]},{inserted}"]),
        ]

    def update_full(self) -> list[str]:
        segments = [range(i, min(i + SEGMENT, self._width)) for i in range(0, self._width, SEGMENT)]
        old: list[str] = ["if b[p:p+3]!=OLD: raise Odd", "p+=3"]
        new: list[str] = ["if b[p:p+3]!=NEW: raise Odd", "p+=3", "m=0"]
        for number, segment in enumerate(segments):
            for i in segment:
                old += [f"p{i}=p", *self._column(i, guarded=False)]
            old.append(f"s{number}=J(({self._pieces(segment)}))")
            new += self._compare(number, segment)
        old += [f"p{self._width}=p", f"k={self._key_of()}"]
        joined = [",".join(f"{letter}{n}" for n in range(len(segments))) for letter in "sr"]
        new += ["if p!=len(b): raise Odd", "c=CH[m]"]
        values = f"J((hd,sd,xt,c,{joined[0]}))", f"J((hi,si,xt,c,{joined[1]}))"
        return [
            "def update_full(b,p,hd,hi,sd,si,xt):",
            *indent([*old, *new, f"return k,{values[0]},{self._key_of()},{values[1]}"]),
        ]

    def _compare(self, number: int, segment: range) -> list[str]:
        """New columns: those with the old one's bytes keep its pieces."""
        first, after = segment[0], segment[-1] + 1
        lines = [f"e=p+p{after}-p{first}", f"if b[p:e]==b[p{first}:p{after}]: p=e; r{number}=s{number}", "else:"]
        for i in segment:
            bit = 1 << i
            lines += [f"  e=p+p{i + 1}-p{i}", f"  if b[p:e]==b[p{i}:p{i + 1}]: p=e", "  else:"]
            # An unchanged TOASTed value is the old image's.
            same = ["if b[p]==117: p+=1", "else:", *indent([f"m|={bit}", *self._column(i, guarded=True)])]
            lines += indent(same, 4)
        return [*lines, f"  r{number}=J(({self._pieces(segment)}))"]

    def _tuple(self) -> list[str]:
        """The last tuple of a message. NULLs take one byte, so only the last four columns can be too near its end."""
        lines = [line for i in range(self._width) for line in self._column(i, guarded=self._width - i < 5)]
        return [*lines, "if p!=len(b): raise Odd"]

    def _column(self, i: int, *, guarded: bool) -> list[str]:
        kind = self._types[i]
        null = f"x{i}=N0; y{i}=E; p+=1" if self._two(i) else f"x{i}=N0; p+=1"
        if kind.carrier is Carrier.BOOLEAN:
            return [f"x{i}=BO(b[p:p+6])", f"if x{i}: p+=6", f"elif b[p]==110: {null}", "else: raise Odd"]
        head = ["t=b[p]"] if guarded else ["t,l=H(b,p)"]
        length = ["l,=U(b,p+1)"] if guarded else []
        body = indent([*length, "q=p+5; p=q+l", *convert(i, kind)])
        return [*head, "if t==116:", *body, f"elif t==110: {null}", "else: raise Odd"]

    def _two(self, i: int) -> bool:
        return in_two_pieces(self._types[i])

    def _pieces(self, ordinals: range | list[int]) -> str:
        return "".join(f"x{i},y{i}," if self._two(i) else f"x{i}," for i in ordinals)

    def _identity_pieces(self) -> str:
        return "".join(self._pieces([i]) if i in self._identity else "N0," for i in range(self._width))

    def _known_identity(self) -> list[str]:
        return [f"if x{i} is N0: raise Odd" for i in sorted(self._identity)]

    def _key_of(self, *, identity_only: bool = False) -> str:
        if not self._key:
            return "None"
        known = [i for i in self._key if i in self._identity or not identity_only]
        if len(self._key) == 1 and known and not self._two(known[0]):
            return f"x{known[0]}"
        return f"J(({''.join(self._pieces([i]) if i in known else 'N0,' for i in self._key)}))"


def in_two_pieces(kind: PgType) -> bool:
    """Whether a value is a length (or branch) in x and its bytes in y."""
    return kind.carrier in (Carrier.TEXT, Carrier.BINARY, Carrier.DECIMAL)


def indent(lines: list[str], by: int = 2) -> list[str]:
    """A block of source."""
    return [" " * by + line for line in lines]
