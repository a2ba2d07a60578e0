"""FROM items -> plan nodes and their columns; a LATERAL item is joined to the items before it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from applier.plan.expr import Col, Const, Expr
from applier.plan.nodes import (
    ColumnName,
    Node,
    Project,
    Recursion,
    TableFunction,
    UnionAll,
    Unnest,
    Values,
    WorkTable,
    fields,
    named,
)
from applier.sql.bound.nodes import (
    Alias,
    CastQuery,
    FunctionItem,
    NodeItem,
    QueryItem,
    RecursionItem,
    Select,
    ValuesItem,
    WorkTableItem,
)
from applier.sql.decorrelate.lateral import LateralItem, join_query
from applier.sql.decorrelate.lowered import bound_columns, project_columns, resolve_over
from applier.sql.decorrelate.scope import DOMAIN_ITEM, Decorrelator, Domain, Rows
from applier.sql.refusal import Reason, Refused, inside_view

Conditions = tuple[tuple[Expr, int | None], ...]
"""Conditions with their positions in the text."""


def lower_item(decorrelator: Decorrelator, select: Select, domain: Domain | None, number: int) -> Rows:
    """Return the rows of an item that reads no other item."""
    if number == DOMAIN_ITEM:
        if domain is None:
            raise AssertionError("no domain")
        node: Node = named(domain.node, {})
        return _rows(select, domain, number, node, {i: i for i in range(len(fields(node)))})
    item = select.items[number]
    ordinals: Mapping[int, int]
    match item:
        case NodeItem():
            node, ordinals = item.node, item.ordinals
        case QueryItem():
            node, ordinals = _lower_query(decorrelator, item)
        case FunctionItem():
            node = Unnest(Values(((),), ()), item.functions, item.ordinality, outer=False)
            ordinals = {i + 1: i for i in range(len(fields(node)))}
        case ValuesItem():
            node, ordinals = Values(item.rows, item.fields), {r: i for i, r in enumerate(item.reads)}
        case WorkTableItem():
            node = WorkTable(decorrelator.work_tables[item.recursion], item.fields)
            ordinals = {r: r - 1 for r in item.reads}
        case RecursionItem():
            node, ordinals = _lower_recursion(decorrelator, item, domain), {r: r - 1 for r in item.reads}
        case _:
            assert_never(item)
    return _rows(select, domain, number, named(node, _column_names(item.alias, ordinals)), ordinals)


def join_lateral(decorrelator: Decorrelator, rows: Rows, number: int, *, on: Conditions | None) -> Rows:
    """Join a LATERAL item to the rows of the items before it; `on` is None in an inner join."""
    item = rows.select.items[number]
    conditions = () if on is None else tuple(c for c in on if not _is_true(c[0]))
    match item:
        case QueryItem():
            joined = join_query(decorrelator, rows, LateralItem(number, item, on is not None, conditions))
        case FunctionItem() if not conditions:
            joined = _unnest(rows, number, item, outer=on is not None)
        case ValuesItem() if on is None:
            joined = _join_values(rows, number, item)
        case FunctionItem(as_query=QueryItem() as query) | ValuesItem(as_query=QueryItem() as query):
            # A query can be joined with a condition.
            joined = join_query(decorrelator, rows, LateralItem(number, query, True, conditions))
        case _:
            raise Refused(Reason.CONSTRUCT, "LATERAL", hint="join the tables instead")
    ordinals = {read: ordinal for (of, read), ordinal in joined.ordinals.items() if of == number}
    return replace(joined, node=named(joined.node, _column_names(item.alias, ordinals)))


def map_function(function: TableFunction, change: Callable[[Expr], Expr]) -> TableFunction:
    """Return the same call with other arguments."""
    return replace(function, args=tuple(map(change, function.args)))


def _is_true(condition: Expr) -> bool:
    return isinstance(condition, Const) and condition.value is True


def _rows(select: Select, domain: Domain | None, number: int, node: Node, ordinals: Mapping[int, int]) -> Rows:
    return Rows(select, domain, node, {(number, n): at for n, at in ordinals.items()}, frozenset({number}))


def _join_values(rows: Rows, number: int, item: ValuesItem) -> Rows:
    """Join every row with each row of VALUES."""
    width, scope, shown = len(fields(rows.node)), rows.scope, bound_columns(rows.node)
    branches = [Project(rows.node, (*shown, *map(scope.resolve, row))) for row in item.rows]
    node: Node = branches[0] if len(branches) == 1 else UnionAll(tuple(branches))
    ordinals = rows.ordinals | {(number, r): width + i for i, r in enumerate(item.reads)}
    return replace(rows, node=node, ordinals=ordinals, items=rows.items | {number})


def _unnest(rows: Rows, number: int, item: FunctionItem, *, outer: bool) -> Rows:
    functions = tuple(map_function(f, rows.scope.resolve) for f in item.functions)
    node = Unnest(rows.node, functions, item.ordinality, outer)
    width, count = len(fields(rows.node)), len(functions) + item.ordinality
    ordinals = rows.ordinals | {(number, i + 1): width + i for i in range(count)}
    return replace(rows, node=node, ordinals=ordinals, items=rows.items | {number})


def _lower_query(decorrelator: Decorrelator, item: QueryItem) -> tuple[Node, dict[int, int]]:
    if item.view is not None:
        with inside_view(item.view):
            return _lower_query(decorrelator, replace(item, view=None))
    lowered = decorrelator.query(item.query)
    shown = fields(lowered.node)
    if all(isinstance(e, Col) and e.type == shown[e.ordinal].type for e in lowered.exprs):
        pairs = zip(item.reads, lowered.exprs, strict=True)
        return lowered.node, {r: e.ordinal for r, e in pairs if isinstance(e, Col)}
    return Project(lowered.node, lowered.exprs), {r: i for i, r in enumerate(item.reads)}


def _lower_recursion(decorrelator: Decorrelator, item: RecursionItem, domain: Domain | None) -> Node:
    if item.correlation.reads:
        construct, hint = "WITH RECURSIVE that reads an outer query", "join the subquery in FROM"
        raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=None if domain is None else domain.at)
    number = decorrelator.next_recursion()
    base = cast_columns(decorrelator, item.base)
    decorrelator.work_tables[item.number] = number
    step = cast_columns(decorrelator, item.step)
    return Recursion(number, base, step, item.distinct)


def cast_columns(decorrelator: Decorrelator, branch: CastQuery) -> Node:
    """Return the rows of a query with its columns in other types."""
    lowered = decorrelator.query(branch.query)
    return project_columns(lowered.node, tuple(resolve_over(cast, lowered.exprs) for cast in branch.casts))


def _column_names(alias: Alias, ordinals: Mapping[int, int]) -> dict[int, ColumnName]:
    """Return the query's names of the columns, by their ordinals."""
    item, columns = alias
    return {
        ordinal: ColumnName(item, columns[read - 1]) for read, ordinal in ordinals.items() if 0 < read <= len(columns)
    }
