"""One SELECT -> a bound Select: the columns of its scope, its clauses as typed expressions, its dependent joins.

Columns that nothing reads are not scanned, also those of subqueries and views. A Scan has a key when the query reads
all its key columns. Key columns are not read for that purpose alone, because a row key is useful only where its columns
are in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.plan.expr import Col, Expr, ValueType, nullable
from applier.plan.nodes import TableFunction
from applier.sql.bind.conjuncts import conjuncts, on_conditions
from applier.sql.bind.correlation import expand_outer_rows
from applier.sql.bind.expressions import ExpressionBinder
from applier.sql.bind.from_items import BoundItem, FromItems
from applier.sql.bind.grouping import GroupScope, aggregates_in, bind_group_by
from applier.sql.bind.levels import Binder, Level, Levels
from applier.sql.bind.limits import drop_exists_limit
from applier.sql.bind.subqueries import SubqueryBinder, may_raise, to_sublink
from applier.sql.bind.table_functions import TableFunctions
from applier.sql.bind.windows import WindowBinder, window_calls, window_inputs
from applier.sql.bound.columns import (
    BoundColumn,
    ComputedCol,
    ItemCol,
    OuterCol,
    ResultCol,
    SetCol,
    SubqueryCol,
    WindowCol,
)
from applier.sql.bound.nodes import (
    DependentJoin,
    FromTree,
    GroupBy,
    InnerJoinTree,
    ItemRef,
    MatchJoin,
    OuterJoinKind,
    OuterJoinTree,
    Select,
)
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.pg_tree.flatten import Flattener, whole_row_refusal
from applier.sql.pg_tree.query_tree import OuterJoinType, lateral_columns
from applier.sql.refusal import Reason, Refused
from applier.sql.sources import from_entries

_OUTER_JOINS = {
    OuterJoinType.LEFT: OuterJoinKind.LEFT,
    OuterJoinType.RIGHT: OuterJoinKind.RIGHT,
    OuterJoinType.FULL: OuterJoinKind.FULL,
}


class SelectBinder:
    """Binds one SELECT; the queries inside it read its columns while it is bound."""

    def __init__(self, binder: Binder, query: query_tree.Query, outer: Levels) -> None:
        self.number = binder.next_number()
        self._binder = binder
        self._query = query
        self._outer = outer
        self._levels = (*outer, Level(query, self))
        self._flattener = Flattener(query.entries)
        self._ordinals: dict[BoundColumn, int] = {}
        self._types: dict[int, ValueType] = {}
        self._items: dict[int, BoundItem] = {}
        self._nulled = frozenset(_nulled_items(query.items))
        self._subqueries: list[DependentJoin] = []
        self._subquery_indexes: dict[tuple[int, bool], int] = {}
        """The dependent join of each subquery, by its number and whether it is above the groups."""
        self._set_columns: dict[tree.SetReturningExpr, Col] = {}
        self._raising: set[int] = set()
        """The subqueries whose result may be an error."""
        self._groups: GroupScope | None = None

    def bind(self, needed: Sequence[int], also_read: Sequence[int] = ()) -> Select:
        """Bind the query with these targets; the columns of the targets `also_read` are read, but not computed."""
        query, flatten = self._query, self.flatten
        targets = [flatten(query.targets[i].expression) for i in needed]
        keys = [(flatten(_group_target(query, item.reference)), item) for item in query.groups]
        having = None if query.having is None else flatten(query.having)
        where = [flatten(c) for c in conjuncts(query.where)]
        matches = [(p, flatten(to_sublink(drop_exists_limit(p, self._binder.catalog)))) for p in query.match_conditions]
        window_targets = [flatten(query.targets[i].expression) for i in window_inputs(query, targets)]
        # Every set-returning function determines the number of rows, also one whose value is not read.
        expressions = [flatten(target.expression) for target in query.targets]
        set_calls = list(dict.fromkeys(call for each in expressions for call in walk.set_functions(each)))
        grouped_sets = [call for key, _ in keys for call in walk.set_functions(key)]
        above = [*targets, *window_targets]
        parts = [*above, *(() if having is None else (having,))]
        on = [flatten(c) for c in on_conditions(query.items)]
        unread = [expressions[i] for i in also_read]
        self._bind_items([*parts, *set_calls, *(k for k, _ in keys), *on, *where, *(m for _, m in matches), *unread])
        tables = tuple(self._bind_tables(item) for item in query.items)
        conditions = tuple(self.compile(c) for c in where)
        bound_matches = tuple(self._bind_match(condition, written) for condition, written in matches)
        set_keys: tuple[TableFunction, ...] = ()
        if grouped_sets:
            set_keys = self._bind_set_functions(set_calls)
            set_calls = [call for call in set_calls if call not in grouped_sets]
        if set_calls and (grouped_sets or query.windows):
            hint = "call the function in a subquery in FROM"
            construct = "a set-returning function together with a window, or with one that is a grouping key"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=set_calls[0].at)
        group = self._bind_groups(keys, above, having) if query.is_grouped else None
        set_functions = self._bind_set_functions(set_calls, first=len(set_keys))
        windows = WindowBinder(query, ExpressionBinder(self._binder.catalog, self.resolve), flatten, self._binder)
        calls = list(dict.fromkeys(c for t in targets for c in window_calls(t)))
        planned = tuple(windows.bind(call) for call in calls)
        window_columns = {
            call: self._column(WindowCol(i), bound.call.type, bound.call.nullable)
            for i, (call, bound) in enumerate(zip(calls, planned, strict=True))
        }

        def resolve(expression: tree.Expression) -> Expr | None:
            found = window_columns.get(expression) if isinstance(expression, tree.WindowFunc) else None
            return self.resolve(expression) if found is None else found

        above_windows = ExpressionBinder(self._binder.catalog, resolve)
        bound_targets = tuple(above_windows.bind(target) for target in targets)
        target_subqueries = self._subqueries_of(above)
        return Select(
            number=self.number,
            columns=tuple(self._ordinals),
            items={number: item.item for number, item in self._items.items()},
            tables=tables,
            where=conditions,
            matches=bound_matches,
            subqueries=tuple(self._subqueries),
            group=group,
            set_keys=set_keys,
            set_functions=set_functions,
            windows=planned,
            has_windows=bool(query.windows),
            targets=bound_targets,
            target_subqueries=target_subqueries,
        )

    def compile(self, expression: tree.Expression) -> Expr:
        """Compile an expression over the columns of this query, as they are known at this point."""
        return ExpressionBinder(self._binder.catalog, self.resolve).bind(expression)

    def flatten(self, expression: tree.Expression) -> tree.Expression:
        """Return an expression of this query over columns of FROM items alone, its own and those of outer queries."""
        return expand_outer_rows(self._flattener(expression), self._outer)

    def read_outer(self, var: tree.Var) -> tuple[OuterCol, Expr]:
        """Return the column for a query inside this one, and its value over the columns of this query."""
        value = self.compile(self.flatten(var))
        plain = isinstance(value, Col) and self._types[value.ordinal] == value.type
        column = value if isinstance(value, Col) and plain else self._computed_column(value)
        return OuterCol(self.number, column.ordinal, var.at), value

    def resolve(self, expression: tree.Expression) -> Expr | None:
        """Resolve a column, a key, an aggregate, a subquery or a set-returning function."""
        if self._groups is not None and (found := self._groups.find(expression)) is not None:
            return self._column(*found)
        match expression:
            case tree.Var() if expression.levels_up:
                return self._outer_column(expression)
            case tree.Var():
                return None if self._groups is not None else self._item_column(expression)
            case tree.SubLink():
                return self._subquery_column(expression)
            case tree.SetReturningExpr():
                return self._set_columns.get(expression)
            case _:
                return None

    def result_column(self, subquery: int, number: int, value: Expr) -> Col:
        """Return the column of a dependent join's inner query, for its test."""
        return self._column(ResultCol(subquery, number), value.type, nullable(value))

    def _column(self, column: BoundColumn, type_: ValueType, is_nullable: bool) -> Col:
        ordinal = self._ordinals.setdefault(column, len(self._ordinals))
        self._types.setdefault(ordinal, type_)
        return Col(ordinal, type_, is_nullable)

    def _computed_column(self, value: Expr) -> Col:
        return self._column(ComputedCol(value), value.type, nullable(value))

    def _item_column(self, var: tree.Var) -> Col | None:
        _check_variable(var)
        item = self._items.get(var.entry)
        found = None if item is None else item.columns.get(var.number)
        if found is None:
            return None
        return self._column(ItemCol(var.entry, var.number), found.type, found.nullable or var.entry in self._nulled)

    def _outer_column(self, var: tree.Var) -> Col:
        select = self._outer[-var.levels_up].select if var.levels_up <= len(self._outer) else None
        if select is None:
            hint = "join the tables instead"
            raise Refused(Reason.CONSTRUCT, "a reference to an outer query", hint=hint, token=var.at)
        column, value = select.read_outer(replace(var, levels_up=0))
        return self._column(column, value.type, nullable(value))

    def _subquery_column(self, subquery: tree.SubLink) -> Col:
        """Bind a subquery of an expression once below the groups and once above them."""
        key = subquery.number, self._groups is not None
        if key not in self._subquery_indexes:
            index = len(self._subqueries)
            bound, type_ = SubqueryBinder(self._binder, self, self._levels, self.flatten).bind(subquery, index)
            self._subqueries.append(bound)
            self._subquery_indexes[key] = index
            column = self._column(SubqueryCol(index), type_, True)
            if may_raise(bound):
                self._raising.add(column.ordinal)
        found = SubqueryCol(self._subquery_indexes[key])
        return self._column(found, self._types[self._ordinals[found]], True)

    def _subqueries_of(self, expressions: Sequence[tree.Expression]) -> tuple[int, ...]:
        """Return the dependent joins of these expressions at this point, in the order of the text."""
        found: list[int] = []
        for expression in expressions:
            if self._groups is not None and self._groups.find(expression) is not None:
                continue
            for subquery in walk.subqueries(expression):
                self._subquery_column(subquery)
                found.append(self._subquery_indexes[subquery.number, self._groups is not None])
        return tuple(dict.fromkeys(found))

    def _bind_items(self, expressions: Sequence[tree.Expression]) -> None:
        query = self._query
        reads: dict[int, set[int]] = {}
        lateral = [v for n in from_entries(query.items) for v in lateral_columns(query.entries[n - 1])]
        for expression in (*expressions, *map(self.flatten, lateral)):
            for var in walk.variables(expression):
                if not var.levels_up:
                    _check_variable(var)
                    reads.setdefault(var.entry, set()).add(var.number)
        conditions = dict(_conditions_of_right_sides(query.items))
        items = FromItems(self._binder, self, self._levels, self.flatten)
        for number in from_entries(query.items):
            self._binder.count_item()
            item = items.bind(number, tuple(sorted(reads.get(number, ()))), conditions.get(number))
            self._items[number] = item

    def _bind_tables(self, item: query_tree.FromItem) -> FromTree:
        match item:
            case query_tree.RangeTblRef():
                return ItemRef(item.entry)
            case query_tree.InnerJoinExpr():
                left, right = self._bind_tables(item.left), self._bind_tables(item.right)
                return InnerJoinTree(left, right, tuple(self._compile_conditions(item.condition)))
            case query_tree.OuterJoinExpr():
                left, right = self._bind_tables(item.left), self._bind_tables(item.right)
                on = tuple(self._compile_conditions(item.condition))
                at = tuple(walk.place_of(self.flatten(c)) for c in conjuncts(item.condition))
                return OuterJoinTree(_OUTER_JOINS[item.kind], left, right, on, at)

    def _compile_conditions(self, condition: tree.Expression | None) -> list[Expr]:
        return [self.compile(self.flatten(c)) for c in conjuncts(condition)]

    def _bind_match(self, condition: query_tree.MatchCondition, written: tree.Expression) -> MatchJoin:
        test = self.compile(written)
        (subquery,) = self._subqueries_of([written])
        return MatchJoin(subquery, condition.negated, condition.query.limit is not None, test)

    def _bind_set_functions(self, calls: Sequence[tree.SetReturningExpr], first: int = 0) -> tuple[TableFunction, ...]:
        """Bind set-returning functions of the select list; their results are columns from now on."""
        expressions = ExpressionBinder(self._binder.catalog, self.resolve)
        functions: list[TableFunction] = []
        for call in calls:
            columns = TableFunctions(self._binder.catalog, expressions).bind_call(call)
            if len(columns) != 1:
                construct = "a function with several columns in the select list"
                raise Refused(Reason.CONSTRUCT, construct, hint="use it in FROM", token=call.at)
            functions += columns
        for i, (call, function) in enumerate(zip(calls, functions, strict=True), first):
            self._set_columns[call] = self._column(SetCol(i), function.type, True)
        return tuple(functions)

    def _bind_groups(
        self,
        keys: Sequence[tuple[tree.Expression, query_tree.GroupItem]],
        above: Sequence[tree.Expression],
        having: tree.Expression | None,
    ) -> GroupBy:
        """Bind GROUP BY, aggregates and HAVING; from now on expressions are over the groups."""
        parts = [*above, *(() if having is None else (having,))]
        calls = [call for e in parts for call in aggregates_in(e)]
        subqueries = self._subqueries_of([*(key for key, _ in keys), *calls])
        expressions = ExpressionBinder(self._binder.catalog, self.resolve)
        group, scope = bind_group_by(self._query, keys, parts, expressions, self._binder.catalog, raising=self._raising)
        self._groups = scope
        condition = None if having is None else self.compile(having)
        having_subqueries = () if having is None else self._subqueries_of([having])
        return replace(group, having=condition, subqueries=subqueries, having_subqueries=having_subqueries)


def _nulled_items(items: Sequence[query_tree.FromItem], nulled: bool = False) -> list[int]:
    """Return the FROM items whose columns an outer join may replace by NULL."""
    found: list[int] = []
    for item in items:
        match item:
            case query_tree.RangeTblRef():
                found += [item.entry] if nulled else []
            case query_tree.InnerJoinExpr():
                found += _nulled_items((item.left, item.right), nulled)
            case query_tree.OuterJoinExpr():
                left, right = item.kind is not OuterJoinType.LEFT, item.kind is not OuterJoinType.RIGHT
                found += _nulled_items((item.left,), nulled or left) + _nulled_items((item.right,), nulled or right)
    return found


def _conditions_of_right_sides(items: Sequence[query_tree.FromItem]) -> list[tuple[int, bool]]:
    """Return the single items on the right side of outer joins, and whether the join has a condition but `true`."""
    found: list[tuple[int, bool]] = []
    for item in items:
        if isinstance(item, query_tree.RangeTblRef):
            continue
        found += _conditions_of_right_sides((item.left, item.right))
        if isinstance(item, query_tree.OuterJoinExpr) and isinstance(item.right, query_tree.RangeTblRef):
            conditions = conjuncts(item.condition)
            found.append((item.right.entry, not all(map(_is_true_literal, conditions))))
    return found


def _is_true_literal(condition: tree.Expression) -> bool:
    return isinstance(condition, tree.Constant) and bool(condition.datum) and any(condition.datum or b"")


def _group_target(query: query_tree.Query, reference: int) -> tree.Expression:
    found = [t.expression for t in query.targets if t.group_reference == reference]
    if len(found) != 1:
        raise unknown("a GROUP BY key that names no target")
    return found[0]


def _check_variable(var: tree.Var) -> None:
    if var.number == 0:
        raise whole_row_refusal(var)
    if var.number < 0:
        raise Refused(Reason.COLUMN, "a system column", hint="use a column of your own", token=var.at)
