"""Writes, for one relation, the functions that turn its pgoutput tuples into Avro messages without values in between.

Only ordinary rows: whatever a function does not know (special values, tuples of another width, key images that changed)
raises one of `SLOW_PATH`, and the row takes the table-driven way (`decode`, `Transaction.split`,
`ChangeCodec.encode`), whose bytes are the same by definition. The source is made of ordinals and numbers alone, never
of names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

from cdc_consumer.change_rows.conversions import Text, convert, names, split_pieces
from shared_schema.pg_types import PhysicalType
from shared_schema.table_schema import TableSchema

SEGMENT = 5
"""Columns compared at once between the images of an UPDATE."""


EncodedRow = tuple[bytes | None, bytes]
"""(message key, message value)"""
EncodedUpdate = tuple[bytes | None, bytes, bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class GeneratedFunctions:
    """`(frame, position of the tuple's marker, ...)`; heads end before the number, tails begin behind it."""

    inserts: Callable[[list[bytes], int, int, bytes, bytes, int, bytes], list[EncodedRow]]
    """(frames, index of the first, where messages begin, and how, head, first number, tail): a run of INSERTs."""
    whole: Callable[[bytes, int, bytes, bytes, bytes, bytes], EncodedRow]
    """(…, marker, head, number, tail): an INSERT, or a DELETE with a full image."""
    delete_key: Callable[[bytes, int, bytes, bytes, bytes], EncodedRow]
    """(…, head, number, xid and time)"""
    update_key: Callable[[bytes, int, bytes, bytes, bytes, bytes, bytes], EncodedUpdate]
    """(…, head of D, head of I, both numbers, xid and time): without an old image."""
    update_full: Callable[[bytes, int, bytes, bytes, bytes, bytes, bytes], EncodedUpdate]


@lru_cache(maxsize=4096)
def generate_functions(schema: TableSchema, identity: frozenset[int]) -> GeneratedFunctions:
    """Compile a relation's functions; the server repeats its descriptions, so they are kept."""
    writer = _Writer(schema, identity)
    space = names(schema, identity)
    source = "\n".join(line for lines in writer.written() for line in lines)
    exec(compile(source, f"<generated for relation {schema.relid}>", "exec"), space)  # noqa: S102
    return GeneratedFunctions(*(space[field.name] for field in fields(GeneratedFunctions)))


class _Writer:
    """Source lines of one relation's functions."""

    def __init__(self, schema: TableSchema, identity: frozenset[int]) -> None:
        self._types = [column.type for column in schema.columns]
        self._identity = identity
        self._width = len(self._types)
        names = [column.name for column in schema.columns]
        self._key = [names.index(name) for name in schema.key]

    def written(self) -> list[list[str]]:
        """Every function."""
        updates = [self.update_key(), self.update_full(), self.update_long()]
        return [self.whole(), self.inserts(), self.delete_key(), *updates]

    def whole(self) -> list[str]:
        value = f"J((head,seq,tail,{self._pieces(range(self._width))}))"
        return [
            "def whole(b,p,mark,head,seq,tail):",
            *indent(["if b[p:p+3]!=mark: raise Odd", "p+=3", *self._tuple(), f"return {self._key_of()},{value}"]),
        ]

    def inserts(self) -> list[str]:
        """A run of rows, most of which have neither a NULL nor a long value: all columns are cut apart in one call.

        Values are text and hold no NUL byte, so `t` and three of them can only begin a column of less than 256 bytes:
        as many as there are columns means that there is nothing else.
        """
        value = f"J((head,seq,tail,{self._pieces(range(self._width))}))"
        body = [
            "if b[at:to]!=mark or b[0]!=119: break",
            "seq=EN[o<<1] if o<8192 else PA[o<<1&16383]+EN[o>>13] if o<134217728 else VI(o<<1)",
            "o+=1",
            "c=b[to:].split(T)",
            f"if len(c)!={self._width + 1} or c[0]:",
            "  add(whole(b,at+5,NEW,head,seq,tail))",
            "  continue",
            f"{','.join(['_', *(f'c{i}' for i in range(self._width))])},=c",
            *(line for i in range(self._width) for line in self._cut_column(i, f"c{i}")),
            f"add(({self._key_of()},{value}))",
        ]
        loop = ["for i in range(i,len(frames)):", "  b=frames[i]", *indent(body)]
        return [
            "def inserts(frames,i,at,mark,head,o,tail):",
            *indent(["to=at+8", "out=[]", "add=out.append", "try:", *indent(loop), "except ODD: pass", "return out"]),
        ]

    def _cut_column(self, i: int, name: str) -> list[str]:
        """The last byte of its length, then the value."""
        kind = self._types[i]
        if kind.physical_type is PhysicalType.BOOLEAN:
            return [f"x{i}=BC[{name}]"]
        return [f"p=len({name}); l=p-1", f"if {name}[0]!=l: raise Odd", *convert(i, kind, Text(name, "1"))]

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
        """Both images are cut apart in one call, as rows of a run are; NULLs and long values go column by column."""
        width, last = self._width, self._width - 1
        if not width:
            return ["def update_full(*given): return update_long(*given)"]
        old: list[str] = [
            "if b[p:p+3]!=OLD: raise Odd",
            "c=b[p+3:].split(T)",
            f"if len(c)!={2 * width + 1} or c[0]: return update_long(b,p,hd,hi,sd,si,xt)",
            f"_,{','.join(f'{image}{i}' for image in 'cd' for i in range(width))}=c",
            f"if c{last}[-3:]!=NEW: raise Odd",
            f"c{last}=c{last}[:-3]",
        ]
        new: list[str] = ["m=0"]
        for number, segment in enumerate(self._segments()):
            old += [line for i in segment for line in self._cut_column(i, f"c{i}")]
            old.append(f"s{number}=J(({self._pieces(segment)}))")
            new += [f"if {' and '.join(f'c{i}==d{i}' for i in segment)}: r{number}=s{number}", "else:"]
            for i in segment:
                new += [f"  if c{i}!=d{i}:", *indent([f"m|={1 << i}", *self._cut_column(i, f"d{i}")], 4)]
            new.append(f"  r{number}=J(({self._pieces(segment)}))")
        return self._updating("update_full", old, new)

    def update_long(self) -> list[str]:
        old: list[str] = ["if b[p:p+3]!=OLD: raise Odd", "p+=3"]
        new: list[str] = ["if b[p:p+3]!=NEW: raise Odd", "p+=3", "m=0"]
        for number, segment in enumerate(self._segments()):
            for i in segment:
                old += [f"p{i}=p", *self._column(i, guarded=False)]
            old.append(f"s{number}=J(({self._pieces(segment)}))")
            new += self._compare(number, segment)
        old.append(f"p{self._width}=p")
        return self._updating("update_long", old, [*new, "if p!=len(b): raise Odd"])

    def _segments(self) -> list[range]:
        return [range(i, min(i + SEGMENT, self._width)) for i in range(0, self._width, SEGMENT)]

    def _updating(self, name: str, old: list[str], new: list[str]) -> list[str]:
        """`old` leaves the pieces and segments s of the old image, `new` those (r) of the new one and the mask m."""
        joined = [",".join(f"{letter}{n}" for n in range(len(self._segments()))) for letter in "sr"]
        values = f"J((hd,sd,xt,c,{joined[0]}))", f"J((hi,si,xt,c,{joined[1]}))"
        return [
            f"def {name}(b,p,hd,hi,sd,si,xt):",
            *indent([*old, f"k={self._key_of()}", *new, "c=CH[m]"]),
            *indent([f"return k,{values[0]},{self._key_of()},{values[1]}"]),
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
        if kind.physical_type is PhysicalType.BOOLEAN:
            return [f"x{i}=BO(b[p:p+6])", f"if x{i}: p+=6", f"elif b[p]==110: {null}", "else: raise Odd"]
        head = ["t=b[p]"] if guarded else ["t,l=H(b,p)"]
        length = ["l,=U(b,p+1)"] if guarded else []
        body = indent([*length, "q=p+5; p=q+l", *convert(i, kind)])
        return [*head, "if t==116:", *body, f"elif t==110: {null}", "else: raise Odd"]

    def _two(self, i: int) -> bool:
        return split_pieces(self._types[i])

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


def indent(lines: list[str], by: int = 2) -> list[str]:
    """A block of source."""
    return [" " * by + line for line in lines]
