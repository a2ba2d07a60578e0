"""Images that leave columns out, completed by the row they belong to. Pure.

Without REPLICA IDENTITY FULL an old image is the key alone, and a new one lacks the large values that stay as they are.
Under the key of an old image the trace holds one row, and that is the row which leaves; a new image stands directly
behind the old one of its UPDATE. What still is not known then is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from applier.errors import SourceChanged
from applier.trace.align import AlignedRow
from applier.trace.columns import TraceColumn
from applier.zset import Row
from shared_schema.change_row import Op
from shared_schema.table_schema import TableId

Places = tuple[int, ...]
Held = Callable[[Places, list[Row]], Iterable[Row]]
"""Key columns and keys -> the rows that a relation has under them."""


def complete_images(table: TableId, columns: Sequence[TraceColumn], rows: Sequence[AlignedRow], held: Held) -> None:
    """Fill in what incomplete images leave out; `rows` follow, in stamp order, on what is held."""
    asked: dict[Places, dict[Row, Row | None]] = {}
    for one in rows:
        if one.known is not None and one.row.op is Op.DELETE:
            asked.setdefault(one.known, {})[_key(one.values, one.known)] = None
    for places, by_key in asked.items():
        found = list(held(places, list(by_key)))
        once = Counter(_key(row, places) for row in found)
        by_key.update({key: row for row in found if once[key := _key(row, places)] == 1})
    before: AlignedRow | None = None
    for one in rows:
        if one.known is not None:
            _fill(table, columns, one, _origin(one, before, asked))
        for places, by_key in asked.items():
            if (key := _key(one.values, places)) in by_key:
                by_key[key] = tuple(one.values) if one.row.op is Op.INSERT else None
        before = one


def _origin(one: AlignedRow, before: AlignedRow | None, asked: dict[Places, dict[Row, Row | None]]) -> Row | None:
    """The row that an incomplete image belongs to, if it is known."""
    if one.row.op is Op.DELETE:
        return asked[one.known or ()][_key(one.values, one.known or ())]
    if before is None or before.losses or before.row.op is not Op.DELETE:
        return None
    old, new = before.row.stamp, one.row.stamp
    return tuple(before.values) if (old.lsn, old.seq + 1) == (new.lsn, new.seq) else None


def _fill(table: TableId, columns: Sequence[TraceColumn], one: AlignedRow, origin: Row | None) -> None:
    for i in sorted(set(range(len(columns))) - set(one.known or ()) - {i for i, _ in one.losses}):
        one.values[i] = None if origin is None else origin[i]
        if origin is None:
            reason = SourceChanged(
                f"a change of {table} does not carry the old value of column {columns[i].name}, and the row it changes"
                " is not known",
                hint=f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL",
            )
            one.losses = [*one.losses, (i, reason)]


def _key(values: Sequence[Any], places: Places) -> Row:
    return tuple(values[i] for i in places)
