"""Analysed query -> plan.

A query becomes Scan / join tree / Filter, then Aggregate and Filter for HAVING, then Project. Columns nobody reads are
never scanned; that includes the columns of subqueries and views. A Scan has a key when the query reads all columns of
the primary key; they are not read just for that, because a row key is of use only where its columns are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from applier.plan.expr import Col, Expr
from applier.plan.nodes import Filter, Node, fields, row_key
from applier.sql.analyze.sources import Sources, from_entries
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import BoundQuery, project_columns
from applier.sql.bind.from_items import FromItems
from applier.sql.bind.grouping import (
    GroupedByDomain,
    GroupedBySets,
    GroupedQuery,
    aggregates_in,
    bind_distinct,
    bind_group_by,
    bind_grouping_sets,
)
from applier.sql.bind.joins import (
    JoinMember,
    JoinScope,
    Leaning,
    Unjoined,
    bind_join,
    bind_outer_join,
    conditions,
    conjuncts,
    place_members,
)
from applier.sql.bind.ordering import bind_limit, limit_of
from applier.sql.bind.recursion import RecursionBinder
from applier.sql.bind.set_operations import bind_set_operation, common_type
from applier.sql.bind.table_functions import makes_rows
from applier.sql.bind.values import is_dependent
from applier.sql.bind.windows import bind_windows, window_inputs
from applier.sql.decorrelate.domain import OuterQuery
from applier.sql.decorrelate.lateral import LateralJoins
from applier.sql.decorrelate.over_domain import correlation_of_where, is_correlated
from applier.sql.decorrelate.semi_joins import (
    SubqueryTest,
    as_expression,
    bind_semi_join,
    correlated,
    into_subquery,
    outer_part,
    own_columns,
)
from applier.sql.decorrelate.subqueries import SubqueryJoins
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.pg_tree.flatten import Flattener, whole_row_refusal
from applier.sql.pg_tree.query_tree import lateral_columns
from applier.sql.refusal import Place, Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
"""A query and those around it, the outermost first."""


def bind(query: query_tree.Query, catalog: SystemCatalog, sources: Sources) -> Node:
    """The plan of a whole query; its output columns are the visible targets."""
    visible = [t for t in query.targets if not t.hidden]
    if not visible:
        hint, place = "select at least one column", Place.start()
        raise Refused(Reason.CONSTRUCT, "a query without columns", hint=hint, place=place, full_in_postgres=False)
    built = _Builder(catalog, sources).query(query, range(len(visible)), ())
    return project_columns(built.node, built.exprs)


class _Lean(Protocol):
    """Puts a member beside the frame it looks at; `on` is given in an outer join, which keeps rows without any."""

    def __call__(self, number: int, *, on: Sequence[tree.Expression] | None) -> Leaning: ...


@dataclass(frozen=True, slots=True)
class _Making:
    """How the members of one FROM are made: those that stand by themselves, and those that look at others."""

    upright: Callable[[int], JoinMember]
    leaning: _Lean


class _Builder:
    def __init__(self, catalog: SystemCatalog, sources: Sources) -> None:
        self._catalog = catalog
        self._answering = SubqueryJoins(catalog, self._rows, self.query)
        laterals = LateralJoins(catalog, self._rows, self.query)
        self._members = FromItems(catalog, sources, self.query, laterals, RecursionBinder(catalog, self._combined))

    def query(self, query: query_tree.Query, needed: Sequence[int], outer: Levels) -> BoundQuery:
        """One query level; `needed` are the visible targets somebody reads, `outer` the queries around it."""
        levels = (*outer, query)
        if query.limit is None and not query.distinct_on:
            return self._unordered(query, needed, levels)
        return bind_limit(query, needed, lambda places: self._unordered(query, places, levels), self._catalog)

    def _unordered(self, query: query_tree.Query, needed: Sequence[int], levels: Levels) -> BoundQuery:
        """Everything but LIMIT and DISTINCT ON; hidden targets may be needed too."""
        if query.union is not None:
            return self._union(query, query.union, needed, levels)
        if not query.distinct or query.distinct_on:
            return self._select(query, needed, levels)
        visible = [t for t in query.targets if not t.hidden]
        everything = self._select(query, range(len(visible)), levels)
        node = project_columns(everything.node, everything.exprs)
        if row_key(node) is None:
            flat = Flattener(query.entries)
            equalities = {item.reference: item for item in query.distinct}
            keys = [
                (flat(t.expression), equalities[t.group_reference]) for t in visible if t.group_reference in equalities
            ]
            node = bind_distinct(everything.node, everything.exprs, keys, self._catalog)
        output = fields(node)
        return BoundQuery(node, tuple(Col(i, output[i].type, output[i].nullable) for i in needed))

    def _union(
        self, query: query_tree.Query, union: query_tree.SetOperation, needed: Sequence[int], levels: Levels
    ) -> BoundQuery:
        targets = [t.expression for t in query.targets if not t.hidden]
        first = next(union.entries())
        numbers = [t.number for t in targets if isinstance(t, tree.Var) and t.entry == first]
        if numbers != list(range(1, 1 + len(targets))) or query.items or query.where is not None:
            raise unknown("a set operation that does more than to combine its branches")
        return self._combined(union, needed, levels)

    def _combined(self, branch: int | query_tree.SetOperation, needed: Sequence[int], levels: Levels) -> BoundQuery:
        if isinstance(branch, int):
            return self._branch(levels, branch, needed)
        plain = branch.kind is query_tree.SetOperationType.UNION and branch.keeps_duplicates
        # Where rows are compared all their columns count.
        read = needed if plain else range(len(branch.columns))
        parts = [self._combined(part, read, levels) for part in branch.branches]
        types = [self._catalog.pg_type(branch.columns[i].type, branch.columns[i].typmod) for i in read]
        met = common_type([part.exprs for part in parts], types)
        nodes = [project_columns(part.node, exprs) for part, exprs in zip(parts, met, strict=True)]
        node = bind_set_operation(branch, nodes, self._catalog)
        output = fields(node)
        places = range(len(needed)) if plain else needed
        return BoundQuery(node, tuple(Col(i, output[i].type, output[i].nullable) for i in places))

    def _branch(self, levels: Levels, number: int, needed: Sequence[int]) -> BoundQuery:
        self._members.count()
        match levels[-1].entries[number - 1]:
            case query_tree.SubqueryEntry(query=query):
                return self.query(query, needed, levels)
            case _:
                raise unknown("a branch of UNION that is not a query")

    def _select(self, query: query_tree.Query, needed: Sequence[int], levels: Levels) -> BoundQuery:
        flat = Flattener(query.entries)
        targets = [flat(query.targets[i].expression) for i in needed]
        keys = [(flat(_group_target(query, item.reference)), item) for item in _grouped_by(query)]
        having = None if query.having is None else flat(query.having)
        where = [flat(c) for c in conjuncts(query.where)]
        windowed = [flat(query.targets[i].expression) for i in window_inputs(query, targets)]
        # How many rows there are is decided by all that make rows, also by those that nobody reads.
        making = list(dict.fromkeys(made for t in query.targets for made in walk.set_functions(flat(t.expression))))
        grouped_sets = [made for key, _ in keys for made in walk.set_functions(key)]
        wanted = [*targets, *windowed, *making, *(key for key, _ in keys), *(() if having is None else (having,))]
        frame = self._rows(levels, wanted, where)
        if grouped_sets:
            frame, making = self._made(frame, making), [made for made in making if made not in grouped_sets]
        if making and (grouped_sets or query.windows):
            hint = "make the rows in a subquery of FROM"
            construct = "a set-returning function beside a window, or beside one that is grouped by"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=making[0].at)
        if query.is_grouped:
            above = [*targets, *windowed]
            calls = [call for e in (*above, *(() if having is None else (having,))) for call in aggregates_in(e)]
            frame = self._answered(frame, [*(key for key, _ in keys), *calls], levels)
            grouped = bind_group_by(
                keys,
                above,
                having,
                self._compiler(frame),
                frame.node,
                catalog=self._catalog,
                by_all_keys=not query.grouping_sets,
            )
            parts = [*above, *(() if having is None else (having,))]
            sets = bind_grouping_sets(grouped, query, parts) if query.grouping_sets else _per_given(grouped, query)
            below = self._above(frame, sets, above, having, levels=levels)
        else:
            frame = self._answered(frame, [*targets, *windowed], levels)
            below = frame.node, frame.scope
        return bind_windows(query, targets, makes_rows(below, making, self._catalog), flat, self._catalog)

    def _made(self, frame: JoinScope, making: Sequence[tree.SetReturningExpr]) -> JoinScope:
        """The frame, gone through all members of these sets, side by side."""
        node, scope = makes_rows((frame.node, frame.scope), making, self._catalog)
        made = {each: value for each in making if (value := scope(each)) is not None}
        return replace(frame, node=node, made=made)

    def _rows(self, levels: Levels, wanted: Sequence[tree.Expression], where: Sequence[tree.Expression]) -> JoinScope:
        """FROM and WHERE of the innermost query."""
        query = levels[-1]
        flat = Flattener(query.entries)
        on = [flat(c) for c in conditions(query.items)]
        simple = [p for p in query.match_conditions if self._is_simple(p, levels)]
        asked = [self._asked(partners, levels) for partners in simple]
        others = [flat(as_expression(p)) for p in query.match_conditions if p not in simple]
        # The condition of an inner join is one of WHERE, also where it asks a subquery.
        where = [*where, *(flat(c) for c in place_members(query.items)[1] if any(walk.subqueries(c))), *others]
        plain = [c for c in where if not any(walk.subqueries(c))]
        asking = [c for c in where if any(walk.subqueries(c))]
        frame = self._from(levels, [*wanted, *on, *where, *(c for a in asked for c in a.outer_columns())], plain)
        for subquery in asked:
            frame = bind_semi_join(
                frame, subquery, lambda c, scope: ExpressionCompiler(self._catalog, scope).compile(c)
            )
        for condition in list(asking):
            around = OuterQuery(frame.node, frame.node, frame.scope, levels)
            if (kept := self._answering.kept(around, condition)) is not None:
                frame = replace(frame, node=kept)
                asking.remove(condition)
        frame = self._answered(frame, asking, levels)
        return frame.filtered([self._compiler(frame).compile(c) for c in asking])

    def _is_simple(self, partners: query_tree.MatchCondition, levels: Levels) -> bool:
        """Whether all that connects the subquery to this query is its own WHERE."""
        query, outer = limit_of(partners, self._catalog), Flattener(levels[-1].entries)
        if not is_correlated(query):
            return True
        where = [Flattener(query.entries)(outer_part(c, outer)) for c in conjuncts(query.where)]
        return query.is_row_wise and correlation_of_where(query, [c for c in where if correlated(c)])

    def _asked(self, partners: query_tree.MatchCondition, levels: Levels) -> SubqueryTest:
        """A subquery of WHERE: its rows by themselves, and what connects them to the query around it."""
        query, outer = limit_of(partners, self._catalog), Flattener(levels[-1].entries)
        own = Flattener(query.entries)
        visible = [t.expression for t in query.targets if not t.hidden]
        where = [own(outer_part(c, outer)) for c in conjuncts(query.where)]
        connecting = [c for c in where if correlated(c)]
        if connecting:
            test = [into_subquery(c, lambda var: visible[var.number - 1]) for c in conjuncts(partners.test)]
            test = [own(outer_part(c, outer)) for c in test]
            inside = [c for c in where if not correlated(c)]
            rows = self._rows((*levels, query), own_columns([*connecting, *test]), inside)
            return SubqueryTest(rows, tuple(connecting), tuple(test), partners.negated, partners.at)
        built = self.query(query, range(len(visible)) if partners.test is not None else (), levels)
        places = {(tree.RESULT, i + 1): i for i in range(len(built.exprs))}
        rows = JoinScope(project_columns(built.node, built.exprs), places, frozenset({tree.RESULT}))
        test = [outer_part(into_subquery(c, lambda var: var), outer) for c in conjuncts(partners.test)]
        return SubqueryTest(rows, (), tuple(test), partners.negated, partners.at)

    def _above(
        self,
        frame: JoinScope,
        grouped: GroupedQuery | GroupedBySets | GroupedByDomain,
        targets: Sequence[tree.Expression],
        having: tree.Expression | None,
        *,
        levels: Levels,
    ) -> tuple[Node, Scope]:
        """The groups that HAVING leaves, with the answers of the subqueries that stand above them."""
        node: Node = grouped.node(frame.node)
        base, known = node, grouped.scope(fields(node))
        answers: dict[int, Expr] = {}

        def scope(expression: tree.Expression) -> Expr | None:
            found = known(expression)
            return answers.get(expression.number) if found is None and isinstance(expression, tree.SubLink) else found

        for expression in (*(() if having is None else (having,)), *targets):
            for subquery in walk.subqueries(expression):
                if subquery.number not in answers and known(expression) is None:
                    around = OuterQuery(node, base, known, levels)
                    node, answers[subquery.number] = self._answering.answer(around, subquery)
            if having is not None and expression is having:
                node = base = Filter(node, ExpressionCompiler(self._catalog, scope).compile(having))
        return node, scope

    def _answered(self, frame: JoinScope, expressions: Sequence[tree.Expression], levels: Levels) -> JoinScope:
        """The frame with a column for the answer of each subquery in the expressions."""
        base = frame.node
        for subquery in (s for e in expressions for s in walk.subqueries(e)):
            if subquery.number not in frame.answers:
                around = OuterQuery(frame.node, base, frame.scope, levels)
                node, answer = self._answering.answer(around, subquery)
                frame = replace(frame, node=node, answers=frame.answers | {subquery.number: answer})
        return frame

    def _compiler(self, frame: JoinScope) -> ExpressionCompiler:
        return ExpressionCompiler(self._catalog, frame.scope)

    def _from(self, levels: Levels, wanted: Sequence[tree.Expression], where: Sequence[tree.Expression]) -> JoinScope:
        query = levels[-1]
        reads: dict[int, set[int]] = {}
        for expression in wanted:
            for var in walk.variables(expression):
                _check_variable(var)
                reads.setdefault(var.entry, set()).add(var.number)
        for number in from_entries(query.items):
            for var in lateral_columns(query.entries[number - 1]):
                for base in walk.variables(Flattener(query.entries)(var)):
                    _check_variable(base)
                    reads.setdefault(base.entry, set()).add(base.number)

        def lean(number: int, *, on: Sequence[tree.Expression] | None) -> Leaning:
            return lambda frame: self._members.leaning(frame, number, sorted(reads.get(number, ())), levels, on=on)

        of = _Making(lambda n: self._members.upright(n, sorted(reads.get(n, ())), levels), lean)
        return self._joined(query.items, where, of, levels)

    def _joined(
        self,
        items: Sequence[query_tree.FromItem],
        where: Sequence[tree.Expression],
        of: _Making,
        levels: Levels,
    ) -> JoinScope:
        """Inner joins of members, some of which are outer joins, whose sides are such joins again."""
        query = levels[-1]
        flat = Flattener(query.entries)

        def compile_in(condition: tree.Expression, frame: JoinScope) -> Expr:
            return self._compiler(frame).compile(condition)

        def part(item: Unjoined) -> JoinScope:
            if isinstance(item, query_tree.RangeTblRef):
                return JoinScope.of(of.upright(item.entry))
            on = [flat(c) for c in conjuncts(item.condition)]
            if isinstance(item.right, query_tree.RangeTblRef) and is_dependent(item.right, query):
                return of.leaning(item.right.entry, on=on)(self._joined((item.left,), (), of, levels))
            left, right = (self._joined((side,), (), of, levels) for side in (item.left, item.right))
            for condition in on:
                left, right = self._answered_beside(condition, left, right, levels)
            return bind_outer_join(item.kind, left, right, on, compile_in)

        parts, on = place_members(items)
        upright = [part(p) for p in parts if not is_dependent(p, query)]
        entries = [p.entry for p in parts if isinstance(p, query_tree.RangeTblRef) and is_dependent(p, query)]
        leaning = [of.leaning(entry, on=None) for entry in entries]
        # Conditions that ask a subquery come with those of WHERE.
        plain = [flat(c) for c in on if not any(walk.subqueries(c))]
        return bind_join(upright, [*plain, *where], compile_in, leaning)

    def _answered_beside(
        self, condition: tree.Expression, left: JoinScope, right: JoinScope, levels: Levels
    ) -> tuple[JoinScope, JoinScope]:
        """The sides of an outer join, with the answers its condition asks for on the side that asks."""
        for subquery in walk.subqueries(condition):
            read = {var.entry for var in walk.variables(subquery)}
            if read <= right.entries:
                right = self._answered(right, [subquery], levels)
            elif read <= left.entries:
                left = self._answered(left, [subquery], levels)
            else:
                construct = "a subquery in ON that reads both sides of an outer join"
                hint = "compute it in a subquery of FROM"
                raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=subquery.at)
        return left, right


def _grouped_by(query: query_tree.Query) -> Sequence[query_tree.GroupItem]:
    """The keys of GROUP BY; one group of all rows is one for each given row."""
    if query.groups or not query.is_grouped:
        return query.groups
    return [query_tree.GroupItem(query.targets[i].group_reference, query_tree.SAME) for i in query.domain_targets]


def _per_given(grouped: GroupedQuery, query: query_tree.Query) -> GroupedQuery | GroupedByDomain:
    """A group of all rows is there also where there are no rows."""
    if query.groups or not query.domain_targets:
        return grouped
    (given,) = (entry.node for entry in query.entries if isinstance(entry, query_tree.DomainEntry))
    return GroupedByDomain(grouped, given)


def _group_target(query: query_tree.Query, reference: int) -> tree.Expression:
    found = [t.expression for t in query.targets if t.group_reference == reference]
    if len(found) != 1:
        raise unknown("a GROUP BY key that names no target")
    return found[0]


def _check_variable(var: tree.Var) -> None:
    if var.levels_up:
        raise Refused(Reason.CONSTRUCT, "a reference to an outer query", hint="join the tables instead", token=var.at)
    if var.number == 0:
        raise whole_row_refusal(var)
    if var.number < 0:
        raise Refused(Reason.COLUMN, "a system column", hint="use a column of your own", token=var.at)
