"""Row keys: which output columns of a node identify its rows. Pure.

The *row key* of a node is a set of output ordinals whose values are unique in its result: `()` means that there is at
most one row, None that rows may repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from applier.plan.expr import Coalesce, Col, Const, Expr, IsNull, Widen
from applier.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    SetReturningFunction,
    TopK,
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    fields,
)
from applier.plan.sort import fixed_columns

_RISING = frozenset({SetReturningFunction.SERIES, SetReturningFunction.MOMENTS, SetReturningFunction.CALENDAR})
"""Functions whose members are all distinct."""


def row_key(node: Node) -> tuple[int, ...] | None:
    """Return the output ordinals that identify a row; None when rows may repeat."""
    match node:
        case Scan():
            return node.key
        case Values():
            return () if len(node.rows) == 1 else None
        case WorkTable():
            return None
        case Recursion():
            return tuple(range(len(fields(node)))) if node.distinct else None
        case Unnest():
            return _unnest_key(node)
        case Filter() | Window():
            return row_key(node.input)
        case Project():
            return _project_key(row_key(node.input), node.exprs)
        case Join():
            return _join_key(node)
        case SemiJoin():
            return row_key(node.left)
        case OuterJoin():
            return _outer_key(node)
        case Aggregate():
            return tuple(range(len(node.keys)))
        case UnionAll() | Repeat():
            return None
        case TopK():
            return _top_k_key(node)
        case _:
            assert_never(node)


def _join_key(node: Join) -> tuple[int, ...] | None:
    """Return the key of a join. Columns that the pairs bind are known from the other row.

    So a side whose whole key is bound adds nothing to the key.
    """
    left, right = row_key(node.left), row_key(node.right)
    if left is None or right is None:
        return None
    width, bound = len(fields(node.left)), _bound_columns(right_expr for _, right_expr in node.equi)
    if not set(right) <= bound and set(left) <= _bound_columns(left_expr for left_expr, _ in node.equi):
        return tuple(width + i for i in right)
    return left + tuple(width + i for i in right if i not in bound)


def _outer_key(node: OuterJoin) -> tuple[int, ...] | None:
    """Return both keys: a row that has no match has NULL in the key of the other side, and occurs only once.

    In a full join an unmatched left row and an unmatched right row are distinct only where a key column is never NULL.
    """
    left, right = row_key(node.left), row_key(node.right)
    if left is None or right is None:
        return None
    columns = fields(node.left), fields(node.right)
    if node.full and all(columns[0][i].nullable for i in left) and all(columns[1][i].nullable for i in right):
        return None
    bound = set() if node.full else _bound_columns(right_expr for _, right_expr in node.equi)
    return left + tuple(len(columns[0]) + i for i in right if i not in bound)


def _unnest_key(node: Unnest) -> tuple[int, ...] | None:
    """Return the input's key and the number of the member, or the member itself where no member repeats."""
    key, width = row_key(node.input), len(fields(node.input))
    if key is not None and node.ordinality:
        return (*key, width + len(node.sets))
    rising = len(node.sets) == 1 and node.sets[0].function in _RISING
    return (*key, width) if key is not None and rising else None


def _top_k_key(node: TopK) -> tuple[int, ...] | None:
    """Return the keys where there is one row for each combination of them, otherwise the row key of the input."""
    if node.limit == 1 and not node.ties and all(isinstance(key, Col) for key in node.keys):
        return tuple(sorted(fixed_columns(node.keys))) if len(fixed_columns(node.keys)) == len(set(node.keys)) else None
    return row_key(node.input)


def is_order_decided(node: TopK) -> bool:
    """Whether rows that are equal in the order are always the same row, so that there is only one right result."""
    by_order = (*node.keys, *(key.expr for key in node.order))
    return (node.ties and not node.offset) or identifies_rows(node.input, by_order)


def identifies_rows(node: Node, exprs: tuple[Expr, ...]) -> bool:
    """Whether rows of the node for which all these expressions are equal are always the same row."""
    fixed, key = _determined_columns(node, frozenset(fixed_columns(exprs))), row_key(node)
    return (key is not None and set(key) <= fixed) or len(fixed) == len(fields(node))


def _determined_columns(node: Node, fixed: frozenset[int]) -> frozenset[int]:
    """Return the columns that the fixed columns determine: these, and those that an inner join makes equal to them."""
    match node:
        case Filter() | Repeat():
            return _determined_columns(node.input, fixed)
        case Join():
            width = len(fields(node.left))
            left = _determined_columns(node.left, frozenset(i for i in fixed if i < width))
            right = _determined_columns(node.right, frozenset(i - width for i in fixed if i >= width))
            equal = _equal_columns(node.equi)
            left |= {left_column for left_column, right_column in equal if right_column in right}
            right |= {right_column for left_column, right_column in equal if left_column in left}
            return fixed | left | {width + i for i in right}
        case _:
            return fixed


def _equal_columns(equi: tuple[tuple[Expr, Expr], ...]) -> list[tuple[int, int]]:
    """Return the pairs of columns that the conditions make equal, or both NULL."""
    found = []
    for pair in equi:
        match tuple(map(_without_widen, pair)):
            # Zero and negative zero compare equal but are not the same value.
            case (Col() as left_column, Col() as other) if left_column.type.spark not in ("float", "double"):
                found.append((left_column.ordinal, other.ordinal))
            case (Coalesce(args=(Col() as left_column, Const())), Coalesce(args=(Col() as other, Const()))):
                if any(isinstance(a, IsNull) and a.arg == left_column for a, _ in equi):
                    found.append((left_column.ordinal, other.ordinal))
            case _:
                continue
    return found


def _bound_columns(sides: Iterable[Expr]) -> set[int]:
    """Return the columns that one side of the pairs fixes; a wider physical type fixes them too.

    Coalesce with a constant fixes a column together with a test for NULL.
    """
    plain = [_without_widen(side) for side in sides]
    found = {side.ordinal for side in plain if isinstance(side, Col)}
    tested = {side.arg for side in plain if isinstance(side, IsNull)}
    for side in plain:
        match side:
            case Coalesce(args=(Col() as column, Const())) if column in tested:
                found.add(column.ordinal)
            case _:
                continue
    return found


def _without_widen(expr: Expr) -> Expr:
    return _without_widen(expr.arg) if isinstance(expr, Widen) else expr


def _project_key(key: tuple[int, ...] | None, exprs: tuple[Expr, ...]) -> tuple[int, ...] | None:
    if key is None:
        return None
    place = {e.ordinal: i for i, e in reversed(list(enumerate(exprs))) if isinstance(e, Col)}
    return tuple(place[i] for i in key) if all(i in place for i in key) else None
