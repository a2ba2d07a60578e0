"""SEARCH and CYCLE -> more columns of the recursive member of WITH, as PostgreSQL's rewriter adds them.

    SEARCH DEPTH FIRST BY a SET s      base: ARRAY[ROW(a)]       step: r.s || ARRAY[ROW(a)]
    SEARCH BREADTH FIRST BY a SET s    base: ROW(0, a)           step: ROW(depth of r + 1, a)
    CYCLE a SET c USING p              base: false, ARRAY[ROW(a)]
                                       step: ROW(a) = ANY (r.p), r.p || ARRAY[ROW(a)], only of rows r that are not c

The depth is a column of its own, behind all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused

_BOOL, _INT4, _INT8, _RECORD, _RECORDS = 16, 23, 20, 2249, 2287
_ARRAYS_EQUAL, _RECORDS_EQUAL, _INT8_EQUAL, _BOOL_EQUAL = 1070, 2988, 410, 91
"""Equality operators."""
_ABOVE = 2
"""The step is a branch of the member, and that is in the query whose WITH it is of."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column more: what it is in the base and in the step."""

    base: tree.Expression
    step: tree.Expression
    shape: query_tree.SetColumn


def add_search_cycle(
    query: query_tree.Query, ways: query_tree.SearchCycle, name: str, catalog: SystemCatalog
) -> query_tree.Query:
    """The member of WITH with the columns of its SEARCH and CYCLE behind its own."""
    if ways.cycle is not None and ways.cycle.type not in (_BOOL, _INT4):
        # The server prints a cast there that it does not read back.
        hint = "leave TO and DEFAULT out, or use integers"
        raise Refused(Reason.CONSTRUCT, "CYCLE with marks of this type", hint=hint, full_in_postgres=False)
    union = query.union
    match None if union is None else union.branches:
        case (int() as first, int() as second) if union is not None:
            base, step = _select(query, first), _select(query, second)
        case _:
            raise unknown("SEARCH or CYCLE over another query")
    itself = next(
        (
            number
            for number, entry in enumerate(step.entries, 1)
            if isinstance(entry, query_tree.CteEntry) and (entry.name, entry.levels_up) == (name, _ABOVE)
        ),
        None,
    )
    if itself is None:
        raise Refused(
            Reason.CONSTRUCT, "SEARCH or CYCLE over this recursion", hint="read the member itself in the step's FROM"
        )
    added = _Added(base, step, itself, len(union.columns), catalog)
    columns = added.columns(ways)
    where = None if ways.cycle is None else added.not_met(ways)
    entries = list(query.entries)
    for number, changed in (
        (first, _with(base, [c.base for c in columns], len(union.columns), None)),
        (second, _with(step, [c.step for c in columns], len(union.columns), where)),
    ):
        entry = entries[number - 1]
        if isinstance(entry, query_tree.SubqueryEntry):
            entries[number - 1] = replace(entry, query=changed)
    return replace(
        query,
        entries=tuple(entries),
        union=replace(union, columns=(*union.columns, *(c.shape for c in columns))),
    )


def _select(query: query_tree.Query, number: int) -> query_tree.Query:
    entry = query.entries[number - 1]
    if not isinstance(entry, query_tree.SubqueryEntry):
        raise unknown("a branch of a recursion that is no query")
    inside = entry.query
    if inside.union is not None or inside.distinct or inside.has_set_functions:
        construct, hint = "SEARCH or CYCLE over DISTINCT, UNION or a set of rows", "put that into a subquery of FROM"
        raise Refused(Reason.CONSTRUCT, construct, hint=hint)
    return inside


def _with(
    query: query_tree.Query, more: Sequence[tree.Expression], width: int, condition: tree.Expression | None
) -> query_tree.Query:
    targets = [query_tree.TargetEntry(expression, None, 0, False) for expression in more]
    where = query.where
    if condition is not None:
        where = condition if where is None else tree.BoolExpr(tree.BoolOperator.AND, (where, condition))
    return replace(query, targets=(*query.targets[:width], *targets, *query.targets[width:]), where=where)


class _Added:
    """Writes the new columns over the targets of both branches; those of the round before are columns of `itself`."""

    def __init__(
        self, base: query_tree.Query, step: query_tree.Query, itself: int, width: int, catalog: SystemCatalog
    ) -> None:
        self._base = base
        self._step = step
        self._itself = itself
        self._width = width
        self._catalog = catalog

    def columns(self, ways: query_tree.SearchCycle) -> list[_Column]:
        """In PostgreSQL's order: the order of SEARCH, whether CYCLE met a row, and its way."""
        found: list[_Column] = []
        search, cycle = ways.search, ways.cycle
        if search is not None and search.breadth_first:
            depth = self._before(self._width + 1 + (0 if cycle is None else 2) + 1, _INT8)
            zero, one = (tree.Constant(_INT8, -1, 0, 8, True, n.to_bytes(8, "little"), None) for n in (0, 1))
            deeper = tree.FuncExpr(self._catalog.built_in("int8pl(int8,int8)"), 0, _INT8, 0, 0, (depth, one), None)
            shape = query_tree.SetColumn(_RECORD, -1, 0, _RECORDS_EQUAL)
            rows = self._row(self._base, search.places, zero), self._row(self._step, search.places, deeper)
            found.append(_Column(*rows, shape))
        elif search is not None:
            found.append(self._way(search.places, self._width + 1))
        if cycle is not None:
            place = self._width + len(found) + 2
            row, way = self._row(self._step, cycle.places), self._before(place, _RECORDS)
            branch = (tree.RowIn(row, way), cycle.mark)
            met = tree.CaseExpr(None, (branch,), cycle.default, cycle.type, cycle.collation, None)
            shape = query_tree.SetColumn(cycle.type, cycle.typmod, cycle.collation, _BOOL_EQUAL)
            found += [_Column(cycle.default, met, shape), self._way(cycle.places, place)]
        if search is not None and search.breadth_first:
            found.append(_Column(zero, deeper, query_tree.SetColumn(_INT8, -1, 0, _INT8_EQUAL)))
        return found

    def not_met(self, ways: query_tree.SearchCycle) -> tree.Expression:
        """Of the round before only rows go on that were not met before."""
        cycle = ways.cycle
        if cycle is None:
            raise AssertionError("no CYCLE")
        mark = self._before(self._width + (ways.search is not None) + 1, cycle.type, cycle.typmod, cycle.collation)
        function = self._catalog.operator(cycle.not_equal).function
        return tree.FuncExpr(function, cycle.not_equal, _BOOL, 0, cycle.collation, (mark, cycle.mark), None)

    def _before(self, number: int, type_: int, typmod: int = -1, collation: int = 0) -> tree.Var:
        return tree.Var(self._itself, number, type_, typmod, collation, 0, None)

    def _way(self, places: Sequence[int], number: int) -> _Column:
        first, further = (
            tree.ArrayExpr((self._row(branch, places),), _RECORDS, None) for branch in (self._base, self._step)
        )
        function = self._catalog.built_in("array_cat(anycompatiblearray,anycompatiblearray)")
        so_far = self._before(number, _RECORDS)
        step = tree.FuncExpr(function, 0, _RECORDS, 0, 0, (so_far, further), None)
        return _Column(first, step, query_tree.SetColumn(_RECORDS, -1, 0, _ARRAYS_EQUAL))

    def _row(self, branch: query_tree.Query, places: Sequence[int], *before: tree.Expression) -> tree.RowExpr:
        parts = (*before, *(branch.targets[place].expression for place in places))
        return tree.RowExpr(parts, tuple(f"f{i}" for i in range(1, 1 + len(parts))), _RECORD, False, None)
