"""VALUES and functions in FROM -> Values and Unfold. Pure.

A member of FROM *leans* on those before it when it looks at their columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from applier.definition import query_tree, tree
from applier.definition.built import columns
from applier.definition.catalog import Catalog
from applier.definition.compile import Compiler
from applier.definition.refusal import Reason, Refused
from applier.definition.rewriting import Rewriting
from applier.definition.spans import literal_micros
from applier.definition.unify import unify
from applier.definition.union import meet
from applier.expressions.entry import Unfit
from applier.expressions.outputs import input_carrier
from applier.plan.expr import Const, Expr, ValueType, nullable
from applier.plan.nodes import Field, Node, Project, SetFunction, Unfold, UnionAll, Values
from shared_schema.pg_types import PgType

_SERIES = frozenset(f"generate_series({','.join([name] * n)})" for name in ("int4", "int8") for n in (2, 3))
_MOMENTS = frozenset(f"generate_series({name},{name},interval)" for name in ("timestamp", "timestamptz"))
_NUMBERS = re.compile(r"[+-]?\d[\d:.]*")
_BIGINT = ValueType(PgType(20, -1, "int8", "bigint"), "bigint")
_HINT = "store its rows in a table; generate_series, unnest and jsonb_array_elements are taken"


def leans(item: query_tree.FromItem, query: query_tree.Query) -> bool:
    """Whether it is one entry that looks at others."""
    return isinstance(item, query_tree.EntryRef) and any(query_tree.leans_on(query.entries[item.entry - 1]))


def is_true(condition: tree.Expression) -> bool:
    """Whether it is written out as true."""
    return isinstance(condition, tree.Constant) and bool(condition.datum) and any(condition.datum or b"")


def alone(entry: query_tree.FunctionEntry | query_tree.ValuesEntry, width: int) -> query_tree.Query:
    """SELECT all columns FROM the entry, which reads the query around it."""

    def column(var: tree.Var, _: int) -> tree.Expression:
        return replace(var, levels_up=var.levels_up + 1)

    change = Rewriting(column).expression
    if isinstance(entry, query_tree.FunctionEntry):
        inside: query_tree.RangeEntry = replace(entry, args=tuple(map(change, entry.args)))
    else:
        inside = replace(entry, rows=tuple(tuple(map(change, row)) for row in entry.rows))
    columns = [tree.Var(1, i, 0, -1, 0, 0, None) for i in range(1, 1 + width)]
    return query_tree.Query(
        targets=tuple(query_tree.Target(column, None, 0, False) for column in columns),
        entries=(inside,),
        items=(query_tree.EntryRef(1),),
        where=None,
        groups=(),
        having=None,
        distinct=(),
        members={},
        recursive=frozenset(),
        has_aggregates=False,
    )


def beside_each(node: Node, rows: Sequence[Sequence[Expr]], types: Sequence[PgType]) -> Node:
    """Every row of the node once for each of these rows, which are written over it."""
    branches = [Project(node, (*columns(node), *row)) for row in meet(rows, types)]
    return branches[0] if len(branches) == 1 else UnionAll(tuple(branches))


def written(entry: query_tree.ValuesEntry, reads: Sequence[int], catalog: Catalog) -> Node:
    """The columns read of VALUES."""
    compiler = Compiler(catalog, lambda _: None)
    rows = [[compiler.compile(row[r - 1]) for r in reads] for row in entry.rows]
    met = meet(rows, [catalog.pg_type(*entry.types[r - 1]) for r in reads])
    across = list(zip(*met, strict=True)) if reads else []
    return Values(tuple(met), tuple(Field(column[0].type, any(nullable(e) for e in column)) for column in across))


def unfold(node: Node, entry: query_tree.FunctionEntry, args: Sequence[Expr], catalog: Catalog, *, outer: bool) -> Node:
    """The node with the function's members beside each row."""
    info = catalog.function(entry.function)
    pg = catalog.pg_type(entry.type, -1)
    if info.signature in _SERIES:
        kind = ValueType.of_column(pg)
        return Unfold(node, SetFunction.SERIES, tuple(args), kind, entry.ordinality, outer)
    if info.signature in _MOMENTS:
        # With a time zone days have 24 hours too: every definition is read in UTC.
        function, step = _step(args[2], entry)
        kind = ValueType.of_column(pg)
        return Unfold(node, function, (*args[:2], step), kind, entry.ordinality, outer)
    if info.signature == "jsonb_array_elements(jsonb)":
        kind = ValueType.of_column(pg)
        return Unfold(node, SetFunction.MEMBERS, tuple(args), kind, entry.ordinality, outer)
    if info.signature == "unnest(anyarray)" and len(args) == 1 and args[0].type.pg.name == f"_{pg.name}":
        kind = ValueType(pg, input_carrier(pg.name))
        return Unfold(node, SetFunction.ELEMENTS, tuple(args), kind, entry.ordinality, outer)
    if info.signature == "unnest(anyarray)" and args and pg.name == args[0].type.pg.name:
        try:
            listed = unify(args)
        except Unfit as error:
            raise Refused(Reason.CARRIER, f"unnest of {error.problem}", hint=_HINT, token=entry.at) from error
        return Unfold(node, SetFunction.LISTED, listed, ValueType(pg, listed[0].type.spark), entry.ordinality, outer)
    raise Refused(Reason.FUNCTION, f"the function {info.signature} in FROM", hint=_HINT, token=entry.at)


def _step(step: Expr, entry: query_tree.FunctionEntry) -> tuple[SetFunction, Const]:
    micros = literal_micros(step)
    if micros is not None:
        return SetFunction.MOMENTS, Const(micros, _BIGINT)
    if isinstance(step, Const) and len({number.startswith("-") for number in _NUMBERS.findall(str(step.value))}) == 1:
        return SetFunction.CALENDAR, step
    hint = "write the step as a literal, all of it in one direction"
    raise Refused(Reason.CONSTRUCT, "generate_series by a computed interval", hint=hint, token=entry.at)
