"""`IS [NOT] TRUE | FALSE | UNKNOWN` -> plan expressions. Pure."""

from __future__ import annotations

from typing import assert_never

from applier.plan.expr import BOOL, BoolOp, Coalesce, Const, Expr, IsNull, Logic
from applier.sql.pg_tree import tree


def compile_boolean_test(arg: Expr, test: tree.BoolTestType) -> Expr:
    """Compile a boolean test of a compiled argument; the result is never NULL."""
    false = Const(False, BOOL)
    negated = BoolOp(Logic.NOT, (arg,), BOOL)
    match test:
        case tree.BoolTestType.IS_TRUE:
            return Coalesce((arg, false), BOOL)
        case tree.BoolTestType.IS_NOT_TRUE:
            return BoolOp(Logic.NOT, (Coalesce((arg, false), BOOL),), BOOL)
        case tree.BoolTestType.IS_FALSE:
            return Coalesce((negated, false), BOOL)
        case tree.BoolTestType.IS_NOT_FALSE:
            return BoolOp(Logic.NOT, (Coalesce((negated, false), BOOL),), BOOL)
        case tree.BoolTestType.IS_UNKNOWN:
            return IsNull(arg, False, BOOL)
        case tree.BoolTestType.IS_NOT_UNKNOWN:
            return IsNull(arg, True, BOOL)
        case _:
            assert_never(test)
