"""GROUP BY, GROUPING SETS, DISTINCT and aggregates -> Aggregate nodes, and the scope of the expressions above them.

Above an Aggregate, an expression is one of its keys, one of its aggregates, or is computed from those. PostgreSQL
compares expressions structurally to decide this, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from applier.functions.aggregates.aggregates import on_empty
from applier.plan.expr import INT4, AggregateCall, Coalesce, Col, Const, Expr, shift
from applier.plan.nodes import Field, Node, OuterJoin, Project, UnionAll, fields
from applier.sql.bind.aggregates import plan_aggregate
from applier.sql.bind.bound import bound_columns
from applier.sql.bind.group_key import GroupKey, aggregate_by, dependent_key, group_key
from applier.sql.catalog_snapshot import CatalogSnapshot
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
        """Build the Aggregate over the rows of FROM and WHERE: the key values, then each call once."""
        return aggregate_by(below, self.planned_keys, tuple(dict.fromkeys(self.planned_calls)))

    def scope(self, output: tuple[Field, ...]) -> Scope:
        """Return the scope of expressions above the node."""
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
    catalog: CatalogSnapshot,
    within: Sequence[Expr] = (),
    by_all_keys: bool = True,
) -> GroupedQuery:
    """Plan the keys, and every aggregate of the targets and HAVING, over `node`; `below` compiles over that node.

    All rows of a group have the same values of `within`. They also have the same keys, unless there are grouping sets.
    """
    written = [key for key, _ in keys]
    planned = [group_key(below.compile(key), key, item, catalog) for key, item in keys]
    above = [*targets, *(() if having is None else (having,))]
    # Columns that depend on a primary key among the keys may be selected without being keys. Adding them as keys does
    # not split a group.
    for var in dict.fromkeys(v for e in above for v in _ungrouped_columns(e, frozenset(written))):
        written.append(var)
        planned.append(dependent_key(below.compile(var), var, catalog))
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
    """The keys and aggregates of GROUPING SETS: one Aggregate per set, with NULL for keys outside the set."""

    grouped: GroupedQuery
    references: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    grouping_calls: tuple[tree.GroupingFunc, ...]

    def node(self, below: Node) -> Node:
        """Build the UNION ALL of one Aggregate per set over the node below."""
        return UnionAll(tuple(self._aggregate_set(below, frozenset(keys)) for keys in self.sets))

    def _aggregate_set(self, below: Node, keys: frozenset[int]) -> Node:
        chosen = [i for i, reference in enumerate(self.references) if reference in keys]
        planned = self.grouped.planned_keys
        calls = tuple(dict.fromkeys(self.grouped.planned_calls))
        node = aggregate_by(below, [planned[i] for i in chosen], calls)
        shown = bound_columns(node)
        exprs: list[Expr] = [
            shown[chosen.index(i)] if i in chosen else Const(None, key.value.type) for i, key in enumerate(planned)
        ]
        exprs += shown[len(chosen) :]
        exprs += [Const(_grouping_mask(call, keys), INT4) for call in self.grouping_calls]
        return Project(node, tuple(exprs))

    def scope(self, output: tuple[Field, ...]) -> Scope:
        """Return the scope of expressions above the node."""
        known = self.grouped.scope(output)
        first = len(output) - len(self.grouping_calls)

        def find(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.GroupingFunc):
                place = first + self.grouping_calls.index(expression)
                return Col(place, output[place].type, output[place].nullable)
            return known(expression)

        return find


@dataclass(frozen=True, slots=True)
class GroupedByDomain:
    """One group per row of the domain, also where the group is empty; the keys are the columns of the domain."""

    grouped: GroupedQuery
    domain: Node

    def node(self, below: Node) -> Node:
        """Join each row of the domain with its group."""
        groups = self.grouped.node(below)
        pairs = null_safe_pairs(zip(bound_columns(self.domain), bound_columns(groups), strict=False))
        return OuterJoin(self.domain, groups, pairs, None, full=False)

    def scope(self, output: tuple[Field, ...]) -> Scope:
        """Return the scope of expressions above the node; an empty group has the aggregate's result over no rows."""
        width = len(fields(self.domain))
        known, calls = self.grouped.scope(output[width:]), list(dict.fromkeys(self.grouped.planned_calls))

        def find(expression: tree.Expression) -> Expr | None:
            found = known(expression)
            if not isinstance(found, Col):
                return found
            if found.ordinal < width:
                return Col(found.ordinal, output[found.ordinal].type, output[found.ordinal].nullable)
            return default_if_no_group(calls[found.ordinal - width], shift(found, width))

        return find


def default_if_no_group(call: AggregateCall, result: Expr) -> Expr:
    """Return the result of an aggregate, or its result over no rows where an outer join found no group."""
    if call.fold is not None and not call.fold.null_of_none:
        construct = f"the aggregate {call.signature} in a subquery that may find no rows"
        raise Refused(Reason.CONSTRUCT, construct, hint="aggregate in a subquery in FROM with GROUP BY, and join it")
    return Coalesce((result, Const(on_empty(call), call.type)), call.type) if not call.nullable else result


def _grouping_mask(call: tree.GroupingFunc, keys: frozenset[int]) -> int:
    """Compute GROUPING(): one bit per key, the last key lowest; 1 where the set does not have the key."""
    mask = 0
    for reference in call.references:
        mask = mask * 2 + (reference not in keys)
    return mask


def bind_grouping_sets(
    grouped: GroupedQuery, query: query_tree.Query, above: Sequence[tree.Expression]
) -> GroupedBySets:
    """Plan the same keys and aggregates once per grouping set."""
    references = tuple(item.reference for item in query.groups)
    if len(references) != len(grouped.keys):
        hint = "add the column to the grouping sets"
        raise Refused(Reason.CONSTRUCT, "a column that is not a key of GROUPING SETS", hint=hint)
    grouping_calls = tuple(dict.fromkeys(call for e in above for call in _grouping_calls(e)))
    return GroupedBySets(grouped, references, query.grouping_sets, grouping_calls)


def _grouping_calls(expression: tree.Expression) -> Iterator[tree.GroupingFunc]:
    if isinstance(expression, tree.GroupingFunc):
        yield expression
    for argument in walk.arguments(expression):
        yield from _grouping_calls(argument)


def bind_distinct(
    node: Node,
    exprs: Sequence[Expr],
    keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]],
    catalog: CatalogSnapshot,
) -> Node:
    """Bind SELECT DISTINCT: one row per combination of all columns."""
    if len(keys) != len(exprs):
        raise unknown("a DISTINCT that does not name every column")
    pairs = zip(exprs, keys, strict=True)
    return aggregate_by(node, [group_key(expr, written, item, catalog) for expr, (written, item) in pairs], ())


def _ungrouped_columns(expression: tree.Expression, keys: frozenset[tree.Expression]) -> Iterator[tree.Var]:
    if expression in keys or isinstance(expression, tree.Aggref):
        return
    if isinstance(expression, tree.Var):
        yield expression
    for argument in walk.arguments(expression):
        yield from _ungrouped_columns(argument, keys)


def aggregates_in(expression: tree.Expression) -> Iterator[tree.Aggref]:
    """Yield every aggregate of the expression, in the order of the text."""
    if isinstance(expression, tree.Aggref):
        yield expression
        return
    for argument in walk.arguments(expression):
        yield from aggregates_in(argument)
