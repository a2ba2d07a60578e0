"""Splits row messages into change rows: an UPDATE becomes a D and an I. Generated encoders are tested against it.

`unknown` of an old image: without REPLICA IDENTITY FULL, every column outside the replica identity. `unknown` of a new
image: TOASTed values that did not change, unless the old image holds them.

`changed` of an UPDATE is the same on both rows. With a full old image it is exactly the columns that differ. Otherwise
the stream does not say, so it is every column that may differ: all columns that were sent, except identity columns
that are known to be equal. A superset is safe: readers use `changed` only to skip work for columns that certainly did
not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cdc_consumer.change_rows.values import RowParser
from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.messages import (
    Begin,
    Delete,
    Field,
    Insert,
    OldImage,
    Relation,
    RowMessage,
    Tuple,
    Unchanged,
    Update,
)
from shared_schema.change_row import ChangeRow, Op, Stamp, Value
from shared_schema.table_schema import ReplicaIdentity, TableSchema


class ValueParser(Protocol):
    """Reads one column of a streamed tuple."""

    def value(self, ordinal: int, raw: bytes) -> Value:
        """Parse the text of a column -> its value."""


class TableReader:
    """Reads the tuples of a relation.

    `identity` holds the ordinals of the replica identity's columns. Under FULL the stream flags every column, so it is
    the key: only an old image that is not full asks for it.

    The relation may be a leaf partition, and the schema that of its root: the same columns, perhaps in another order,
    and the leaf column.
    """

    def __init__(self, relation: Relation, schema: TableSchema) -> None:
        self.relation = relation
        self.schema = schema
        self.parser: ValueParser = RowParser(schema)
        self.width = len(relation.columns)
        """The number of columns of a tuple."""
        self.leaf = relation.relid if schema.leaf_ordinal is not None else None
        full = relation.replica_identity is ReplicaIdentity.FULL
        sent = {c.name: (i, c) for i, c in enumerate(relation.columns)}
        self._order = tuple(sent[c.name][0] for c in schema.columns if c.name in sent)
        self.is_ordered = self._order == tuple(range(self.width))
        """Whether a tuple has its columns in the order of the schema."""
        self.identity = frozenset(
            i
            for i, c in enumerate(schema.columns)
            if c.name in sent and (c.name in schema.key if full else sent[c.name][1].in_key)
        )

    def arrange(self, message: RowMessage) -> RowMessage:
        """Return the message with its tuples in the order of the schema, and with the leaf column."""
        if self.leaf is None:
            return message
        match message:
            case Insert(relid=relid, new=new):
                return Insert(relid, self._arrange(new))
            case Delete(relid=relid, old=old):
                return Delete(relid, OldImage(self._arrange(old.values), old.full))
            case Update(relid=relid, old=old, new=new):
                before = None if old is None else OldImage(self._arrange(old.values), old.full)
                return Update(relid, before, self._arrange(new))

    def _arrange(self, fields: Tuple) -> Tuple:
        if len(fields) != self.width:
            raise MalformedMessage(f"a tuple has {len(fields)} columns, its relation has {self.width}", offset=5)
        return (*(fields[place] for place in self._order), b"%d" % (self.leaf or 0))


@dataclass(frozen=True, slots=True)
class _Image:
    values: tuple[Value, ...]
    unknown: frozenset[int]


class Transaction:
    """Numbers the change rows of one transaction in the order of the stream."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.ordinal = 0
        """The ordinal of the next change row."""

    def truncate(self) -> ChangeRow:
        """Return the T row of one relation."""
        return self._row(Op.TRUNCATE, None, None)

    def truncate_leaf(self, schema: TableSchema, leaf: int) -> ChangeRow:
        """Return the T row of one leaf partition."""
        return truncate_leaf(schema, leaf, self.stamp(), self.begin.xid, self.begin.commit_ts_us)

    def skip(self, message: RowMessage) -> None:
        """Skip the ordinals of a row that is not captured, so that numbering does not depend on the captured tables."""
        self.ordinal += 2 if isinstance(message, Update) else 1

    def split(self, message: RowMessage, table: TableReader) -> tuple[ChangeRow, ...]:
        """Turn one row message into one or two change rows."""
        match table.arrange(message):
            case Insert(new=new):
                return (self._row(Op.INSERT, _image(new, table), None),)
            case Delete(old=old):
                return (self._row(Op.DELETE, _image(_old_fields(old, table), table), None),)
            case Update(old=old, new=new):
                before, after = _update_fields(old, new, table)
                changed = _changed(before, after)
                return (
                    self._row(Op.DELETE, _image(before, table), changed),
                    self._row(Op.INSERT, _image(after, table), changed),
                )

    def stamp(self) -> Stamp:
        """Return the next stamp of the transaction and advance the ordinal."""
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        return Stamp(self.begin.commit_lsn, ordinal)

    def _row(self, op: Op, image: _Image | None, changed: frozenset[int] | None) -> ChangeRow:
        return ChangeRow(
            op=op,
            stamp=self.stamp(),
            xid=self.begin.xid,
            commit_ts_us=self.begin.commit_ts_us,
            values=None if image is None else image.values,
            changed=changed,
            unknown=frozenset() if image is None else image.unknown,
        )


def truncate_leaf(
    schema: TableSchema, leaf: int, stamp: Stamp, xid: int, commit_ts_us: int, *, snapshot: bool = False
) -> ChangeRow:
    """Return the T row of one leaf partition: nothing of it is known but the leaf."""
    others = len(schema.columns) - 1
    unknown = frozenset(range(others))
    values: tuple[Value, ...] = (*[None] * others, leaf)
    return ChangeRow(Op.TRUNCATE, stamp, xid, commit_ts_us, values, unknown=unknown, snapshot=snapshot)


def _image(fields: Tuple, table: TableReader) -> _Image:
    width = len(table.schema.columns)
    if len(fields) != width:
        raise MalformedMessage(f"a tuple has {len(fields)} columns, its relation has {width}", offset=5)
    values: list[Value] = []
    unknown: set[int] = set()
    for ordinal, field in enumerate(fields):
        if isinstance(field, bytes):
            values.append(table.parser.value(ordinal, field))
            continue
        values.append(None)
        if field is Unchanged.TOAST:
            unknown.add(ordinal)
    return _Image(tuple(values), frozenset(unknown))


def _old_fields(old: OldImage, table: TableReader) -> Tuple:
    """Return the old tuple; columns that a key image does not contain are marked as not sent.

    Identity columns are never NULL.
    """
    if old.full:
        return old.values
    leaf = table.schema.leaf_ordinal
    return tuple(
        field if (i in table.identity and field is not None) or i == leaf else Unchanged.TOAST
        for i, field in enumerate(old.values)
    )


def _update_fields(old: OldImage | None, new: Tuple, table: TableReader) -> tuple[Tuple, Tuple]:
    if old is None:
        # The identity did not change, so the identity columns of the new tuple are also those of the old one.
        old = OldImage(new, full=False)
    before = _old_fields(old, table)
    if len(before) != len(new):
        raise MalformedMessage(f"an update has {len(before)} old and {len(new)} new columns", offset=5)
    after = tuple(b if a is Unchanged.TOAST else a for b, a in zip(before, new, strict=True))
    return before, after


def _changed(before: Tuple, after: Tuple) -> frozenset[int]:
    def may_differ(old: Field, new: Field) -> bool:
        return new is not Unchanged.TOAST and old != new

    return frozenset(i for i, (old, new) in enumerate(zip(before, after, strict=True)) if may_differ(old, new))
