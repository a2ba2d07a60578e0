"""LATERAL subqueries -> joins.

A subquery that looks at the members of FROM before it is computed for all of them at once: its rows by themselves, and
joined by the conditions that connect the two. Where rows of the subquery are grouped or only the first are taken, that
happens per value of its own side of those conditions, which then have to be equalities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from applier.plan.expr import Case, Const, Expr, shift
from applier.plan.nodes import Aggregate, Filter, Join, Node, OuterJoin, Project, fields
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.group_key import GroupKey
from applier.sql.bind.grouping import GroupedQuery, bind_group_by, result_of_no_rows
from applier.sql.bind.joins import JoinScope, conjuncts, is_placeable, split_condition
from applier.sql.bind.ordering import bind_limit
from applier.sql.decorrelate.domain import BuildQuery, DependentQueries, OuterQuery, never_empty
from applier.sql.decorrelate.null_safe import Pairs
from applier.sql.decorrelate.over_domain import correlation_of_where
from applier.sql.decorrelate.semi_joins import correlated, outer_part, own_columns
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
Rows = Callable[[Levels, Sequence[tree.Expression], Sequence[tree.Expression]], JoinScope]
"""FROM and WHERE of the innermost query, with what is wanted of it."""


@dataclass(frozen=True, slots=True)
class LateralMember:
    """A LATERAL subquery: its number in FROM, what is read of it, and whether rows without any of its own stay.

    `on` are the conditions of such an outer join.
    """

    number: int
    query: query_tree.Query
    reads: Sequence[int]
    outer: bool
    on: tuple[tree.Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class _Inside:
    """The subquery's rows, what connects them, and its targets; all written from inside it."""

    rows: JoinScope
    connecting: tuple[tree.Expression, ...]
    targets: tuple[tree.Expression, ...]


class LateralJoins:
    """Puts LATERAL subqueries beside the members of FROM they look at."""

    def __init__(self, catalog: SystemCatalog, rows: Rows, query: BuildQuery) -> None:
        self._catalog = catalog
        self._rows = rows
        self._dependents = DependentQueries(catalog, query)

    def put(self, frame: JoinScope, lateral: LateralMember, levels: Levels) -> JoinScope:
        """The frame with the subquery's columns after its own."""
        query = lateral.query
        inside = None if lateral.on else self._inside(lateral, levels)
        if inside is not None and self._by_equalities(frame, lateral, inside):
            if query.is_grouped:
                return self._grouped(frame, lateral, inside)
            if query.limit is not None or query.distinct_on:
                return self._first(frame, lateral, inside)
            return self._plain(frame, lateral, inside)
        return self._asked(frame, lateral, levels)

    def _asked(self, frame: JoinScope, lateral: LateralMember, levels: Levels) -> JoinScope:
        """Whatever the subquery does with what it reads outside."""
        around = OuterQuery(frame.node, frame.node, _columns_of(frame), levels)
        needed = [r - 1 for r in lateral.reads]
        width = len(fields(frame.node))
        if not lateral.outer or (not lateral.on and never_empty(lateral.query)):
            node = self._dependents.beside(around, lateral.query, needed)
            if node is not None:
                return _with(
                    frame, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral
                )
        answers = self._dependents.answers(around, lateral.query, needed)
        places = {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}
        joined = _with(
            frame, _join(frame.node, answers.node, answers.pairs, None, outer=lateral.outer), places, lateral
        )
        compiler = ExpressionCompiler(self._catalog, _columns_of(joined))
        on = [compiler.compile(c) for c in lateral.on]
        if not all(is_placeable(c) for c in on):
            raise Refused(
                Reason.CONSTRUCT,
                "LEFT JOIN LATERAL on a condition that may raise an error",
                hint="compute the expression in the subquery",
                token=next((at for at in map(walk.place_of, lateral.on) if at is not None), None),
            )
        equi, residual = split_condition(on, width)
        return replace(
            joined, node=_join(frame.node, answers.node, (*answers.pairs, *equi), residual, outer=lateral.outer)
        )

    def _by_equalities(self, frame: JoinScope, lateral: LateralMember, inside: _Inside) -> bool:
        """Whether the subquery by itself, joined by what connects it to the outside, is all that is asked for."""
        query = lateral.query
        wanted = [inside.targets[r - 1] for r in lateral.reads]
        if not self._all_total(frame, inside):
            return False
        if not query.is_grouped and query.limit is None and not query.distinct_on:
            return not (lateral.outer and any(correlated(t) for t in wanted))
        if query.is_grouped and (query.limit is not None or query.distinct_on):
            return False
        pairs, residual = split_condition(self._connections(frame, inside), len(fields(frame.node)))
        return residual is None and bool(pairs) and not any(correlated(t) for t in inside.targets)

    def _all_total(self, frame: JoinScope, inside: _Inside) -> bool:
        return all(is_placeable(c) for c in self._connections(frame, inside))

    def _inside(self, lateral: LateralMember, levels: Levels) -> _Inside | None:
        """The subquery's own rows, where it reads the outside in its WHERE and select list only."""
        query = lateral.query
        grouped_otherwise = query.grouping_sets or (query.distinct and not query.distinct_on)
        if query.union is not None or query.windows or query.has_set_functions or grouped_otherwise:
            return None
        own, outer = Flattener(query.entries), Flattener(levels[-1].entries)
        where = [own(outer_part(c, outer)) for c in conjuncts(query.where)]
        connecting = tuple(c for c in where if correlated(c))
        if not correlation_of_where(replace(query, targets=()), connecting):
            return None
        plain = tuple(c for c in where if not correlated(c))
        targets = tuple(own(outer_part(t.expression, outer)) for t in query.targets)
        if any(any(walk.subqueries(t)) for t in targets if correlated(t)):
            return None
        having = () if query.having is None else (own(query.having),)
        rows = self._rows((*levels, query), own_columns([*connecting, *targets, *having]), plain)
        return _Inside(rows, connecting, targets)

    def _connections(self, frame: JoinScope, inside: _Inside) -> list[Expr]:
        compiler = ExpressionCompiler(self._catalog, _between(frame, inside.rows))
        return [compiler.compile(c) for c in inside.connecting]

    def _pairs(self, frame: JoinScope, inside: _Inside) -> Pairs:
        return split_condition(self._connections(frame, inside), len(fields(frame.node)))[0]

    def _plain(self, frame: JoinScope, lateral: LateralMember, inside: _Inside) -> JoinScope:
        wanted = [inside.targets[r - 1] for r in lateral.reads]
        width, base = len(fields(frame.node)), len(fields(inside.rows.node))
        own = ExpressionCompiler(self._catalog, _columns_of(inside.rows))
        computed = tuple(own.compile(t) for t in wanted if not correlated(t))
        right = project_columns(inside.rows.node, (*bound_columns(inside.rows.node), *computed))
        equi, residual = split_condition(self._connections(frame, inside), width)
        joined = _join(frame.node, right, equi, residual, outer=lateral.outer)
        places, above = {}, ExpressionCompiler(self._catalog, _between(frame, inside.rows))
        late = [above.compile(t) for t in wanted if correlated(t)]
        early_at, late_at = width + base, len(fields(joined))
        for r, target in zip(lateral.reads, wanted, strict=True):
            if correlated(target):
                places[lateral.number, r], late_at = late_at, late_at + 1
            else:
                places[lateral.number, r], early_at = early_at, early_at + 1
        node = Project(joined, (*bound_columns(joined), *late)) if late else joined
        return _with(frame, node, places, lateral)

    def _first(self, frame: JoinScope, lateral: LateralMember, inside: _Inside) -> JoinScope:
        pairs = self._pairs(frame, inside)
        own = ExpressionCompiler(self._catalog, _columns_of(inside.rows))

        def select(places: Sequence[int]) -> BoundQuery:
            return BoundQuery(inside.rows.node, tuple(own.compile(inside.targets[p]) for p in places))

        needed = [r - 1 for r in lateral.reads]
        built = bind_limit(lateral.query, needed, select, self._catalog, [theirs for _, theirs in pairs])
        return self._connected(frame, lateral, built, pairs)

    def _connected(self, frame: JoinScope, lateral: LateralMember, built: BoundQuery, pairs: Pairs) -> JoinScope:
        """Joined by the columns that follow those read."""
        right, width, count = project_columns(built.node, built.exprs), len(fields(frame.node)), len(lateral.reads)
        keys = bound_columns(right)[count:]
        equi = tuple((ours, key) for (ours, _), key in zip(pairs, keys, strict=True))
        node = _join(frame.node, right, equi, None, outer=lateral.outer)
        return _with(frame, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral)

    def _grouped(self, frame: JoinScope, lateral: LateralMember, inside: _Inside) -> JoinScope:
        query, own = lateral.query, Flattener(lateral.query.entries)
        wanted = [inside.targets[r - 1] for r in lateral.reads]
        having = None if query.having is None else own(query.having)
        by_reference = {t.group_reference: inside.targets[i] for i, t in enumerate(query.targets)}
        keys = [(by_reference[item.reference], item) for item in query.groups]
        pairs, rows = self._pairs(frame, inside), inside.rows
        below = ExpressionCompiler(self._catalog, _columns_of(rows))
        theirs = tuple(key for _, key in pairs)
        grouped = bind_group_by(keys, wanted, having, below, rows.node, catalog=self._catalog, within=theirs)
        if not query.groups:
            return self._one_group(frame, lateral, (grouped, theirs), pairs, (wanted, having, rows.node))
        joining = tuple(GroupKey(key, key) for key in theirs)
        whole = replace(
            grouped, keys=(*grouped.keys, *inside.connecting), planned_keys=(*grouped.planned_keys, *joining)
        )
        node: Node = whole.node(rows.node)
        compiler = ExpressionCompiler(self._catalog, whole.scope(fields(node)))
        if having is not None:
            node = Filter(node, compiler.compile(having))
        first = len(grouped.keys)
        exprs = (*(compiler.compile(t) for t in wanted), *bound_columns(node)[first : first + len(theirs)])
        return self._connected(frame, lateral, BoundQuery(node, exprs), pairs)

    def _one_group(
        self,
        frame: JoinScope,
        lateral: LateralMember,
        groups: tuple[GroupedQuery, tuple[Expr, ...]],
        pairs: Pairs,
        above: tuple[Sequence[tree.Expression], tree.Expression | None, Node],
    ) -> JoinScope:
        """Without GROUP BY there is a row for every row outside, also where the group is empty."""
        (grouped, theirs), (wanted, having, rows) = groups, above
        if grouped.keys:
            raise _refused("a column beside an aggregate in LATERAL")
        calls = tuple(dict.fromkeys(grouped.planned_calls))
        width = len(fields(frame.node))
        answers = Aggregate(rows, theirs, calls)
        equi = tuple((ours, key) for (ours, _), key in zip(pairs, bound_columns(answers), strict=False))
        joined = OuterJoin(frame.node, answers, equi, None, full=False)
        found = bound_columns(joined)[width + len(theirs) :]
        places = {
            call: calls.index(planned) for call, planned in zip(grouped.calls, grouped.planned_calls, strict=True)
        }

        def scope(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.Aggref) and expression in places:
                return result_of_no_rows(calls[places[expression]], found[places[expression]])
            return None

        compiler = ExpressionCompiler(self._catalog, scope)
        results = [compiler.compile(t) for t in wanted]
        node: Node = joined
        if having is not None:
            kept = compiler.compile(having)
            if lateral.outer:
                results = [Case(((kept, r),), Const(None, r.type), r.type) for r in results]
            else:
                node = Filter(node, kept)
        node = Project(node, (*bound_columns(joined)[:width], *results))
        return _with(frame, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral)


def _join(left: Node, right: Node, equi: Pairs, residual: Expr | None, *, outer: bool) -> Node:
    return OuterJoin(left, right, equi, residual, full=False) if outer else Join(left, right, equi, residual)


def _with(frame: JoinScope, node: Node, places: dict[tuple[int, int], int], lateral: LateralMember) -> JoinScope:
    return replace(frame, node=node, ordinals=frame.ordinals | places, entries=frame.entries | {lateral.number})


def _columns_of(rows: JoinScope) -> Scope:
    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            return rows.column(expression)
        return rows.answers.get(expression.number) if isinstance(expression, tree.SubLink) else None

    return find


def _between(frame: JoinScope, rows: JoinScope) -> Scope:
    own, width = _columns_of(rows), len(fields(frame.node))

    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up == 1:
            return frame.column(replace(expression, levels_up=0))
        found = own(expression)
        return None if found is None else shift(found, width)

    return find


def _refused(construct: str) -> Refused:
    return Refused(Reason.CONSTRUCT, construct, hint="join the tables instead")
