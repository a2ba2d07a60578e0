"""GROUP BY, aggregates and HAVING. Pure.

Above an Aggregate an expression is one of its keys, one of its aggregates, or computed from those; PostgreSQL compares
expressions structurally for that, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from applier.definition import query_tree, tree
from applier.definition.aggregates import plan_aggregate
from applier.definition.catalog import Catalog
from applier.definition.compile import Compiler, Scope
from applier.definition.fields import unknown
from applier.definition.refusal import Reason, Refused
from applier.expressions.allow_list import ENTRIES
from applier.expressions.entry import CollationNeed, Unfit
from applier.plan.expr import AggregateCall, Col, Expr
from applier.plan.nodes import Aggregate, Field, Node

_EQUALITY = {
    "int2": "int2eq(int2,int2)",
    "int4": "int4eq(int4,int4)",
    "int8": "int8eq(int8,int8)",
    "numeric": "numeric_eq(numeric,numeric)",
    "bool": "booleq(bool,bool)",
    "text": "texteq(text,text)",
    "varchar": "texteq(text,text)",
    "bpchar": "bpchareq(bpchar,bpchar)",
    "uuid": "uuid_eq(uuid,uuid)",
    "date": "date_eq(date,date)",
    "timestamp": "timestamp_eq(timestamp,timestamp)",
    "timestamptz": "timestamptz_eq(timestamptz,timestamptz)",
}
"""The default equality of the types that may be grouped."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """The keys and aggregates of one query level, as written and as planned, in the order of the node's output."""

    keys: tuple[tree.Expression, ...]
    planned_keys: tuple[Expr, ...]
    calls: tuple[tree.AggregateOf, ...]
    planned_calls: tuple[AggregateCall, ...]

    def node(self, below: Node) -> Aggregate:
        """The Aggregate over what FROM and WHERE made."""
        return Aggregate(below, self.planned_keys, tuple(dict.fromkeys(self.planned_calls)))

    def scope(self, output: tuple[Field, ...]) -> Scope:
        """What expressions above the node stand for."""
        distinct = list(dict.fromkeys(self.planned_calls))
        places: dict[tree.Expression, int] = {key: i for i, key in reversed(list(enumerate(self.keys)))}
        for call, planned in zip(self.calls, self.planned_calls, strict=True):
            places[call] = len(self.keys) + distinct.index(planned)

        def find(expression: tree.Expression) -> Expr | None:
            place = places.get(expression)
            return None if place is None else Col(place, output[place].type, output[place].nullable)

        return find


def group(
    keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]],
    targets: Sequence[tree.Expression],
    having: tree.Expression | None,
    below: Compiler,
    node: Node,
    *,
    catalog: Catalog,
) -> Grouped:
    """Plan the keys and every aggregate in the targets and HAVING over the node below, which `below` compiles for."""
    written = [key for key, _ in keys]
    planned = [_key(key, _equality(item, catalog), below, catalog) for key, item in keys]
    above = [*targets, *(() if having is None else (having,))]
    # Columns that depend on a primary key among the keys may be shown without being grouped by. As further keys they
    # split no group.
    for var in dict.fromkeys(v for e in above for v in _loose(e, frozenset(written))):
        written.append(var)
        planned.append(_key(var, _EQUALITY.get(catalog.pg_type(var.type, -1).name, ""), below, catalog))
    calls = list(dict.fromkeys(c for e in above for c in aggregates(e)))
    return Grouped(
        tuple(written),
        tuple(planned),
        tuple(calls),
        tuple(plan_aggregate(c, below, catalog, node) for c in calls),
    )


def distinct(
    node: Node, exprs: Sequence[Expr], keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]], catalog: Catalog
) -> Aggregate:
    """SELECT DISTINCT: one row per combination of all columns."""
    if len(keys) != len(exprs):
        raise unknown("a DISTINCT that does not name every column")
    for expr, (expression, item) in zip(exprs, keys, strict=True):
        _check_key(expr, expression, _equality(item, catalog), catalog)
    return Aggregate(node, tuple(exprs), ())


def _equality(item: query_tree.GroupItem, catalog: Catalog) -> str:
    return catalog.function(catalog.operator(item.equality).function).signature


def _key(expression: tree.Expression, equality: str, below: Compiler, catalog: Catalog) -> Expr:
    compiled = below.compile(expression)
    _check_key(compiled, expression, equality, catalog)
    return compiled


def check_key(compiled: Expr, expression: tree.Expression, item: query_tree.GroupItem, catalog: Catalog) -> None:
    """Refuse a key whose equality Spark does not share."""
    _check_key(compiled, expression, _equality(item, catalog), catalog)


def _check_key(compiled: Expr, expression: tree.Expression, equality: str, catalog: Catalog) -> None:
    entry = ENTRIES.get(equality)
    at = expression.at if isinstance(expression, tree.Var | tree.Apply) else None
    hint = "group by integers, numeric(p,s), text, dates or booleans; cast or store the key as one of those"
    try:
        if entry is None or not entry.hashes((compiled,)):
            raise Unfit(f"values of type {compiled.type.pg.display}")
        entry.carrier((compiled, compiled))
    except Unfit as error:
        raise Refused(Reason.GROUPING, f"GROUP BY or DISTINCT on {error.problem}", hint=hint, token=at) from error
    if entry.collation is not CollationNeed.NONE:
        collation = catalog.collation(tree.collation(expression))
        if not collation.deterministic:
            construct = f"GROUP BY or DISTINCT under the nondeterministic collation {collation.name}"
            raise Refused(Reason.COLLATION, construct, hint='declare the column COLLATE "C"', token=at)


def _loose(expression: tree.Expression, keys: frozenset[tree.Expression]) -> Iterator[tree.Var]:
    if expression in keys or isinstance(expression, tree.AggregateOf):
        return
    if isinstance(expression, tree.Var):
        yield expression
    for argument in tree.arguments(expression):
        yield from _loose(argument, keys)


def aggregates(expression: tree.Expression) -> Iterator[tree.AggregateOf]:
    """Every aggregate in the expression, in the order of the text."""
    if isinstance(expression, tree.AggregateOf):
        yield expression
        return
    for argument in tree.arguments(expression):
        yield from aggregates(argument)
