"""A plan -> for each output column, the table columns from which its values are computed. Pure.

    lineage(Scan)_i = {table.column_i}      lineage(f(a, b)) = lineage(a) ∪ lineage(b)

Values only: the columns by which a filter or a join selects rows are not part of the lineage of other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from applier.plan.expr import AggregateCall, Col, Expr, columns_read
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
    TopK,
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    fields,
)
from applier.plan.window import WindowCall
from shared_schema.table_schema import TableId

Origin = frozenset[tuple[TableId, str]]

NO_ORIGIN: Origin = frozenset()


def column_of(node: Node, ordinal: int) -> tuple[Scan, int] | None:
    """Return the relation's column that filters and projections pass through unchanged at this place, or None."""
    match node:
        case Scan():
            return node, ordinal
        case Filter():
            return column_of(node.input, ordinal)
        case Project() if isinstance(passed := node.exprs[ordinal], Col):
            return column_of(node.input, passed.ordinal)
        case _:
            return None


def lineage(node: Node) -> tuple[Origin, ...]:
    """Return per output column the table columns from which it is computed; a recursion: those of base and step."""
    match node:
        case Scan():
            return tuple(frozenset({(node.table, column)}) for column in node.columns)
        case Values() | WorkTable():
            return tuple(NO_ORIGIN for _ in fields(node))
        case Recursion():
            return _unite([lineage(node.base), lineage(node.step)])
        case Filter() | TopK() | Repeat():
            return lineage(node.input)
        case Project():
            below = lineage(node.input)
            return tuple(_origins_of([e], below) for e in node.exprs)
        case Unnest():
            below = lineage(node.input)
            members = tuple(_origins_of(each.args, below) for each in node.sets)
            return below + members + ((NO_ORIGIN,) if node.ordinality else ())
        case Join() | OuterJoin():
            return lineage(node.left) + lineage(node.right)
        case SemiJoin():
            return lineage(node.left)
        case Aggregate():
            below = lineage(node.input)
            keys = tuple(_origins_of([key], below) for key in node.keys)
            return keys + tuple(_origins_of(_call_exprs(call), below) for call in node.calls)
        case Window():
            below = lineage(node.input)
            return below + tuple(_origins_of(_window_exprs(call), below) for call in node.calls)
        case UnionAll():
            return _unite([lineage(branch) for branch in node.branches])
        case _:
            assert_never(node)


def _unite(branches: list[tuple[Origin, ...]]) -> tuple[Origin, ...]:
    return tuple(NO_ORIGIN.union(*column) for column in zip(*branches, strict=True))


def _origins_of(exprs: Iterable[Expr], below: tuple[Origin, ...]) -> Origin:
    return NO_ORIGIN.union(*(below[ordinal] for expr in exprs for ordinal in columns_read(expr)))


def _call_exprs(call: AggregateCall) -> Iterator[Expr]:
    yield from call.args
    yield from call.direct
    yield from call.distinct_by
    yield from (key.expr for key in call.order)
    if call.filter is not None:
        yield call.filter


def _window_exprs(call: WindowCall) -> Iterator[Expr]:
    yield from call.args
    yield from call.partition
    yield from (key.expr for key in call.order)
    if call.aggregate is not None:
        yield from _call_exprs(call.aggregate)
