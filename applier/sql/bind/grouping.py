"""GROUP BY, GROUPING SETS and aggregates -> a bound GroupBy, and the scope of the expressions above the groups.

Above the groups, an expression is one of the keys, one of the aggregates, or is computed from those. PostgreSQL
compares expressions structurally to decide this, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from applier.plan.expr import INT4, ValueType, nullable
from applier.sql.bind.aggregates import bind_aggregate
from applier.sql.bind.expressions import ExpressionBinder
from applier.sql.bind.group_key import dependent_key, group_key
from applier.sql.bound.columns import BoundColumn, CallCol, GroupingCol, KeyCol
from applier.sql.bound.nodes import GroupBy
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.refusal import Reason, Refused

Found = tuple[BoundColumn, ValueType, bool]
"""A column above the groups, its type, and whether it may be NULL."""


@dataclass(frozen=True, slots=True)
class GroupScope:
    """The keys, aggregates and GROUPING() of a query, as written."""

    columns: dict[tree.Expression, Found]

    def find(self, expression: tree.Expression) -> Found | None:
        """Find an expression among them."""
        return self.columns.get(expression)


def bind_group_by(
    query: query_tree.Query,
    keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]],
    above: Sequence[tree.Expression],
    below: ExpressionBinder,
    catalog: CatalogSnapshot,
    *,
    raising: Set[int],
) -> tuple[GroupBy, GroupScope]:
    """Bind the keys, and every aggregate of the expressions `above` the groups; `below` binds their arguments.

    Reading one of the columns `raising` may be an error.
    """
    written = [key for key, _ in keys]
    bound = [group_key(below.bind(key), key, item, catalog) for key, item in keys]
    # Columns that depend on a primary key among the keys may be selected without being keys. Adding them as keys does
    # not split a group.
    for var in dict.fromkeys(v for e in above for v in _ungrouped_columns(e, frozenset(written))):
        written.append(var)
        bound.append(dependent_key(below.bind(var), var, catalog))
    calls = list(dict.fromkeys(c for e in above for c in aggregates_in(e)))
    bound_calls = tuple(bind_aggregate(c, below, catalog, raising=raising) for c in calls)
    if query.grouping_sets and len(keys) != len(bound):
        hint = "add the column to the grouping sets"
        raise Refused(Reason.CONSTRUCT, "a column that is not a key of GROUPING SETS", hint=hint)
    grouping = tuple(dict.fromkeys(call for e in above for call in _grouping_calls(e))) if query.grouping_sets else ()
    places = {item.reference: i for i, (_, item) in enumerate(keys)}
    sets = tuple(tuple(places[r] for r in references) for references in query.grouping_sets) or None
    columns: dict[tree.Expression, Found] = {}
    for i, (key, planned) in reversed(list(enumerate(zip(written, bound, strict=True)))):
        columns[key] = KeyCol(i), planned.value.type, bool(query.grouping_sets) or nullable(planned.value)
    for i, (call, bound_call) in enumerate(zip(calls, bound_calls, strict=True)):
        columns[call] = CallCol(i), bound_call.call.type, bound_call.call.nullable
    for i, grouping_call in enumerate(grouping):
        columns[grouping_call] = GroupingCol(i), INT4, False
    group = GroupBy(
        keys=tuple(bound[: len(keys)]),
        dependent=tuple(bound[len(keys) :]),
        calls=bound_calls,
        sets=sets,
        grouping=tuple(tuple(places[r] for r in call.references) for call in grouping),
        having=None,
        subqueries=(),
        having_subqueries=(),
    )
    return group, GroupScope(columns)


def _grouping_calls(expression: tree.Expression) -> Iterator[tree.GroupingFunc]:
    if isinstance(expression, tree.GroupingFunc):
        yield expression
    for argument in walk.arguments(expression):
        yield from _grouping_calls(argument)


def _ungrouped_columns(expression: tree.Expression, keys: frozenset[tree.Expression]) -> Iterator[tree.Var]:
    """Yield the columns of this query outside aggregates that no key covers."""
    if expression in keys or isinstance(expression, tree.Aggref):
        return
    if isinstance(expression, tree.Var) and not expression.levels_up:
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
