"""The bound branches of UNION, INTERSECT or EXCEPT -> one node, with each column in one type and one physical type.

INTERSECT and EXCEPT count each row per branch, with NULL as a value like others. The result follows from both counts.

PostgreSQL names the common type of each column and leaves the cast to its planner, so the cast is not in the tree. Only
casts that preserve the value are added here. A cast that would change the value must be written in the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.functions.aggregates.aggregates import COUNT
from applier.functions.allow_list import ENTRIES
from applier.functions.entry import UnsuitableArguments, extreme
from applier.plan.expr import BOOL, BoolOp, Call, Const, Expr, Logic, ValueType, Widen
from applier.plan.nodes import Aggregate, ColumnName, Filter, Node, Project, Repeat, UnionAll, named
from applier.sql.bind.bound import bound_columns
from applier.sql.bind.group_key import aggregate_by, check_key, group_key
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.unify import unify
from shared_schema.pg_types import PgType

_INTEGERS = {"int2": "smallint", "int4": "int", "int8": "bigint"}
_SAME_TEXT = frozenset({"text", "varchar"})
_HINT = "cast the columns of all branches to one type"


def unify_columns(branches: Sequence[Sequence[Expr]], types: Sequence[PgType]) -> list[tuple[Expr, ...]]:
    """Convert the columns of every branch to these types and to common physical types."""
    columns = [_unify_column([branch[i] for branch in branches], pg) for i, pg in enumerate(types)]
    return [tuple(column[n] for column in columns) for n in range(len(branches))]


def _unify_column(exprs: Sequence[Expr], pg: PgType) -> list[Expr]:
    try:
        unified = unify([_cast(expr, pg) for expr in exprs])
    except UnsuitableArguments as error:
        raise Refused(
            Reason.TYPE, f"UNION, INTERSECT or EXCEPT of {error.problem}", hint=error.hint or _HINT
        ) from error
    return [replace(expr, type=ValueType(pg, expr.type.spark)) for expr in unified]


def _cast(expr: Expr, pg: PgType) -> Expr:
    name = expr.type.pg.name
    if name == pg.name or {name, pg.name} <= _SAME_TEXT:
        return expr
    if name in _INTEGERS and pg.name in _INTEGERS:
        return Widen(expr, ValueType(pg, _INTEGERS[pg.name]))
    if name in _INTEGERS and pg.name == "numeric":
        return Call(f"numeric({name})", (expr,), ValueType(pg, ENTRIES[f"numeric({name})"].physical_type((expr,))))
    raise UnsuitableArguments(f"values of type {expr.type.pg.display} and {pg.display}")


def bind_set_operation(operation: query_tree.SetOperation, branches: Sequence[Node], catalog: CatalogSnapshot) -> Node:
    """Combine branches whose columns already have common types."""
    union = operation.kind is query_tree.SetOperationType.UNION
    if union and operation.keeps_duplicates:
        return UnionAll(tuple(branches))
    if union:
        node = UnionAll(tuple(branches))
        pairs = zip(bound_columns(node), _compared_columns(operation), strict=True)
        return aggregate_by(node, [group_key(expr, *column, catalog) for expr, column in pairs], ())
    check_columns(operation, branches[0], catalog)
    left, right = branches
    return _combine_by_counts(operation, left, right)


def check_columns(operation: query_tree.SetOperation, branch: Node, catalog: CatalogSnapshot) -> None:
    """Refuse columns whose equal values may have different representations."""
    for expr, column in zip(bound_columns(branch), _compared_columns(operation), strict=True):
        check_key(expr, *column, catalog, operation.kind.name)


def _compared_columns(operation: query_tree.SetOperation) -> list[tuple[tree.Expression, query_tree.GroupItem]]:
    return [
        (tree.Var(0, 1, c.type, c.typmod, c.collation, 0, None), query_tree.GroupItem(0, c.equality))
        for c in operation.columns
    ]


def _combine_by_counts(operation: query_tree.SetOperation, left: Node, right: Node) -> Node:
    width = len(operation.columns)
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
            replace(COUNT, filter=is_left),
            replace(COUNT, filter=BoolOp(Logic.NOT, (is_left,), BOOL)),
        ),
    )
    *_, ours, theirs = bound_columns(counts)
    zero = Const(0, COUNT.type)
    both = operation.kind is query_tree.SetOperationType.INTERSECT
    node: Node
    if operation.keeps_duplicates:
        left_over = Call(
            extreme("GREATEST", "int8"), (Call("int8mi(int8,int8)", (ours, theirs), COUNT.type), zero), COUNT.type
        )
        smaller = Call(extreme("LEAST", "int8"), (ours, theirs), COUNT.type)
        node = Repeat(counts, smaller if both else left_over)
    else:
        in_left = Call("int8gt(int8,int8)", (ours, zero), BOOL)
        right_matches = Call("int8gt(int8,int8)" if both else "int8eq(int8,int8)", (theirs, zero), BOOL)
        node = Filter(counts, BoolOp(Logic.AND, (in_left, right_matches), BOOL))
    return Project(node, bound_columns(node)[:width])
