"""VALUES and functions in FROM -> Values and Unfold. Pure.

A member of FROM *leans* on those before it when it looks at their columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from applier.definition import query_tree, tree, walk
from applier.definition.catalog import Catalog
from applier.definition.compile import Compiler
from applier.definition.refusal import Reason, Refused
from applier.definition.spans import literal_micros
from applier.definition.unify import unify
from applier.definition.union import meet
from applier.expressions.entry import Unfit
from applier.expressions.outputs import input_carrier
from applier.plan.expr import Const, Expr, ValueType, nullable
from applier.plan.nodes import Field, Node, SetFunction, Unfold, Values
from shared_schema.pg_types import PgType

_SERIES = frozenset(f"generate_series({','.join([name] * n)})" for name in ("int4", "int8") for n in (2, 3))
_MOMENTS = frozenset(f"generate_series({name},{name},interval)" for name in ("timestamp", "timestamptz"))
_NUMBERS = re.compile(r"[+-]?\d[\d:.]*")
_BIGINT = ValueType(PgType(20, -1, "int8", "bigint"), "bigint")
_HINT = "store its rows in a table; generate_series, unnest and jsonb_array_elements are taken"


def leans_on(entry: query_tree.RangeEntry) -> Iterator[tree.Var]:
    """The columns of other members of FROM that an entry looks at."""
    match entry:
        case query_tree.FunctionEntry(args=args):
            for arg in args:
                yield from (var for var in walk.variables(arg) if var.levels_up == 0)
        case query_tree.SubqueryEntry(query=query):
            yield from query_tree.outer_columns(query)
        case query_tree.ValuesEntry(rows=rows):
            for row in rows:
                for value in row:
                    yield from (var for var in walk.variables(value) if var.levels_up == 0)
        case _:
            return


def leans(item: query_tree.FromItem, query: query_tree.Query) -> bool:
    """Whether it is one entry that looks at others."""
    return isinstance(item, query_tree.EntryRef) and any(leans_on(query.entries[item.entry - 1]))


def check_on_true(condition: tree.Expression | None) -> None:
    """An outer join with what leans on its left side has no condition of its own."""
    if condition is None:
        return
    if not isinstance(condition, tree.Constant) or not condition.datum or not any(condition.datum):
        raise Refused(
            Reason.CONSTRUCT, "LEFT JOIN LATERAL on a condition", hint="write ON true, and the condition inside"
        )


def written(entry: query_tree.ValuesEntry, reads: Sequence[int], catalog: Catalog) -> Node:
    """The columns read of VALUES."""
    compiler = Compiler(catalog, lambda _: None)
    rows = [[compiler.compile(row[r - 1]) for r in reads] for row in entry.rows]
    met = meet(rows, [catalog.pg_type(*entry.types[r - 1]) for r in reads])
    columns = list(zip(*met, strict=True)) if reads else []
    return Values(tuple(met), tuple(Field(column[0].type, any(nullable(e) for e in column)) for column in columns))


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
