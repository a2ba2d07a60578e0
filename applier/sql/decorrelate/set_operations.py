"""UNION, INTERSECT and EXCEPT -> one node. Pure.

INTERSECT and EXCEPT count each row per branch, with NULL as a value like others. The result follows from both counts.
"""

from __future__ import annotations

from dataclasses import replace

from applier.functions.aggregates.aggregates import COUNT_CALL
from applier.functions.entry import extreme
from applier.plan.expr import BOOL, BoolOp, Call, Const, Expr, Logic
from applier.plan.nodes import Aggregate, ColumnName, Filter, Node, Project, Repeat, UnionAll, fields, named
from applier.sql.bound.nodes import CastQuery, GroupKey, SetKind, SetOp
from applier.sql.decorrelate.grouping import aggregate_by, map_key
from applier.sql.decorrelate.lowered import Lowered, bound_columns, project_columns, resolve_over
from applier.sql.decorrelate.scope import Decorrelator, Domain


def lower_set_operation(
    decorrelator: Decorrelator, operation: SetOp, domain: Domain | None, domain_at: int | None
) -> Lowered:
    """Combine the branches; over a domain, its columns are columns of every branch, and are compared too."""
    plain = operation.kind is SetKind.UNION and operation.keeps_duplicates
    width = len(operation.branches[0].casts)
    at = domain_at if plain and domain_at is not None else width
    branches = tuple(_branch(decorrelator, branch, domain, at) for branch in operation.branches)
    count = 0 if domain is None else len(fields(domain.node))
    node = _combine(operation, branches, width, count)
    shown = bound_columns(node)
    own, added = (*shown[:at], *shown[at + count :]), shown[at : at + count]
    return Lowered(node, tuple(own[i] for i in operation.output), added)


def _branch(decorrelator: Decorrelator, branch: CastQuery, domain: Domain | None, at: int) -> Node:
    lowered = decorrelator.query(branch.query, domain, at)
    exprs: tuple[Expr, ...] = tuple(resolve_over(cast, lowered.exprs) for cast in branch.casts)
    return project_columns(lowered.node, (*exprs[:at], *lowered.domain, *exprs[at:]))


def _combine(operation: SetOp, branches: tuple[Node, ...], width: int, count: int) -> Node:
    union = operation.kind is SetKind.UNION
    if union and operation.keeps_duplicates:
        return UnionAll(branches)
    if union:
        node = UnionAll(branches)
        shown = bound_columns(node)
        keys = [map_key(key, lambda expr: resolve_over(expr, shown)) for key in operation.keys]
        domain_keys = [GroupKey(column, column) for column in shown[width : width + count]]
        return aggregate_by(node, [*keys, *domain_keys], ())
    left, right = branches
    return _combine_by_counts(operation, left, right)


def _combine_by_counts(operation: SetOp, left: Node, right: Node) -> Node:
    width = len(fields(left))
    marker = {width: ColumnName("", "in_left")}
    tagged = UnionAll(
        (
            named(Project(left, (*bound_columns(left), Const(True, BOOL))), marker),
            named(Project(right, (*bound_columns(right), Const(False, BOOL))), marker),
        )
    )
    is_left = bound_columns(tagged)[width]
    counts = Aggregate(
        tagged,
        bound_columns(tagged)[:width],
        (
            replace(COUNT_CALL, filter=is_left),
            replace(COUNT_CALL, filter=BoolOp(Logic.NOT, (is_left,), BOOL)),
        ),
    )
    *_, ours, theirs = bound_columns(counts)
    zero = Const(0, COUNT_CALL.type)
    both = operation.kind is SetKind.INTERSECT
    node: Node
    if operation.keeps_duplicates:
        left_over = Call(
            extreme("GREATEST", "int8"),
            (Call("int8mi(int8,int8)", (ours, theirs), COUNT_CALL.type), zero),
            COUNT_CALL.type,
        )
        smaller = Call(extreme("LEAST", "int8"), (ours, theirs), COUNT_CALL.type)
        node = Repeat(counts, smaller if both else left_over)
    else:
        in_left = Call("int8gt(int8,int8)", (ours, zero), BOOL)
        right_matches = Call("int8gt(int8,int8)" if both else "int8eq(int8,int8)", (theirs, zero), BOOL)
        node = Filter(counts, BoolOp(Logic.AND, (in_left, right_matches), BOOL))
    return Project(node, bound_columns(node)[:width])
