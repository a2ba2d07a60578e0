"""The columns of several branches -> the same columns in one type and one physical type.

PostgreSQL names the common type of each column of UNION, INTERSECT or EXCEPT and leaves the cast to its planner, so the
cast is not in the tree. Only casts that preserve the value are added here. A cast that would change the value must be
written in the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import UnsuitableArguments
from applier.plan.expr import Call, Expr, ValueType, Widen
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
