"""GROUP BY, aggregates and HAVING.

Above an Aggregate an expression is one of its keys, one of its aggregates, or computed from those; PostgreSQL compares
expressions structurally for that, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from applier.functions.aggregates.aggregates import on_empty
from applier.plan.expr import INT4, AggregateCall, Coalesce, Col, Const, Expr, shift
from applier.plan.nodes import Field, Node, OuterJoin, Project, UnionAll, fields
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.aggregates import plan_aggregate
from applier.sql.bind.bound import bound_columns
from applier.sql.bind.group_key import GroupKey, group_key, grouped_by, primary_key_of
from applier.sql.decorrelate.null_safe import null_safe_pairs
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """The keys and aggregates of one query level, as written and as planned, in the order of the node's output."""

    keys: tuple[tree.Expression, ...]
    planned_keys: tuple[GroupKey, ...]
    calls: tuple[tree.Aggref, ...]
    planned_calls: tuple[AggregateCall, ...]

    def node(self, below: Node) -> Node:
        """The Aggregate over what FROM and WHERE made: the keys as they are shown, then every call once."""
        return grouped_by(below, self.planned_keys, tuple(dict.fromkeys(self.planned_calls)))

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


def bind_group_by(
    keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]],
    targets: Sequence[tree.Expression],
    having: tree.Expression | None,
    below: ExpressionCompiler,
    node: Node,
    *,
    catalog: SystemCatalog,
    within: Sequence[Expr] = (),
    by_all_keys: bool = True,
) -> GroupedQuery:
    """Plan the keys and every aggregate in the targets and HAVING over the node below, which `below` compiles for.

    All rows of a group have the same values of `within`, and of the keys unless there are other sets of them.
    """
    written = [key for key, _ in keys]
    planned = [group_key(below.compile(key), key, item, catalog) for key, item in keys]
    above = [*targets, *(() if having is None else (having,))]
    # Columns that depend on a primary key among the keys may be shown without being grouped by. As further keys they
    # split no group.
    for var in dict.fromkeys(v for e in above for v in _loose(e, frozenset(written))):
        written.append(var)
        planned.append(primary_key_of(below.compile(var), var, catalog))
    shared = (*within, *(key.by for key in planned if by_all_keys))
    calls = list(dict.fromkeys(c for e in above for c in aggregates_in(e)))
    return GroupedQuery(
        tuple(written),
        tuple(planned),
        tuple(calls),
        tuple(plan_aggregate(c, below, catalog, node, shared) for c in calls),
    )


@dataclass(frozen=True, slots=True)
class GroupedBySets:
    """The keys and aggregates of GROUPING SETS: one Aggregate per set, NULL for the keys that are not in it."""

    whole: GroupedQuery
    references: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    asked: tuple[tree.GroupingFunc, ...]

    def node(self, below: Node) -> Node:
        """The Aggregates over the node below, one after the other."""
        return UnionAll(tuple(self._one(below, frozenset(keys)) for keys in self.sets))

    def _one(self, below: Node, keys: frozenset[int]) -> Node:
        chosen = [i for i, reference in enumerate(self.references) if reference in keys]
        planned = self.whole.planned_keys
        calls = tuple(dict.fromkeys(self.whole.planned_calls))
        grouped = grouped_by(below, [planned[i] for i in chosen], calls)
        shown = bound_columns(grouped)
        exprs: list[Expr] = [
            shown[chosen.index(i)] if i in chosen else Const(None, key.value.type) for i, key in enumerate(planned)
        ]
        exprs += shown[len(chosen) :]
        exprs += [Const(_mask(call, keys), INT4) for call in self.asked]
        return Project(grouped, tuple(exprs))

    def scope(self, output: tuple[Field, ...]) -> Scope:
        """What expressions above the node stand for."""
        known = self.whole.scope(output)
        first = len(output) - len(self.asked)

        def find(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.GroupingFunc):
                place = first + self.asked.index(expression)
                return Col(place, output[place].type, output[place].nullable)
            return known(expression)

        return find


@dataclass(frozen=True, slots=True)
class GroupedByDomain:
    """One group of all rows for each given row, also for those that have none; the keys are the given columns."""

    whole: GroupedQuery
    given: Node

    def node(self, below: Node) -> Node:
        """The given rows, each beside its group."""
        groups = self.whole.node(below)
        pairs = null_safe_pairs(zip(bound_columns(self.given), bound_columns(groups), strict=False))
        return OuterJoin(self.given, groups, pairs, None, full=False)

    def scope(self, output: tuple[Field, ...]) -> Scope:
        """What expressions above the node stand for: of a group without rows what the aggregate says of none."""
        width = len(fields(self.given))
        known, calls = self.whole.scope(output[width:]), list(dict.fromkeys(self.whole.planned_calls))

        def find(expression: tree.Expression) -> Expr | None:
            found = known(expression)
            if not isinstance(found, Col):
                return found
            if found.ordinal < width:
                return Col(found.ordinal, output[found.ordinal].type, output[found.ordinal].nullable)
            return result_of_no_rows(calls[found.ordinal - width], shift(found, width))

        return find


def result_of_no_rows(call: AggregateCall, result: Expr) -> Expr:
    """The result of an aggregate where there is a group, else what it is of no rows."""
    if call.fold is not None and not call.fold.null_of_none:
        construct = f"the aggregate {call.signature} of a subquery that may find no rows"
        raise Refused(Reason.CONSTRUCT, construct, hint="group in FROM, and join the groups there are")
    return Coalesce((result, Const(on_empty(call), call.type)), call.type) if not call.nullable else result


def _mask(call: tree.GroupingFunc, keys: frozenset[int]) -> int:
    """A bit per key, the last one the lowest: 1 where the rows are not grouped by it."""
    mask = 0
    for reference in call.references:
        mask = mask * 2 + (reference not in keys)
    return mask


def bind_grouping_sets(
    grouped: GroupedQuery, query: query_tree.Query, above: Sequence[tree.Expression]
) -> GroupedBySets:
    """The same keys and aggregates, once per grouping set."""
    references = tuple(item.reference for item in query.groups)
    if len(references) != len(grouped.keys):
        hint = "group by the column too"
        raise Refused(Reason.CONSTRUCT, "a column beside GROUPING SETS that is no key of theirs", hint=hint)
    asked = tuple(dict.fromkeys(call for e in above for call in _groupings(e)))
    return GroupedBySets(grouped, references, query.grouping_sets, asked)


def _groupings(expression: tree.Expression) -> Iterator[tree.GroupingFunc]:
    if isinstance(expression, tree.GroupingFunc):
        yield expression
    for argument in walk.arguments(expression):
        yield from _groupings(argument)


def bind_distinct(
    node: Node,
    exprs: Sequence[Expr],
    keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]],
    catalog: SystemCatalog,
) -> Node:
    """SELECT DISTINCT: one row per combination of all columns."""
    if len(keys) != len(exprs):
        raise unknown("a DISTINCT that does not name every column")
    pairs = zip(exprs, keys, strict=True)
    return grouped_by(node, [group_key(expr, written, item, catalog) for expr, (written, item) in pairs], ())


def _loose(expression: tree.Expression, keys: frozenset[tree.Expression]) -> Iterator[tree.Var]:
    if expression in keys or isinstance(expression, tree.Aggref):
        return
    if isinstance(expression, tree.Var):
        yield expression
    for argument in walk.arguments(expression):
        yield from _loose(argument, keys)


def aggregates_in(expression: tree.Expression) -> Iterator[tree.Aggref]:
    """Every aggregate in the expression, in the order of the text."""
    if isinstance(expression, tree.Aggref):
        yield expression
        return
    for argument in walk.arguments(expression):
        yield from aggregates_in(argument)
