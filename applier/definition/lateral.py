"""LATERAL subqueries -> joins. Pure.

A subquery that looks at the members of FROM before it is computed for all of them at once: its rows by themselves, and
joined by the conditions that connect the two. Where rows of the subquery are grouped or only the first are taken, that
happens per value of its own side of those conditions, which then have to be equalities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from applier.definition import query_tree, tree, walk
from applier.definition.built import Built, columns, projected
from applier.definition.catalog import Catalog
from applier.definition.compile import Compiler, Scope
from applier.definition.flatten import Flattener
from applier.definition.group_key import GroupKey
from applier.definition.grouping import Grouped, group
from applier.definition.joins import Frame, conjuncts, split, total
from applier.definition.ordering import first_rows
from applier.definition.partners import correlated, outer_part, own_columns
from applier.definition.refusal import Reason, Refused
from applier.plan.expr import AggregateCall, Case, Coalesce, Const, Expr, shift
from applier.plan.nodes import Aggregate, Filter, Join, Node, OuterJoin, Project, fields

Levels = tuple[query_tree.Query, ...]
Rows = Callable[[Levels, Sequence[tree.Expression], Sequence[tree.Expression]], Frame]
"""FROM and WHERE of the innermost query, with what is wanted of it."""
Pairs = tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """A LATERAL subquery: its number in FROM, what is read of it, and whether rows without any of its own stay."""

    number: int
    query: query_tree.Query
    reads: Sequence[int]
    outer: bool


@dataclass(frozen=True, slots=True)
class _Inside:
    """The subquery's rows, what connects them, and its targets; all written from inside it."""

    rows: Frame
    connecting: tuple[tree.Expression, ...]
    targets: tuple[tree.Expression, ...]


class Laterals:
    """Puts LATERAL subqueries beside the members of FROM they look at."""

    def __init__(self, catalog: Catalog, rows: Rows) -> None:
        self._catalog = catalog
        self._rows = rows

    def put(self, frame: Frame, lateral: Beside, levels: Levels) -> Frame:
        """The frame with the subquery's columns after its own."""
        query = lateral.query
        if query.union is not None or query.windows or (query.distinct and not query.distinct_on):
            raise _refused("a set operation, a window or DISTINCT in LATERAL")
        inside = self._inside(lateral, levels)
        if query.aggregates:
            if query.limit is not None or query.distinct_on:
                raise _refused("LIMIT of an aggregate in LATERAL")
            return self._grouped(frame, lateral, inside)
        if query.limit is not None or query.distinct_on:
            return self._first(frame, lateral, inside)
        return self._plain(frame, lateral, inside)

    def _inside(self, lateral: Beside, levels: Levels) -> _Inside:
        query = lateral.query
        own, outer = Flattener(query.entries), Flattener(levels[-1].entries)
        where = [own(outer_part(c, outer)) for c in conjuncts(query.where)]
        connecting = tuple(c for c in where if correlated(c))
        plain = tuple(c for c in where if not correlated(c))
        targets = tuple(own(outer_part(t.expression, outer)) for t in query.targets)
        rest = replace(query, targets=(), where=tree.Connected(tree.Connective.AND, plain) if plain else None)
        if any(query_tree.outer_columns(rest)) or any(any(walk.subqueries(c)) for c in connecting):
            raise _refused("LATERAL that looks outside elsewhere than in its own WHERE and select list")
        having = () if query.having is None else (own(query.having),)
        rows = self._rows((*levels, query), own_columns([*connecting, *targets, *having]), plain)
        return _Inside(rows, connecting, targets)

    def _connections(self, frame: Frame, inside: _Inside) -> list[Expr]:
        compiler = Compiler(self._catalog, _between(frame, inside.rows))
        found = [compiler.compile(c) for c in inside.connecting]
        if not all(total(c) for c in found):
            raise _refused("LATERAL connected by a condition that may raise an error")
        return found

    def _pairs(self, frame: Frame, inside: _Inside) -> Pairs:
        pairs, residual = split(self._connections(frame, inside), len(fields(frame.node)))
        if residual is not None or not pairs:
            raise _refused("LATERAL that groups or limits its rows by other than equalities with what is outside")
        return pairs

    def _plain(self, frame: Frame, lateral: Beside, inside: _Inside) -> Frame:
        wanted = [inside.targets[r - 1] for r in lateral.reads]
        if lateral.outer and any(correlated(t) for t in wanted):
            raise _refused("a column of the outer side in the select list of LEFT JOIN LATERAL")
        width, base = len(fields(frame.node)), len(fields(inside.rows.node))
        own = Compiler(self._catalog, _columns_of(inside.rows))
        computed = tuple(own.compile(t) for t in wanted if not correlated(t))
        right = projected(inside.rows.node, (*columns(inside.rows.node), *computed))
        equi, residual = split(self._connections(frame, inside), width)
        joined = _join(frame.node, right, equi, residual, outer=lateral.outer)
        places, above = {}, Compiler(self._catalog, _between(frame, inside.rows))
        late = [above.compile(t) for t in wanted if correlated(t)]
        early_at, late_at = width + base, len(fields(joined))
        for r, target in zip(lateral.reads, wanted, strict=True):
            if correlated(target):
                places[lateral.number, r], late_at = late_at, late_at + 1
            else:
                places[lateral.number, r], early_at = early_at, early_at + 1
        node = Project(joined, (*columns(joined), *late)) if late else joined
        return _with(frame, node, places, lateral)

    def _first(self, frame: Frame, lateral: Beside, inside: _Inside) -> Frame:
        if any(correlated(t) for t in inside.targets):
            raise _refused("a column of the outer side in the select list of LATERAL with LIMIT")
        pairs = self._pairs(frame, inside)
        own = Compiler(self._catalog, _columns_of(inside.rows))

        def select(places: Sequence[int]) -> Built:
            return Built(inside.rows.node, tuple(own.compile(inside.targets[p]) for p in places))

        needed = [r - 1 for r in lateral.reads]
        built = first_rows(lateral.query, needed, select, self._catalog, [theirs for _, theirs in pairs])
        return self._connected(frame, lateral, built, pairs)

    def _connected(self, frame: Frame, lateral: Beside, built: Built, pairs: Pairs) -> Frame:
        """Joined by the columns that follow those read."""
        right, width, count = projected(built.node, built.exprs), len(fields(frame.node)), len(lateral.reads)
        keys = columns(right)[count:]
        equi = tuple((ours, key) for (ours, _), key in zip(pairs, keys, strict=True))
        node = _join(frame.node, right, equi, None, outer=lateral.outer)
        return _with(frame, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral)

    def _grouped(self, frame: Frame, lateral: Beside, inside: _Inside) -> Frame:
        query, own = lateral.query, Flattener(lateral.query.entries)
        wanted = [inside.targets[r - 1] for r in lateral.reads]
        having = None if query.having is None else own(query.having)
        by_reference = {t.group_reference: inside.targets[i] for i, t in enumerate(query.targets)}
        keys = [(by_reference[item.reference], item) for item in query.groups]
        if any(correlated(e) for e in (*wanted, *(key for key, _ in keys))):
            raise _refused("a column of the outer side beside an aggregate in LATERAL")
        pairs, rows = self._pairs(frame, inside), inside.rows
        below = Compiler(self._catalog, _columns_of(rows))
        grouped = group(keys, wanted, having, below, rows.node, catalog=self._catalog)
        theirs = tuple(key for _, key in pairs)
        if not query.groups:
            return self._one_group(frame, lateral, (grouped, theirs), pairs, (wanted, having, rows.node))
        joining = tuple(GroupKey(key, key) for key in theirs)
        whole = replace(
            grouped, keys=(*grouped.keys, *inside.connecting), planned_keys=(*grouped.planned_keys, *joining)
        )
        node: Node = whole.node(rows.node)
        compiler = Compiler(self._catalog, whole.scope(fields(node)))
        if having is not None:
            node = Filter(node, compiler.compile(having))
        first = len(grouped.keys)
        exprs = (*(compiler.compile(t) for t in wanted), *columns(node)[first : first + len(theirs)])
        return self._connected(frame, lateral, Built(node, exprs), pairs)

    def _one_group(
        self,
        frame: Frame,
        lateral: Beside,
        groups: tuple[Grouped, tuple[Expr, ...]],
        pairs: Pairs,
        above: tuple[Sequence[tree.Expression], tree.Expression | None, Node],
    ) -> Frame:
        """Without GROUP BY there is a row for every row outside, also where the group is empty."""
        (grouped, theirs), (wanted, having, rows) = groups, above
        if grouped.keys:
            raise _refused("a column beside an aggregate in LATERAL")
        calls = tuple(dict.fromkeys(grouped.planned_calls))
        width = len(fields(frame.node))
        answers = Aggregate(rows, theirs, calls)
        equi = tuple((ours, key) for (ours, _), key in zip(pairs, columns(answers), strict=False))
        joined = OuterJoin(frame.node, answers, equi, None, full=False)
        found = columns(joined)[width + len(theirs) :]
        places = {
            call: calls.index(planned) for call, planned in zip(grouped.calls, grouped.planned_calls, strict=True)
        }

        def scope(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.AggregateOf) and expression in places:
                return _on_empty(calls[places[expression]], found[places[expression]])
            return None

        compiler = Compiler(self._catalog, scope)
        results = [compiler.compile(t) for t in wanted]
        node: Node = joined
        if having is not None:
            kept = compiler.compile(having)
            if lateral.outer:
                results = [Case(((kept, r),), Const(None, r.type), r.type) for r in results]
            else:
                node = Filter(node, kept)
        node = Project(node, (*columns(joined)[:width], *results))
        return _with(frame, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral)


def _join(left: Node, right: Node, equi: Pairs, residual: Expr | None, *, outer: bool) -> Node:
    return OuterJoin(left, right, equi, residual, full=False) if outer else Join(left, right, equi, residual)


def _with(frame: Frame, node: Node, places: dict[tuple[int, int], int], lateral: Beside) -> Frame:
    return replace(frame, node=node, ordinals=frame.ordinals | places, entries=frame.entries | {lateral.number})


def _on_empty(call: AggregateCall, column: Expr) -> Expr:
    return column if call.nullable else Coalesce((column, Const(0, call.type)), call.type)


def _columns_of(rows: Frame) -> Scope:
    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            return rows.column(expression)
        return rows.answers.get(expression.number) if isinstance(expression, tree.Subquery) else None

    return find


def _between(frame: Frame, rows: Frame) -> Scope:
    own, width = _columns_of(rows), len(fields(frame.node))

    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up == 1:
            return frame.column(replace(expression, levels_up=0))
        found = own(expression)
        return None if found is None else shift(found, width)

    return find


def _refused(construct: str) -> Refused:
    return Refused(Reason.CONSTRUCT, construct, hint="join the tables instead")
