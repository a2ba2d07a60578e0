"""Typed expressions -> plan expressions: every function is looked up in the allow-list, every physical type checked.

What columns, GROUP BY keys, aggregates and subqueries are is known before: the binder has resolved them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import assert_never

from applier.functions.allow_list import ENTRIES
from applier.functions.arrays.arrays import COMPARED, is_own_comparison
from applier.functions.comparison_keys import joined_labels
from applier.functions.entry import UnsuitableArguments, extreme, literal_text
from applier.functions.json.jsonpath import takes_path
from applier.functions.text.regex import from_similar
from applier.plan.expr import BOOL, BoolOp, Call, Case, Coalesce, Const, Expr, IsNull, Logic, ValueType
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.boolean_tests import compile_boolean_test
from applier.sql.typing.casts import (
    OTHER_TYPE,
    SAME_TEXT,
    compile_array_cast,
    compile_literal,
    compile_relabel,
    compile_text_cast,
)
from applier.sql.typing.compile_rows import compile_null_test, compile_row, compile_row_comparison, compile_row_in
from applier.sql.typing.constants import decimal_physical_type
from applier.sql.typing.function_bodies import read_body
from applier.sql.typing.json_expressions import compile_is_json, compile_json_constructor, compile_json_path_query
from applier.sql.typing.json_paths import compile_json_path
from applier.sql.typing.lookup import check_collation, check_unchanged, describe_call, find_entry, refuse_unlisted
from applier.sql.typing.unify import unify
from shared_schema.pg_types import FIRST_USER_OID

Resolved = Mapping[int, Expr]
"""Parts of an expression, by identity, that are values of the node below."""

_LENGTH_CASTS = frozenset({"numeric(numeric,int4)", "varchar(varchar,int4,bool)", "bpchar(bpchar,int4,bool)"})
_SIMILAR = frozenset({"similar_to_escape(text)", "similar_to_escape(text,text)"})
_CONNECTIVES = {
    tree.BoolOperator.AND: Logic.AND,
    tree.BoolOperator.OR: Logic.OR,
    tree.BoolOperator.NOT: Logic.NOT,
}


def compile_expression(expression: tree.Expression, resolved: Resolved, catalog: CatalogSnapshot) -> Expr:
    """Compile an expression, some parts of which are resolved; raises Refused when any other part is not proven."""
    return _Compiler(catalog, resolved).compile(expression)


class _Compiler:
    """Compiles one expression."""

    def __init__(self, catalog: CatalogSnapshot, resolved: Resolved) -> None:
        self._catalog = catalog
        self._resolved = resolved
        self._subjects: list[Expr] = []

    def compile(self, expression: tree.Expression) -> Expr:
        if (found := self._resolved.get(id(expression))) is not None:
            return found
        match expression:
            case tree.Var():
                raise unknown("a column without a known source")
            case tree.Aggref() | tree.WindowFunc() | tree.GroupingFunc() | tree.SetReturningExpr() | tree.SubLink():
                raise _refuse_misplaced(expression)
            case tree.Constant():
                return compile_literal(expression, self._catalog)
            case tree.FuncExpr() if self._catalog.function(expression.function).signature in _SIMILAR:
                return self._compile_similar(expression)
            case tree.FuncExpr() if expression.function >= FIRST_USER_OID:
                return self._inline(expression)
            case tree.FuncExpr():
                # Look up the function first: if it is not listed, its arguments do not matter.
                info, _ = find_entry(expression, self._catalog)
                path = 1 if takes_path(info.signature) else -1
                args = tuple(
                    compile_json_path(arg) if i == path else self.compile(arg) for i, arg in enumerate(expression.args)
                )
                return self._compile_call(args, expression)
            case tree.RelabelType():
                return compile_relabel(self.compile(expression.arg), expression, self._catalog)
            case tree.CoerceViaIO():
                return compile_text_cast(self.compile(expression.arg), expression, self._catalog)
            case tree.ArrayCoerceExpr():
                return compile_array_cast(self.compile(expression.arg), expression, self._catalog)
            case tree.DistinctExpr():
                return self._compile_distinct(expression)
            case tree.NullIfExpr():
                # PostgreSQL gives the equality of NULLIF the result type of NULLIF.
                equality = replace(self.compile(expression.equality), type=BOOL)
                first = self.compile(expression.equality.args[0])
                return Case(((equality, Const(None, first.type)),), first, first.type)
            case tree.BoolExpr():
                args = tuple(self.compile(arg) for arg in expression.args)
                return BoolOp(_CONNECTIVES[expression.connective], args, BOOL)
            case tree.NullTest():
                return compile_null_test(expression, self.compile)
            case tree.RowExpr():
                return compile_row(expression, self.compile, self._catalog)
            case tree.BooleanTest():
                return compile_boolean_test(self.compile(expression.arg), expression.test)
            case tree.CaseExpr():
                return self._compile_case(expression)
            case tree.CaseTestExpr():
                if not self._subjects:
                    raise unknown("a CASE subject outside CASE")
                return self._subjects[-1]
            case tree.CoalesceExpr():
                return self._compile_coalesce(expression)
            case tree.MinMaxExpr():
                return self._compile_min_max(expression)
            case tree.AnyOfList():
                return self._compile_any_of_list(expression)
            case tree.ScalarArrayOpExpr():
                return self._compile_any_of_array(expression)
            case tree.ArrayExpr():
                return self._compile_syntax("array_of(any)", expression.elements, expression.type, expression.at)
            case tree.SubscriptingRef(lower=None):
                return self._compile_syntax(
                    "subscript(anyarray,int4)", (expression.array, expression.index), expression.type
                )
            case tree.SubscriptingRef():
                arguments = walk.arguments(expression)
                return self._compile_syntax("slice(anyarray,int4,int4)", arguments, expression.type)
            case tree.RowIn():
                return compile_row_in(expression, self.compile, self._catalog)
            case tree.RowCompareExpr():
                return compile_row_comparison(expression, self.compile, self._catalog)
            case tree.CollateExpr():
                return self.compile(expression.arg)
            case tree.JsonExpr():
                return compile_json_path_query(expression, self.compile, self._catalog)
            case tree.JsonConstructorExpr():
                return compile_json_constructor(expression, self.compile, self._catalog)
            case tree.JsonIsPredicate():
                return compile_is_json(expression, self.compile)
            case _:
                assert_never(expression)

    def _compile_syntax(
        self, signature: str, arguments: Sequence[tree.Expression], type_: int, at: int | None = None
    ) -> Expr:
        """Compile syntax that is not a function in PostgreSQL, under its name in the allow-list."""
        entry, args = ENTRIES[signature], tuple(self.compile(arg) for arg in arguments)
        pg = self._catalog.pg_type(type_, -1)
        try:
            return Call(signature, args, ValueType(pg, entry.physical_type(args)))
        except UnsuitableArguments as error:
            construct = f"{signature.partition('(')[0]} on {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=at) from error

    def _compile_any_of_array(self, expression: tree.ScalarArrayOpExpr) -> Expr:
        info, own = find_entry(expression, self._catalog)
        operator = self._catalog.operator(expression.operator).name
        entry = ENTRIES.get(f"{COMPARED.get(operator, '')}_{'all' if expression.every else 'any'}(anyelement,anyarray)")
        subject, array = self.compile(expression.subject), self.compile(expression.array)
        try:
            if entry is None or not is_own_comparison(info.signature, array.type.pg.name):
                raise UnsuitableArguments(
                    f"the operator {operator} of {subject.type.pg.display}", hint="list the values one by one"
                )
            check_collation(own, expression, self._catalog)
            return Call(entry.signature, (subject, array), ValueType(BOOL.pg, entry.physical_type((subject, array))))
        except UnsuitableArguments as error:
            construct = f"{'ALL' if expression.every else 'ANY'} of an array with {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=expression.at) from error

    def _compile_call(self, args: tuple[Expr, ...], origin: tree.FuncExpr | tree.AnyOfList) -> Expr:
        info, entry = find_entry(origin, self._catalog)
        check_collation(entry, origin, self._catalog)
        if entry.ordered_labels:
            # The order of an enum is not the order of its labels as text. A label that is added later is an error.
            args = (*args, joined_labels(tuple(self._catalog.labels(args[0].type.pg.oid).values())))
        try:
            physical_type = entry.physical_type(args)
        except UnsuitableArguments as error:
            construct = f"{describe_call(info, origin, self._catalog)} on {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=origin.at) from error
        if isinstance(origin, tree.AnyOfList):
            return Call(info.signature, args, BOOL)
        typmod = _typmod(info.signature, args)
        call = Call(info.signature, args, ValueType(self._catalog.pg_type(origin.type, typmod), physical_type))
        return _fold_literal(call)

    def _inline(self, call: tree.FuncExpr) -> Expr:
        """Compile a call of a user-defined function by inlining its body."""
        info = self._catalog.function(call.function)
        body = read_body(call.function, self._catalog)
        if body is None or _calls_user_function(body.expression):
            raise refuse_unlisted(info, call, self._catalog)
        check_unchanged(info, describe_call(info, call, self._catalog), body.digest, call.at, self._catalog)
        body_expression = (
            walk.with_collation(body.expression, call.input_collation) if call.input_collation else body.expression
        )
        value = self.compile(walk.substitute_vars(body_expression, call.args))
        if value.type.pg.oid != body.result:
            raise refuse_unlisted(info, call, self._catalog)
        if not body.strict or not call.args:
            return value
        missing = tuple(IsNull(self.compile(arg), False, BOOL) for arg in call.args)
        absent = missing[0] if len(missing) == 1 else BoolOp(Logic.OR, missing, BOOL)
        return Case(((absent, Const(None, value.type)),), value, value.type)

    def _compile_similar(self, expression: tree.FuncExpr) -> Expr:
        """Convert the pattern of SIMILAR TO to the regular expression that PostgreSQL uses."""
        args = [self.compile(arg) for arg in expression.args]
        try:
            pattern = from_similar(*map(literal_text, args))
        except UnsuitableArguments as error:
            construct = f"SIMILAR TO with {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=expression.at) from error
        return Const(pattern, args[0].type)

    def _compile_distinct(self, expression: tree.DistinctExpr) -> Expr:
        # NOT coalesce(a = b, both NULL): the equality is NULL only when a side is NULL.
        equality = self.compile(expression.equality)
        sides = tuple(IsNull(self.compile(arg), False, BOOL) for arg in expression.equality.args)
        return BoolOp(Logic.NOT, (Coalesce((equality, BoolOp(Logic.AND, sides, BOOL)), BOOL),), BOOL)

    def _compile_case(self, expression: tree.CaseExpr) -> Expr:
        with self._case_subject(expression.subject):
            conditions = [self.compile(condition) for condition, _ in expression.branches]
        results = [self.compile(result) for _, result in expression.branches]
        *arms, default = self._unify([*results, self.compile(expression.default)], expression.at)
        pg = self._catalog.pg_type(expression.type, -1)
        return Case(tuple(zip(conditions, arms, strict=True)), default, ValueType(pg, default.type.spark))

    @contextmanager
    def _case_subject(self, subject: tree.Expression | None) -> Iterator[None]:
        if subject is None:
            yield
            return
        self._subjects.append(self.compile(subject))
        yield
        self._subjects.pop()

    def _compile_coalesce(self, expression: tree.CoalesceExpr) -> Expr:
        args = self._unify([self.compile(arg) for arg in expression.args], expression.at)
        return Coalesce(args, ValueType(self._catalog.pg_type(expression.type, -1), args[0].type.spark))

    def _compile_min_max(self, expression: tree.MinMaxExpr) -> Expr:
        pg = self._catalog.pg_type(expression.type, -1)
        function = "GREATEST" if expression.largest else "LEAST"
        entry = ENTRIES.get(extreme(function, "text" if pg.name in SAME_TEXT else pg.name))
        if entry is None:
            construct = f"{function} of values of type {pg.display}"
            hint = "it is not yet proven to be equal in Spark; write CASE, with a branch for NULL"
            raise Refused(Reason.FUNCTION, construct, hint=hint, token=expression.at)
        check_collation(entry, expression, self._catalog)
        first, *rest = self._unify([self.compile(arg) for arg in expression.args], expression.at)
        for arg in rest:
            try:
                physical_type = entry.physical_type((first, arg))
            except UnsuitableArguments as error:
                construct = f"{function} on {error.problem}"
                hint = error.hint or OTHER_TYPE
                raise Refused(Reason.TYPE, construct, hint=hint, token=expression.at) from error
            first = Call(entry.signature, (first, arg), ValueType(pg, physical_type))
        return first

    def _compile_any_of_list(self, expression: tree.AnyOfList) -> Expr:
        subject = self.compile(expression.subject)
        calls = tuple(
            self._compile_call((subject, self.compile(element)), expression) for element in expression.elements
        )
        if not calls:
            return Const(expression.every, BOOL)
        return calls[0] if len(calls) == 1 else BoolOp(Logic.AND if expression.every else Logic.OR, calls, BOOL)

    def _unify(self, args: list[Expr], at: int | None) -> tuple[Expr, ...]:
        try:
            return unify(args)
        except UnsuitableArguments as error:
            raise Refused(Reason.TYPE, error.problem, hint=error.hint or OTHER_TYPE, token=at) from error


_MISPLACED: dict[type[tree.Expression], tuple[str, str]] = {
    tree.Aggref: ("an aggregate here", "aggregate in a subquery"),
    tree.WindowFunc: ("a window function here", "compute it in a subquery in FROM"),
    tree.GroupingFunc: ("GROUPING() here", "use it in a query with GROUP BY"),
    tree.SetReturningExpr: (
        "a set-returning function here",
        "use it in FROM, or in the select list and not inside another one",
    ),
    tree.SubLink: (
        "a subquery here",
        "move it into the select list, WHERE, ON or HAVING, or join the subquery in FROM",
    ),
}
"""Expressions that have a value only where the node below computes them: the construct and the hint."""


def _refuse_misplaced(
    expression: tree.Aggref | tree.WindowFunc | tree.GroupingFunc | tree.SetReturningExpr | tree.SubLink,
) -> Refused:
    construct, hint = _MISPLACED[type(expression)]
    return Refused(Reason.CONSTRUCT, construct, hint=hint, token=expression.at)


def _calls_user_function(expression: tree.Expression) -> bool:
    own = isinstance(expression, tree.FuncExpr) and expression.function >= FIRST_USER_OID
    return own or any(_calls_user_function(argument) for argument in walk.arguments(expression))


def _typmod(signature: str, args: tuple[Expr, ...]) -> int:
    """Return the type modifier as PostgreSQL's exprTypmod does: only the result of a length cast has one."""
    if signature in _LENGTH_CASTS and isinstance(args[1], Const) and isinstance(args[1].value, int):
        return args[1].value
    return -1


def _fold_literal(call: Call) -> Expr:
    """Replace an integer literal cast to numeric by a numeric literal, so that it does not widen other operands."""
    match call.args:
        case (Const(value=int() as number),) if call.type.pg.name == "numeric":
            value = Decimal(number)
            return Const(value, ValueType(call.type.pg, decimal_physical_type(value) or call.type.spark))
        case _:
            return call
