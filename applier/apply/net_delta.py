"""Z-set rows of one window -> the net difference, and what it does to each identified row. Pure, on Arrow.

Σ weights per distinct row, zeros dropped; then, where rows have a key, at most one action per key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from applier.zset import WEIGHT, column_names

Row = tuple[Any, ...]


class Action(Enum):
    """What happens to one row of a keyed stream table."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


@dataclass(frozen=True, slots=True)
class RowChange:
    """One action: the row before (None for INSERT) and after (None for DELETE)."""

    action: Action
    old: Row | None
    new: Row | None


def net_rows(rows: pa.Table, width: int) -> pa.Table:
    """Σ weights per distinct row, zeros dropped.

    Every column of the result is nullable: what Spark proves never null depends on the query that made the rows, and
    deltas of one stream table come from several.
    """
    names = column_names(width)
    rows = rows.cast(pa.schema([column.with_nullable(True) for column in rows.schema]))
    if not rows.num_rows:
        return rows
    if not names:
        raise AssertionError("a stream table has at least one column")
    summed = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
    summed = summed.rename_columns([*names, WEIGHT])
    return summed.filter(pc.not_equal(summed[WEIGHT], 0))


def row_tuples(rows: pa.Table) -> Iterator[Row]:
    """Rows as Python tuples, the weight last."""
    for batch in rows.to_batches():
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def identity(row: Row) -> Row:
    """The row as something that equals itself: PostgreSQL's NaN equals NaN, Python's does not."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)


def keyed_changes(rows: pa.Table, key: tuple[int, ...]) -> list[RowChange]:
    """The net rows of a keyed stream table as one action per key, deletions first."""
    old: dict[Row, Row] = {}
    new: dict[Row, Row] = {}
    for *values, weight in row_tuples(rows):
        row = tuple(values)
        side = new if weight > 0 else old
        place = identity(tuple(row[i] for i in key))
        if abs(weight) != 1 or place in side:
            raise AssertionError("rows of a keyed result share a key")
        side[place] = row
    changes = [RowChange(Action.DELETE, row, None) for k, row in old.items() if k not in new]
    changes += [RowChange(Action.UPDATE, row, new[k]) for k, row in old.items() if k in new]
    changes += [RowChange(Action.INSERT, None, row) for k, row in new.items() if k not in old]
    return changes
