"""The net difference of one window -> what it does to each row: at most one action per key. Pure, on Arrow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

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
