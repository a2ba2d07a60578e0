"""Takes a relation's schema, returns generated functions that turn its pgoutput tuples directly into Avro messages.

The functions go from bytes to bytes, without change rows in between. They handle ordinary rows only. Everything else
(special values, tuples of another width, key images that changed) raises one of `SLOW_PATH`, and the row takes the
table-driven path (`decode`, `Transaction.split`, `ChangeCodec.encode`), which defines the bytes. The source contains
only ordinals and numbers, never names of tables or columns.

For a table `(id integer PRIMARY KEY, name text)` six functions are generated: `whole`, `inserts`, `delete_key`,
`update_key`, `update_full` and `update_long`. This is all of `update_full`, which makes D and I of an UPDATE with
REPLICA IDENTITY FULL; only the comments are added (a test compares the rest):

    def update_full(b,p,hd,hi,sd,si,xt):                          # b: frame, p: offset of the old tuple in it
      if b[p:p+3]!=OLD: raise SlowPathRow                         # OLD: "O" and the number of columns
      c=b[p+3:].split(T)                                          # T: "t" and three zero bytes begin a short value
      if len(c)!=5 or c[0]: return update_long(b,p,hd,hi,sd,si,xt)  # a NULL or a long value
      _,c0,c1,d0,d1=c                                             # c: old columns, d: new columns
      if c1[-3:]!=NEW: raise SlowPathRow                          # the marker of the new tuple ends c1
      c1=c1[:-3]
      p=len(c0); l=p-1                                            # column 0, integer: its length, then its text
      if c0[0]!=l: raise SlowPathRow
      v=int(c0[1:p])
      x0=(SM[v] if -8192<=v<8192                                  # its Avro bytes, from tables of bytes
        else CP[v<<1&16383]+EN[v>>13] if 0<v<134217728
        else CP[v<<1&16383]+PA[v>>13&16383]+EN[v>>27] if 0<v<2199023255552
        else CL(v))                                               # large or negative numbers
      p=len(c1); l=p-1                                            # column 1, text
      if c1[0]!=l: raise SlowPathRow
      x1=SM[l] if l<8192 else CL(l)                               # two pieces: x is its length, y its bytes
      y1=c1[1:p]
      y1.isascii() or y1.decode()                                 # raises a ValueError if it is not UTF-8
      s0=J((x0,x1,y1,))                                           # the old columns as Avro
      k=x0                                                        # the old key
      m=0                                                         # bit mask of the columns that changed
      if c0==d0 and c1==d1: r0=s0                                 # nothing changed: the same bytes again
      else:
        if c0!=d0:
          m|=1
          p=len(d0); l=p-1
          if d0[0]!=l: raise SlowPathRow
          v=int(d0[1:p])
          x0=(SM[v] if -8192<=v<8192
            else CP[v<<1&16383]+EN[v>>13] if 0<v<134217728
            else CP[v<<1&16383]+PA[v>>13&16383]+EN[v>>27] if 0<v<2199023255552
            else CL(v))
        if c1!=d1:
          m|=2
          p=len(d1); l=p-1
          if d1[0]!=l: raise SlowPathRow
          x1=SM[l] if l<8192 else CL(l)
          y1=d1[1:p]
          y1.isascii() or y1.decode()
        r0=J((x0,x1,y1,))                                         # the new columns as Avro
      c=CH[m]                                                     # changed_cols, partial, snapshot
      return k,J((hd,sd,xt,c,s0)),x0,J((hi,si,xt,c,r0))           # key and value of D, key and value of I

`hd` and `hi` are the first bytes of both messages, `sd` and `si` their ordinals, `xt` transaction and commit time.
`update_long` handles NULLs, long values and unchanged TOAST. `whole` encodes one INSERT, `inserts` many in one call.
`conversions.names` has the short names: SM, CP, PA, EN and CL encode numbers, J joins bytes. For a leaf partition each
row ends with LF, the leaf column, whose bytes are the same in all rows of the leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from types import CodeType

from cdc_consumer.change_rows.avro_bytes import column_long
from cdc_consumer.change_rows.conversions import Text, convert, has_two_pieces, names
from shared_schema.pg_types import PhysicalType
from shared_schema.table_schema import TableSchema

SEGMENT = 5
"""Number of columns that are compared at once between the two images of an UPDATE."""


EncodedRow = tuple[bytes | None, bytes]
"""(message key, message value)"""
EncodedUpdate = tuple[bytes | None, bytes, bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class GeneratedFunctions:
    """The functions of one relation, called as `(frame, offset of the tuple's marker, ...)`.

    `head` is the start of the message up to the `seq` field, `tail` is what follows it up to the row.
    """

    inserts: Callable[[list[bytes], int, int, bytes, bytes, int, bytes], list[EncodedRow]]
    """(frames, index of the first, offset of the message, its first bytes, head, first ordinal, tail): many INSERTs."""
    whole: Callable[[bytes, int, bytes, bytes, bytes, bytes], EncodedRow]
    """(…, marker, head, seq, tail): an INSERT, or a DELETE with a full old image."""
    delete_key: Callable[[bytes, int, bytes, bytes, bytes], EncodedRow]
    """(…, head, seq, xid and commit time): a DELETE with only the key."""
    update_key: Callable[[bytes, int, bytes, bytes, bytes, bytes, bytes], EncodedUpdate]
    """(…, head of D, head of I, both seqs, xid and commit time): an UPDATE without an old image."""
    update_full: Callable[[bytes, int, bytes, bytes, bytes, bytes, bytes], EncodedUpdate]
    """The same arguments: an UPDATE with a full old image."""


@lru_cache(maxsize=4096)
def generate_functions(schema: TableSchema, identity: frozenset[int], leaf: int | None = None) -> GeneratedFunctions:
    """Generate and compile the functions of a relation. Cached, because the server repeats its Relation messages."""
    space = names(schema, identity)
    if leaf is not None:
        space["LF"] = column_long(leaf)
    exec(_compile(schema, identity), space)  # noqa: S102
    return GeneratedFunctions(*(space[field.name] for field in fields(GeneratedFunctions)))


@lru_cache(maxsize=256)
def _compile(schema: TableSchema, identity: frozenset[int]) -> CodeType:
    """Compile the functions once for all leaf partitions of a table."""
    source = "\n".join(line for lines in generate_source(schema, identity) for line in lines)
    return compile(source, f"<generated for relation {schema.relid}>", "exec")


def generate_source(schema: TableSchema, identity: frozenset[int]) -> list[list[str]]:
    """Generate the source lines of every function of a relation."""
    return _Writer(schema, identity).write_all()


class _Writer:
    """Writes the source lines of one relation's functions."""

    def __init__(self, schema: TableSchema, identity: frozenset[int]) -> None:
        sent = schema.columns[: schema.leaf_ordinal]
        self._types = [column.type for column in sent]
        self._identity = identity
        self._width = len(self._types)
        self._leaf = "" if schema.leaf_ordinal is None else "LF,"
        names = [column.name for column in sent]
        self._key = [names.index(name) for name in schema.key]

    def write_all(self) -> list[list[str]]:
        """Return the source lines of every function."""
        updates = [self.update_key(), self.update_full(), self.update_long()]
        return [self.whole(), self.inserts(), self.delete_key(), *updates]

    def whole(self) -> list[str]:
        value = f"J((head,seq,tail,{self._pieces(range(self._width))}{self._leaf}))"
        return [
            "def whole(b,p,mark,head,seq,tail):",
            *indent(["if b[p:p+3]!=mark: raise SlowPathRow", "p+=3", *self._tuple()]),
            *indent([f"return {self._key_source()},{value}"]),
        ]

    def inserts(self) -> list[str]:
        """Several rows, most of which have no NULL and no long value: one call splits a row into all its columns.

        Values are text and contain no NUL byte. So `t` and three NUL bytes can only be the start of a column of less
        than 256 bytes. If there are as many of them as columns, the tuple contains nothing else.
        """
        value = f"J((head,seq,tail,{self._pieces(range(self._width))}{self._leaf}))"
        body = [
            "if b[at:to]!=mark or b[0]!=119: break",
            "seq=EN[o<<1] if o<8192 else PA[o<<1&16383]+EN[o>>13] if o<134217728 else VI(o<<1)",
            "o+=1",
            "c=b[to:].split(T)",
            f"if len(c)!={self._width + 1} or c[0]:",
            "  add(whole(b,at+5,NEW,head,seq,tail))",
            "  continue",
            f"{','.join(['_', *(f'c{i}' for i in range(self._width))])},=c",
            *(line for i in range(self._width) for line in self._convert_split_column(i, f"c{i}")),
            f"add(({self._key_source()},{value}))",
        ]
        loop = ["for i in range(i,len(frames)):", "  b=frames[i]", *indent(body)]
        return [
            "def inserts(frames,i,at,mark,head,o,tail):",
            *indent(["to=at+8", "out=[]", "add=out.append"]),
            *indent(["try:", *indent(loop), "except SLOW_PATH: pass", "return out"]),
        ]

    def _convert_split_column(self, i: int, name: str) -> list[str]:
        """Convert a column that was split off: `name` holds the last byte of its length, then the value."""
        kind = self._types[i]
        if kind.physical_type is PhysicalType.BOOLEAN:
            return [f"x{i}=BC[{name}]"]
        return [f"p=len({name}); l=p-1", f"if {name}[0]!=l: raise SlowPathRow", *convert(i, kind, Text(name, "1"))]

    def delete_key(self) -> list[str]:
        value = f"J((head,seq,xt,DELETED,{self._identity_pieces()}))"
        return [
            "def delete_key(b,p,head,seq,xt):",
            *indent(["if b[p:p+3]!=KEY: raise SlowPathRow", "p+=3", *self._tuple(), *self._check_identity()]),
            *indent([f"return {self._key_source(identity_only=True)},{value}"]),
        ]

    def update_key(self) -> list[str]:
        deleted = f"J((hd,sd,xt,CHANGED_D,{self._identity_pieces()}))"
        inserted = f"J((hi,si,xt,CHANGED_I,{self._pieces(range(self._width))}{self._leaf}))"
        keys = self._key_source(identity_only=True), self._key_source()
        return [
            "def update_key(b,p,hd,hi,sd,si,xt):",
            *indent(["if b[p:p+3]!=NEW: raise SlowPathRow", "p+=3", *self._tuple(), *self._check_identity()]),
            *indent([f"return {keys[0]},{deleted},{keys[1]},{inserted}"]),
        ]

    def update_full(self) -> list[str]:
        """One call splits both images into columns, as in `inserts`; `update_long` handles NULLs and long values."""
        width, last = self._width, self._width - 1
        if not width:
            return ["def update_full(*given): return update_long(*given)"]
        old: list[str] = [
            "if b[p:p+3]!=OLD: raise SlowPathRow",
            "c=b[p+3:].split(T)",
            f"if len(c)!={2 * width + 1} or c[0]: return update_long(b,p,hd,hi,sd,si,xt)",
            f"_,{','.join(f'{image}{i}' for image in 'cd' for i in range(width))}=c",
            f"if c{last}[-3:]!=NEW: raise SlowPathRow",
            f"c{last}=c{last}[:-3]",
        ]
        new: list[str] = ["m=0"]
        for number, segment in enumerate(self._segments()):
            old += [line for i in segment for line in self._convert_split_column(i, f"c{i}")]
            old.append(f"s{number}=J(({self._pieces(segment)}))")
            new += [f"if {' and '.join(f'c{i}==d{i}' for i in segment)}: r{number}=s{number}", "else:"]
            for i in segment:
                new += [f"  if c{i}!=d{i}:", *indent([f"m|={1 << i}", *self._convert_split_column(i, f"d{i}")], 4)]
            new.append(f"  r{number}=J(({self._pieces(segment)}))")
        return self._update_function("update_full", old, new)

    def update_long(self) -> list[str]:
        old: list[str] = ["if b[p:p+3]!=OLD: raise SlowPathRow", "p+=3"]
        new: list[str] = ["if b[p:p+3]!=NEW: raise SlowPathRow", "p+=3", "m=0"]
        for number, segment in enumerate(self._segments()):
            for i in segment:
                old += [f"p{i}=p", *self._column(i, guarded=False)]
            old.append(f"s{number}=J(({self._pieces(segment)}))")
            new += self._compare(number, segment)
        old.append(f"p{self._width}=p")
        return self._update_function("update_long", old, [*new, "if p!=len(b): raise SlowPathRow"])

    def _segments(self) -> list[range]:
        return [range(i, min(i + SEGMENT, self._width)) for i in range(0, self._width, SEGMENT)]

    def _update_function(self, name: str, old: list[str], new: list[str]) -> list[str]:
        """Join the lines: `old` computes the segments s of the old image, `new` the segments r and the mask m."""
        joined = [",".join(f"{letter}{n}" for n in range(len(self._segments()))) for letter in "sr"]
        if self._leaf:
            joined = [f"{segments},{self._leaf}" if segments else self._leaf for segments in joined]
        values = f"J((hd,sd,xt,c,{joined[0]}))", f"J((hi,si,xt,c,{joined[1]}))"
        return [
            f"def {name}(b,p,hd,hi,sd,si,xt):",
            *indent([*old, f"k={self._key_source()}", *new, "c=CH[m]"]),
            *indent([f"return k,{values[0]},{self._key_source()},{values[1]}"]),
        ]

    def _compare(self, number: int, segment: range) -> list[str]:
        """Read the new columns of a segment: a column with the same bytes as the old one reuses its pieces."""
        first, after = segment[0], segment[-1] + 1
        lines = [f"e=p+p{after}-p{first}", f"if b[p:e]==b[p{first}:p{after}]: p=e; r{number}=s{number}", "else:"]
        for i in segment:
            bit = 1 << i
            lines += [f"  e=p+p{i + 1}-p{i}", f"  if b[p:e]==b[p{i}:p{i + 1}]: p=e", "  else:"]
            # An unchanged TOASTed value has the value of the old image.
            same = ["if b[p]==117: p+=1", "else:", *indent([f"m|={bit}", *self._column(i, guarded=True)])]
            lines += indent(same, 4)
        return [*lines, f"  r{number}=J(({self._pieces(segment)}))"]

    def _tuple(self) -> list[str]:
        """Read the last tuple of a message.

        A NULL takes one byte, so only the last four columns can be too close to the end to read a length.
        """
        lines = [line for i in range(self._width) for line in self._column(i, guarded=self._width - i < 5)]
        return [*lines, "if p!=len(b): raise SlowPathRow"]

    def _column(self, i: int, *, guarded: bool) -> list[str]:
        kind = self._types[i]
        null = f"x{i}=N0; y{i}=E; p+=1" if self._has_two_pieces(i) else f"x{i}=N0; p+=1"
        if kind.physical_type is PhysicalType.BOOLEAN:
            return [f"x{i}=BO(b[p:p+6])", f"if x{i}: p+=6", f"elif b[p]==110: {null}", "else: raise SlowPathRow"]
        head = ["t=b[p]"] if guarded else ["t,l=H(b,p)"]
        length = ["l,=U(b,p+1)"] if guarded else []
        body = indent([*length, "q=p+5; p=q+l", *convert(i, kind)])
        return [*head, "if t==116:", *body, f"elif t==110: {null}", "else: raise SlowPathRow"]

    def _has_two_pieces(self, i: int) -> bool:
        return has_two_pieces(self._types[i])

    def _pieces(self, ordinals: range | list[int]) -> str:
        return "".join(f"x{i},y{i}," if self._has_two_pieces(i) else f"x{i}," for i in ordinals)

    def _identity_pieces(self) -> str:
        known = "".join(self._pieces([i]) if i in self._identity else "N0," for i in range(self._width))
        return known + self._leaf

    def _check_identity(self) -> list[str]:
        return [f"if x{i} is N0: raise SlowPathRow" for i in sorted(self._identity)]

    def _key_source(self, *, identity_only: bool = False) -> str:
        if not self._key:
            return "None"
        known = [i for i in self._key if i in self._identity or not identity_only]
        if len(self._key) == 1 and known and not self._has_two_pieces(known[0]):
            return f"x{known[0]}"
        return f"J(({''.join(self._pieces([i]) if i in known else 'N0,' for i in self._key)}))"


def indent(lines: list[str], by: int = 2) -> list[str]:
    """Indent source lines."""
    return [" " * by + line for line in lines]
