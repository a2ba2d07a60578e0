"""Partial images -> complete images, filled in from the rows to which they belong. Pure.

Without REPLICA IDENTITY FULL an old image contains only the key, and a new image lacks large values that did not change
(TOAST). The trace holds one row with the key of an old image, and that is the row that leaves. A new image directly
follows the old image of its UPDATE. A value that is still not known after that is lost.
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
FindRows = Callable[[Places, list[Row]], Iterable[Row]]
"""A function from key columns and keys to the rows of the relation with those keys."""


def complete_images(
    table: TableId, columns: Sequence[TraceColumn], rows: Sequence[AlignedRow], find_rows: FindRows
) -> None:
    """Fill in the values that partial images leave out; `rows` are in stamp order and follow the rows that are held."""
    rows_by_key: dict[Places, dict[Row, Row | None]] = {}
    for aligned in rows:
        if aligned.known is not None and aligned.row.op is Op.DELETE:
            rows_by_key.setdefault(aligned.known, {})[_key(aligned.values, aligned.known)] = None
    for places, by_key in rows_by_key.items():
        if not places:
            continue  # Nothing of these images is known, so no row can be found.
        found = list(find_rows(places, list(by_key)))
        counts = Counter(_key(row, places) for row in found)
        by_key.update({key: row for row in found if counts[key := _key(row, places)] == 1})
    previous: AlignedRow | None = None
    for aligned in rows:
        if aligned.known is not None:
            _fill(table, columns, aligned, _find_origin(aligned, previous, rows_by_key))
        for places, by_key in rows_by_key.items():
            if (key := _key(aligned.values, places)) in by_key:
                by_key[key] = tuple(aligned.values) if aligned.row.op is Op.INSERT else None
        previous = aligned


def _find_origin(
    aligned: AlignedRow, previous: AlignedRow | None, rows_by_key: dict[Places, dict[Row, Row | None]]
) -> Row | None:
    """Return the row to which a partial image belongs, if it is known."""
    if aligned.row.op is Op.DELETE:
        return rows_by_key[aligned.known or ()][_key(aligned.values, aligned.known or ())]
    if previous is None or previous.losses or previous.row.op is not Op.DELETE:
        return None
    old, new = previous.row.stamp, aligned.row.stamp
    return tuple(previous.values) if (old.lsn, old.seq + 1) == (new.lsn, new.seq) else None


def _fill(table: TableId, columns: Sequence[TraceColumn], aligned: AlignedRow, origin: Row | None) -> None:
    for i in sorted(set(range(len(columns))) - set(aligned.known or ()) - {i for i, _ in aligned.losses}):
        aligned.values[i] = None if origin is None else origin[i]
        if origin is None:
            reason = SourceChanged(
                f"a change of {table} does not contain the old value of column {columns[i].name}, and the row that it"
                " changes is not known",
                hint=f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL",
            )
            aligned.losses = [*aligned.losses, (i, reason)]


def _key(values: Sequence[Any], places: Places) -> Row:
    return tuple(values[i] for i in places)
