"""SEARCH and CYCLE -> additional columns of a recursive WITH query, as PostgreSQL's rewriter adds them.

    SEARCH DEPTH FIRST BY a SET s      base: ARRAY[ROW(a)]       step: r.s || ARRAY[ROW(a)]
    SEARCH BREADTH FIRST BY a SET s    base: ROW(0, a)           step: ROW(depth of r + 1, a)
    CYCLE a SET c USING p              base: false, ARRAY[ROW(a)]
                                       step: ROW(a) = ANY (r.p), r.p || ARRAY[ROW(a)], only for rows r where c is false

The depth of SEARCH BREADTH FIRST is one more column, after all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused

_BOOL, _INT4, _INT8, _RECORD, _RECORDS = 16, 23, 20, 2249, 2287
_ARRAYS_EQUAL, _RECORDS_EQUAL, _INT8_EQUAL, _BOOL_EQUAL = 1070, 2988, 410, 91
"""Equality operators."""
_LEVELS_UP = 2
"""Levels from the step to the query with the WITH clause: the step is a branch of the WITH query."""


@dataclass(frozen=True, slots=True)
class _Column:
    """An additional column: its expressions in the base and in the step."""

    base: tree.Expression
    step: tree.Expression
    shape: query_tree.SetColumn


def add_search_cycle(
    query: query_tree.Query, search_cycle: query_tree.SearchCycle, name: str, catalog: CatalogSnapshot
) -> query_tree.Query:
    """Append the columns of SEARCH and CYCLE to a recursive WITH query."""
    if search_cycle.cycle is not None and search_cycle.cycle.type not in (_BOOL, _INT4):
        # The server prints a cast there that it cannot parse again.
        hint = "leave TO and DEFAULT out, or use integers"
        raise Refused(Reason.CONSTRUCT, "CYCLE with mark values of this type", hint=hint, full_in_postgres=False)
    union = query.union
    match None if union is None else union.branches:
        case (int() as first, int() as second) if union is not None:
            base, step = _branch_query(query, first), _branch_query(query, second)
        case _:
            raise unknown("SEARCH or CYCLE over another query")
    itself = next(
        (
            number
            for number, entry in enumerate(step.entries, 1)
            if isinstance(entry, query_tree.CteEntry) and (entry.name, entry.levels_up) == (name, _LEVELS_UP)
        ),
        None,
    )
    if itself is None:
        raise Refused(
            Reason.CONSTRUCT,
            "SEARCH or CYCLE over this recursion",
            hint="read the recursive query directly in the FROM of the step",
        )
    builder = _ColumnBuilder(base, step, itself, len(union.columns), catalog)
    columns = builder.columns(search_cycle)
    where = None if search_cycle.cycle is None else builder.not_in_cycle(search_cycle)
    entries = list(query.entries)
    for number, changed in (
        (first, _append_targets(base, [c.base for c in columns], len(union.columns), None)),
        (second, _append_targets(step, [c.step for c in columns], len(union.columns), where)),
    ):
        entry = entries[number - 1]
        if isinstance(entry, query_tree.SubqueryEntry):
            entries[number - 1] = replace(entry, query=changed)
    return replace(
        query,
        entries=tuple(entries),
        union=replace(union, columns=(*union.columns, *(c.shape for c in columns))),
    )


def _branch_query(query: query_tree.Query, number: int) -> query_tree.Query:
    entry = query.entries[number - 1]
    if not isinstance(entry, query_tree.SubqueryEntry):
        raise unknown("a branch of a recursion that is not a query")
    inside = entry.query
    if inside.union is not None or inside.distinct or inside.has_set_functions:
        construct, hint = (
            "SEARCH or CYCLE over DISTINCT, UNION or a set-returning function",
            "move it into a subquery in FROM",
        )
        raise Refused(Reason.CONSTRUCT, construct, hint=hint)
    return inside


def _append_targets(
    query: query_tree.Query, expressions: Sequence[tree.Expression], width: int, condition: tree.Expression | None
) -> query_tree.Query:
    targets = [query_tree.TargetEntry(expression, None, 0, False) for expression in expressions]
    where = query.where
    if condition is not None:
        where = condition if where is None else tree.BoolExpr(tree.BoolOperator.AND, (where, condition))
    return replace(query, targets=(*query.targets[:width], *targets, *query.targets[width:]), where=where)


class _ColumnBuilder:
    """Builds the new columns from the targets of both branches; the entry `itself` holds the rows of the last round."""

    def __init__(
        self, base: query_tree.Query, step: query_tree.Query, itself: int, width: int, catalog: CatalogSnapshot
    ) -> None:
        self._base = base
        self._step = step
        self._itself = itself
        self._width = width
        self._catalog = catalog

    def columns(self, search_cycle: query_tree.SearchCycle) -> list[_Column]:
        """Return the new columns in PostgreSQL's order: the SEARCH column, the CYCLE mark and path, the depth."""
        found: list[_Column] = []
        search, cycle = search_cycle.search, search_cycle.cycle
        if search is not None and search.breadth_first:
            depth = self._last_round_column(self._width + 1 + (0 if cycle is None else 2) + 1, _INT8)
            zero, one = (tree.Constant(_INT8, -1, 0, 8, True, n.to_bytes(8, "little"), None) for n in (0, 1))
            deeper = tree.FuncExpr(self._catalog.built_in("int8pl(int8,int8)"), 0, _INT8, 0, 0, (depth, one), None)
            shape = query_tree.SetColumn(_RECORD, -1, 0, _RECORDS_EQUAL)
            rows = self._build_row(self._base, search.places, zero), self._build_row(self._step, search.places, deeper)
            found.append(_Column(*rows, shape))
        elif search is not None:
            found.append(self._path_column(search.places, self._width + 1))
        if cycle is not None:
            place = self._width + len(found) + 2
            row, path = self._build_row(self._step, cycle.places), self._last_round_column(place, _RECORDS)
            branch = (tree.RowIn(row, path), cycle.mark)
            mark = tree.CaseExpr(None, (branch,), cycle.default, cycle.type, cycle.collation, None)
            shape = query_tree.SetColumn(cycle.type, cycle.typmod, cycle.collation, _BOOL_EQUAL)
            found += [_Column(cycle.default, mark, shape), self._path_column(cycle.places, place)]
        if search is not None and search.breadth_first:
            found.append(_Column(zero, deeper, query_tree.SetColumn(_INT8, -1, 0, _INT8_EQUAL)))
        return found

    def not_in_cycle(self, search_cycle: query_tree.SearchCycle) -> tree.Expression:
        """Return the condition that only rows outside a cycle are continued."""
        cycle = search_cycle.cycle
        if cycle is None:
            raise AssertionError("no CYCLE")
        mark = self._last_round_column(
            self._width + (search_cycle.search is not None) + 1, cycle.type, cycle.typmod, cycle.collation
        )
        function = self._catalog.operator(cycle.not_equal).function
        return tree.FuncExpr(function, cycle.not_equal, _BOOL, 0, cycle.collation, (mark, cycle.mark), None)

    def _last_round_column(self, number: int, type_: int, typmod: int = -1, collation: int = 0) -> tree.Var:
        return tree.Var(self._itself, number, type_, typmod, collation, 0, None)

    def _path_column(self, places: Sequence[int], number: int) -> _Column:
        first, further = (
            tree.ArrayExpr((self._build_row(branch, places),), _RECORDS, None) for branch in (self._base, self._step)
        )
        function = self._catalog.built_in("array_cat(anycompatiblearray,anycompatiblearray)")
        so_far = self._last_round_column(number, _RECORDS)
        step = tree.FuncExpr(function, 0, _RECORDS, 0, 0, (so_far, further), None)
        return _Column(first, step, query_tree.SetColumn(_RECORDS, -1, 0, _ARRAYS_EQUAL))

    def _build_row(self, branch: query_tree.Query, places: Sequence[int], *leading: tree.Expression) -> tree.RowExpr:
        parts = (*leading, *(branch.targets[place].expression for place in places))
        return tree.RowExpr(parts, tuple(f"f{i}" for i in range(1, 1 + len(parts))), _RECORD, False, None)
