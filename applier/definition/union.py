"""UNION ALL: the columns of all branches brought to one type and one carrier. Pure.

PostgreSQL names the type each column meets in and leaves the cast itself to the planner, so it is not in the tree. Only
casts that keep the value are made here; what would change it must be written in the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.definition.refusal import Reason, Refused
from applier.definition.unify import unify
from applier.expressions.entry import Unfit
from applier.plan.expr import Expr, ValueType, Widen
from shared_schema.pg_types import PgType

_INTEGERS = {"int2": "smallint", "int4": "int", "int8": "bigint"}
_SAME_TEXT = frozenset({"text", "varchar"})
_HINT = "cast the columns of all branches to one type"


def meet(branches: Sequence[Sequence[Expr]], types: Sequence[PgType]) -> list[tuple[Expr, ...]]:
    """Each branch's columns as the columns of the whole, in these types."""
    columns = [_column([branch[i] for branch in branches], pg) for i, pg in enumerate(types)]
    return [tuple(column[n] for column in columns) for n in range(len(branches))]


def _column(exprs: Sequence[Expr], pg: PgType) -> list[Expr]:
    try:
        met = unify([_cast(expr, pg) for expr in exprs])
    except Unfit as error:
        raise Refused(Reason.CARRIER, f"UNION ALL of {error.problem}", hint=error.hint or _HINT) from error
    return [replace(expr, type=ValueType(pg, expr.type.spark)) for expr in met]


def _cast(expr: Expr, pg: PgType) -> Expr:
    name = expr.type.pg.name
    if name == pg.name or {name, pg.name} <= _SAME_TEXT:
        return expr
    if name in _INTEGERS and pg.name in _INTEGERS:
        return Widen(expr, ValueType(pg, _INTEGERS[pg.name]))
    raise Unfit(f"values of type {expr.type.pg.display} and {pg.display}")
