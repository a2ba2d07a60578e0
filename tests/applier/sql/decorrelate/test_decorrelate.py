"""Decorrelation needs no query tree and no server: a bound plan in, a plan out."""

from __future__ import annotations

from dataclasses import replace

from applier.functions.aggregates.aggregates import COUNT_CALL
from applier.plan.expr import BOOL, INT4, Call, Coalesce, Col, Const, Expr
from applier.plan.limits import DEFAULT_LIMITS, PlanBudget
from applier.plan.nodes import Aggregate, Field, Join, Node, OuterJoin, Project, Scan, SemiJoin, walk
from applier.sql.bound.columns import BoundColumn, ItemCol, OuterCol, SubqueryCol
from applier.sql.bound.nodes import (
    Correlation,
    DependentJoin,
    DependentKind,
    ItemRef,
    MatchJoin,
    NodeItem,
    QueryItem,
    Select,
)
from applier.sql.decorrelate.decorrelate import decorrelate
from shared_schema.table_schema import TableId

_NONE = ("", ())


def _scan(name: str) -> Scan:
    return Scan(table=TableId("public", name), relid=1, columns=("x",), fields=(Field(INT4, False),), key=None)


def _select(number: int, scan: Scan, columns: tuple[BoundColumn, ...], targets: tuple[Expr, ...]) -> Select:
    return Select(
        number=number,
        columns=columns,
        items={1: NodeItem(scan, {1: 0}, _NONE)},
        tables=(ItemRef(1),),
        where=(),
        matches=(),
        subqueries=(),
        group=None,
        set_keys=(),
        set_functions=(),
        windows=(),
        has_windows=False,
        targets=targets,
        target_subqueries=(),
    )


OWN = Col(0, INT4, False)
EQUAL = Call("int4eq(int4,int4)", (OWN, Col(1, INT4, False)), BOOL)
READ = OuterCol(1, 0)
INNER = replace(_select(2, _scan("b"), (ItemCol(1, 1), READ), ()), where=(EQUAL,))
"""SELECT FROM b WHERE b.x = a.x"""
EXISTS = DependentJoin(DependentKind.EXISTS, INNER, Correlation((READ,)), None, (), False, 0, None)
OUTER = replace(_select(1, _scan("a"), (ItemCol(1, 1), SubqueryCol(0)), (OWN,)), subqueries=(EXISTS,))
A, B = _scan("a"), _scan("b")


def test_exists_in_where_is_a_semi_join() -> None:
    bound = replace(OUTER, matches=(MatchJoin(0, False, False, Col(1, BOOL)),))
    assert decorrelate(bound, PlanBudget(DEFAULT_LIMITS)) == SemiJoin(A, B, ((OWN, OWN),), None, anti=False)


def test_exists_as_a_value_counts_the_rows_of_each_group() -> None:
    bound = replace(OUTER, targets=(OWN, Col(1, BOOL)), target_subqueries=(0,))
    counted = Coalesce((Col(2, COUNT_CALL.type), Const(0, COUNT_CALL.type)), COUNT_CALL.type)
    joined = OuterJoin(A, Aggregate(B, (OWN,), (COUNT_CALL,)), ((OWN, OWN),), None, full=False)
    found = Call("int8gt(int8,int8)", (counted, Const(0, COUNT_CALL.type)), BOOL)
    assert decorrelate(bound, PlanBudget(DEFAULT_LIMITS)) == Project(joined, (OWN, found))


def test_a_query_that_reads_more_than_in_where_is_evaluated_over_the_domain() -> None:
    dependent = replace(EXISTS, correlation=Correlation((READ,), only_in_where=False))
    bound = replace(OUTER, subqueries=(dependent,), where=(Col(1, BOOL),))
    domain = Aggregate(A, (OWN,), ())
    inner = Project(Join(domain, B, ((OWN, OWN),), None), (OWN,))
    assert decorrelate(bound, PlanBudget(DEFAULT_LIMITS)) == SemiJoin(A, inner, ((OWN, OWN),), None, anti=False)


def test_a_lateral_query_is_joined_by_its_conditions() -> None:
    lateral = QueryItem(replace(INNER, targets=(OWN,)), (1,), Correlation((READ,)), _NONE)
    columns = (ItemCol(1, 1), ItemCol(2, 1))
    bound = _select(1, A, columns, (OWN, Col(1, INT4, False)))
    bound = replace(bound, items=bound.items | {2: lateral}, tables=(ItemRef(1), ItemRef(2)))
    plan = decorrelate(bound, PlanBudget(DEFAULT_LIMITS))
    assert [type(node) for node in walk(plan)] == [Project, Join, Scan, Project, Scan]
    assert _join(plan).equi == ((OWN, OWN),)


def _join(plan: Node) -> Join:
    return next(node for node in walk(plan) if isinstance(node, Join))
