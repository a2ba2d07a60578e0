"""Row expressions -> plan expressions: a row as one value, IS NULL of a row, comparisons of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from applier.functions.allow_list import ENTRIES
from applier.functions.arrays.composites import ROW_IN, ROW_OF, fields_of
from applier.functions.entry import UnsuitableArguments
from applier.plan.expr import BOOL, TEXT, BoolOp, Call, Const, Expr, IsNull, Logic, ValueType, nullable
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.casts import OTHER_TYPE
from applier.sql.typing.collations import collation_of

Compile = Callable[[tree.Expression], Expr]
_TEXTS = frozenset({"text", "varchar"})
_SAME_TEXT = frozenset({"int2", "int4", "int8", "bool", "uuid", "date", "time", "timestamp", "timestamptz"})
"""Types whose values are equal exactly when their texts are equal."""


def compile_null_test(expression: tree.NullTest, compile_: Compile) -> Expr:
    """Compile `IS [NOT] NULL` of a value, or of all fields of a row."""
    if not expression.of_row:
        return IsNull(compile_(expression.arg), expression.negated, BOOL)
    if not isinstance(expression.arg, tree.RowExpr):
        raise unknown("IS NULL of a row that is not a row constructor")
    tests = tuple(IsNull(compile_(part), expression.negated, BOOL) for part in expression.arg.fields)
    return tests[0] if len(tests) == 1 else BoolOp(Logic.AND, tests, BOOL)


def compile_row(row: tree.RowExpr, compile_: Compile, catalog: CatalogSnapshot) -> Expr:
    """Compile a row to one value."""
    fields = tuple(compile_(part) for part in row.fields)
    if row.may_be_missing and all(nullable(part) for part in fields):
        hint = "list the columns, or read a row with a NOT NULL column, which shows whether the row is missing"
        raise Refused(
            Reason.COLUMN, "a whole row that may be missing because of an outer join", hint=hint, token=row.at
        )
    args = (Const("\x00".join(row.names), TEXT), *fields)
    try:
        return Call(ROW_OF, args, ValueType(catalog.pg_type(row.type, -1), ENTRIES[ROW_OF].physical_type(args)))
    except UnsuitableArguments as error:
        raise Refused(
            Reason.TYPE, f"a row with {error.problem}", hint=error.hint or OTHER_TYPE, token=row.at
        ) from error


def compile_row_in(expression: tree.RowIn, compile_: Compile, catalog: CatalogSnapshot) -> Expr:
    """Compile the test whether an array of rows contains a row; only for types that are equal when their texts are."""
    row = compile_row(expression.row, compile_, catalog)
    for written, value in zip(expression.row.fields, fields_of(row)[1] if isinstance(row, Call) else (), strict=True):
        name = value.type.pg.name
        if name in _SAME_TEXT or (name in _TEXTS and _has_deterministic_collation(written, value, catalog)):
            continue
        construct = f"CYCLE over values of type {value.type.pg.display}"
        raise Refused(
            Reason.GROUPING, construct, hint="use a column of integers, text or dates", token=expression.row.at
        )
    return Call(ROW_IN, (row, compile_(expression.rows)), BOOL)


def _has_deterministic_collation(written: tree.Expression, value: Expr, catalog: CatalogSnapshot) -> bool:
    collation = collation_of(written, value, catalog)
    return collation is not None and collation.deterministic


def compile_row_comparison(expression: tree.RowCompareExpr, compile_: Compile, catalog: CatalogSnapshot) -> Expr:
    """Compile a comparison of rows: the first pair that differs decides; a NULL before it makes the result NULL.

    a < b  or  not b < a and the rest, and for <=: not b <= a  or  a <= b and the rest.
    """
    result: Expr | None = None
    for pair in reversed(expression.pairs):
        function = catalog.operator(pair.operator).function
        applied = replace(pair, function=function)
        comparison, reversed_comparison = (
            compile_(replace(applied, args=args)) for args in (pair.args, pair.args[::-1])
        )
        if result is None:
            result = comparison
            continue
        not_reversed = BoolOp(Logic.NOT, (reversed_comparison,), BOOL)
        first, undecided = (comparison, not_reversed) if expression.strict else (not_reversed, comparison)
        result = BoolOp(Logic.OR, (first, BoolOp(Logic.AND, (undecided, result), BOOL)), BOOL)
    if result is None:
        raise unknown("a comparison of empty rows")
    return result
