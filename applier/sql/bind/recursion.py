"""WITH RECURSIVE -> Recursion.

The member of WITH is a UNION of what it begins with and of a step that reads the member itself: there it stands for the
rows of the round before. Both must have columns in the same physical types. A numeric that the step makes wider is
tried once more with the wider one; one that grows with every round has no physical type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from applier.plan.expr import Expr, ValueType
from applier.plan.nodes import Field, Node, Recursion, WorkTable
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import BoundQuery, project_columns
from applier.sql.bind.joins import JoinMember
from applier.sql.bind.search_cycle import add_search_cycle
from applier.sql.bind.set_operations import check_columns, common_type
from applier.sql.pg_tree import query_tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused

Levels = tuple[query_tree.Query, ...]
Branch = Callable[[int | query_tree.SetOperation, Sequence[int], Levels], BoundQuery]
"""A branch of a set operation, with the columns that are needed."""
_WIDENINGS = 3
_HINT = "write base UNION [ALL] step, where only the step reads the member itself"


class RecursionBinder:
    """Plans the recursive members of WITH; inside a step the member is its working rows."""

    def __init__(self, catalog: SystemCatalog, branch: Branch) -> None:
        self._catalog = catalog
        self._branch = branch
        self._numbers = count(1)
        self._working: dict[tuple[int, str], WorkTable] = {}

    def member(self, number: int, name: str, reads: Sequence[int], holders: Levels) -> JoinMember:
        """The member of WITH under a number of FROM."""
        working = self._working.get((id(holders[-1]), name))
        places = {r: r - 1 for r in reads}
        return JoinMember(number, working or self._plan(name, holders), places)

    def _plan(self, name: str, holders: Levels) -> Node:
        query, ways = holders[-1].ctes[name], holders[-1].search_cycles.get(name)
        if ways is not None:
            query = add_search_cycle(query, ways, name, self._catalog)
        union, levels = query.union, (*holders, query)
        if (
            union is None
            or union.kind is not query_tree.SetOperationType.UNION
            or query.limit is not None
            or query.order
        ):
            raise Refused(Reason.CONSTRUCT, "WITH RECURSIVE of another form", hint=_HINT)
        match union.branches:
            case (first, second):
                return self._fixpoint((id(holders[-1]), name), union, levels, (first, second))
            case _:
                raise unknown("WITH RECURSIVE of several branches")

    def _fixpoint(
        self,
        key: tuple[int, str],
        union: query_tree.SetOperation,
        levels: Levels,
        branches: tuple[int | query_tree.SetOperation, int | query_tree.SetOperation],
    ) -> Node:
        every, number = range(len(union.columns)), next(self._numbers)
        pg = [self._catalog.pg_type(column.type, column.typmod) for column in union.columns]
        base = self._branch(branches[0], every, levels)
        types = [e.type for e in common_type([base.exprs], pg)[0]]
        for _ in range(_WIDENINGS):
            step = self._step(key, WorkTable(number, tuple(Field(t, True) for t in types)), levels, branches[1])
            first, second = common_type([base.exprs, step.exprs], pg)
            found = _types(first)
            if found == types:
                sides = project_columns(base.node, first), project_columns(step.node, second)
                if not union.keeps_duplicates:
                    check_columns(union, sides[0], self._catalog)
                return Recursion(number, *sides, distinct=not union.keeps_duplicates)
            types = found
        construct = "WITH RECURSIVE whose numerics grow with every round"
        raise Refused(Reason.TYPE, construct, hint="cast the column to one numeric(p,s) in both branches")

    def _step(
        self, key: tuple[int, str], working: WorkTable, levels: Levels, branch: int | query_tree.SetOperation
    ) -> BoundQuery:
        self._working[key] = working
        try:
            return self._branch(branch, range(len(working.fields)), levels)
        finally:
            del self._working[key]


def _types(exprs: Sequence[Expr]) -> list[ValueType]:
    return [expr.type for expr in exprs]
