"""Rows -> plan expressions: as one value, tested for NULL, compared by order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from applier.functions.allow_list import ENTRIES
from applier.functions.arrays.composites import ROW_IN, ROW_OF, fields_of
from applier.functions.entry import UnsuitableArguments
from applier.plan.expr import BOOL, TEXT, BoolOp, Call, Const, Expr, IsNull, Logic, ValueType, nullable
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.pg_tree import tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.casts import OTHER_TYPE
from applier.sql.typing.collations import collation_of

Compile = Callable[[tree.Expression], Expr]
_TEXTS = frozenset({"text", "varchar"})
_SAME_TEXT = frozenset({"int2", "int4", "int8", "bool", "uuid", "date", "time", "timestamp", "timestamptz"})
"""Values that are equal where their texts are, and only there."""


def is_null(expression: tree.NullTest, compile_: Compile) -> Expr:
    """`IS [NOT] NULL` of a value, or of all fields of a row."""
    if not expression.of_row:
        return IsNull(compile_(expression.arg), expression.negated, BOOL)
    if not isinstance(expression.arg, tree.RowExpr):
        raise unknown("a test for NULL of a row that is not written out")
    tests = tuple(IsNull(compile_(part), expression.negated, BOOL) for part in expression.arg.fields)
    return tests[0] if len(tests) == 1 else BoolOp(Logic.AND, tests, BOOL)


def row_value(row: tree.RowExpr, compile_: Compile, catalog: SystemCatalog) -> Expr:
    """A row as one value."""
    fields = tuple(compile_(part) for part in row.fields)
    if row.may_be_missing and all(nullable(part) for part in fields):
        hint = "list the columns; which rows are missing is known where one of them is NOT NULL"
        raise Refused(Reason.COLUMN, "a whole row that may be missing", hint=hint, token=row.at)
    args = (Const("\x00".join(row.names), TEXT), *fields)
    try:
        return Call(ROW_OF, args, ValueType(catalog.pg_type(row.type, -1), ENTRIES[ROW_OF].physical_type(args)))
    except UnsuitableArguments as error:
        raise Refused(
            Reason.TYPE, f"a row with {error.problem}", hint=error.hint or OTHER_TYPE, token=row.at
        ) from error


def row_in(asked: tree.RowIn, compile_: Compile, catalog: SystemCatalog) -> Expr:
    """Whether an array of rows holds a row, of values that are equal where their texts are."""
    row = row_value(asked.row, compile_, catalog)
    for written, value in zip(asked.row.fields, fields_of(row)[1] if isinstance(row, Call) else (), strict=True):
        name = value.type.pg.name
        if name in _SAME_TEXT or (name in _TEXTS and _deterministic(written, value, catalog)):
            continue
        construct = f"CYCLE over values of type {value.type.pg.display}"
        raise Refused(Reason.GROUPING, construct, hint="name a column of integers, text or dates", token=asked.row.at)
    return Call(ROW_IN, (row, compile_(asked.rows)), BOOL)


def _deterministic(written: tree.Expression, value: Expr, catalog: SystemCatalog) -> bool:
    collation = collation_of(written, value, catalog)
    return collation is not None and collation.deterministic


def row_order(expression: tree.RowCompareExpr, compile_: Compile, catalog: SystemCatalog) -> Expr:
    """The first pair that differs decides; NULL when a NULL is met before.

    a < b  or  not b < a and the rest, and for <=: not b <= a  or  a <= b and the rest.
    """
    found: Expr | None = None
    for pair in reversed(expression.pairs):
        function = catalog.operator(pair.operator).function
        applied = replace(pair, function=function)
        ahead, behind = (compile_(replace(applied, args=args)) for args in (pair.args, pair.args[::-1]))
        if found is None:
            found = ahead
            continue
        not_behind = BoolOp(Logic.NOT, (behind,), BOOL)
        first, undecided = (ahead, not_behind) if expression.strict else (not_behind, ahead)
        found = BoolOp(Logic.OR, (first, BoolOp(Logic.AND, (undecided, found), BOOL)), BOOL)
    if found is None:
        raise unknown("a comparison of empty rows")
    return found
