"""Turns plan expressions into Spark SQL text over a frame with the columns c0..cn-1.

Spark parses the text in one call; building the same tree call by call through py4j is far slower. Spark must run in
ANSI mode, without losing decimal digits, in UTC (see applier.spark.session).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from applier.functions.allow_list import ENTRIES
from applier.functions.literals import literal
from applier.plan.expr import BoolOp, Call, Case, Coalesce, Col, Const, Expr, IsNull, Logic, Widen
from applier.zset import column_name


def spark_sql(expr: Expr, column: Callable[[int], str] = column_name) -> str:
    """Return the expression as Spark SQL text."""
    match expr:
        case Col():
            return column(expr.ordinal)
        case Const():
            return literal(expr)
        case Call():
            return ENTRIES[expr.signature].sql(expr, [spark_sql(arg, column) for arg in expr.args])
        case BoolOp(logic=Logic.NOT):
            return f"(NOT {spark_sql(expr.args[0], column)})"
        case BoolOp():
            sign = " AND " if expr.logic is Logic.AND else " OR "
            return "(" + sign.join(spark_sql(arg, column) for arg in expr.args) + ")"
        case IsNull():
            return f"({spark_sql(expr.arg, column)} IS {'NOT ' if expr.negated else ''}NULL)"
        case Coalesce():
            return "coalesce(" + ", ".join(spark_sql(arg, column) for arg in expr.args) + ")"
        case Widen():
            return f"CAST({spark_sql(expr.arg, column)} AS {expr.type.spark})"
        case Case():
            whens = (f"WHEN {spark_sql(c, column)} THEN {spark_sql(r, column)} " for c, r in expr.branches)
            return f"(CASE {''.join(whens)}ELSE {spark_sql(expr.default, column)} END)"
        case _:
            assert_never(expr)
