"""Typed expressions -> plan expressions: every function looked up in the allow-list, every carrier checked. Pure.

What a column, a GROUP BY key or an aggregate stands for depends on the node below; a Scope says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import assert_never

from applier.definition import tree
from applier.definition.bodies import read_body
from applier.definition.catalog import FIRST_USER_OID, Catalog, FunctionInfo, Volatility
from applier.definition.constants import decimal_carrier, decode
from applier.definition.fields import unknown
from applier.definition.refusal import Reason, Refused
from applier.definition.unify import unify
from applier.expressions.allow_list import ENTRIES
from applier.expressions.arrays import COMPARED, is_own_comparison
from applier.expressions.entry import CollationNeed, Entry, Unfit, extreme, io_cast, literal_text
from applier.expressions.keys import joined_labels
from applier.expressions.regex import from_similar
from applier.expressions.rows import ROW_OF
from applier.plan.expr import BoolOp, Call, Case, Coalesce, Const, Expr, Logic, NullTest, ValueType, nullable
from shared_schema.pg_types import PgType

TEXT = ValueType(PgType(25, -1, "text", "text"), "string")
BOOL = ValueType(PgType(16, -1, "bool", "boolean"), "boolean")

Scope = Callable[[tree.Expression], Expr | None]
"""What an expression stands for in the node below, None when it has to be computed from its parts."""

_TIME_FUNCTIONS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday", "age"}
)
_LENGTH_CASTS = frozenset({"numeric(numeric,int4)", "varchar(varchar,int4,bool)", "bpchar(bpchar,int4,bool)"})
_SIMILAR = frozenset({"similar_to_escape(text)", "similar_to_escape(text,text)"})
_SAME_TEXT = frozenset({"text", "varchar"})
_CONNECTIVES = {
    tree.Connective.AND: Logic.AND,
    tree.Connective.OR: Logic.OR,
    tree.Connective.NOT: Logic.NOT,
}
_OTHER_TYPE = "cast or store the values in one type"


class Compiler:
    """Compiles the expressions of one query level over one scope."""

    def __init__(self, catalog: Catalog, scope: Scope) -> None:
        self._catalog = catalog
        self._scope = scope
        self._subjects: list[Expr] = []

    def compile(self, expression: tree.Expression) -> Expr:
        """The plan expression; Refused when anything in it is not proven."""
        known = self._scope(expression)
        if known is not None:
            return known
        match expression:
            case tree.Var():
                raise unknown("a column of no known source")
            case tree.AggregateOf():
                raise Refused(
                    Reason.CONSTRUCT, "an aggregate here", hint="aggregate in a subquery", token=expression.at
                )
            case tree.WindowOf():
                hint = "compute it in a subquery of FROM"
                raise Refused(Reason.CONSTRUCT, "a window function here", hint=hint, token=expression.at)
            case tree.GroupingOf():
                raise Refused(Reason.CONSTRUCT, "GROUPING() here", hint="use it beside GROUP BY", token=expression.at)
            case tree.Subquery():
                hint = "put it into the select list, WHERE or HAVING, or join the subquery in FROM"
                raise Refused(Reason.CONSTRUCT, "a subquery here", hint=hint, token=expression.at)
            case tree.Constant():
                return self._constant(expression)
            case tree.Apply() if self._catalog.function(expression.function).signature in _SIMILAR:
                return self._similar(expression)
            case tree.Apply() if expression.function >= FIRST_USER_OID:
                return self._inlined(expression)
            case tree.Apply():
                # The function first: where it is not listed, its arguments do not matter.
                self._entry(expression)
                args = tuple(self.compile(arg) for arg in expression.args)
                return self._call(args, expression)
            case tree.Relabel():
                return self._relabel(expression)
            case tree.ViaText():
                return self._via_text(expression)
            case tree.DistinctFrom():
                return self._distinct(expression)
            case tree.NullIf():
                # PostgreSQL notes the type of NULLIF itself on its equality.
                equality = replace(self.compile(expression.equality), type=BOOL)
                first = self.compile(expression.equality.args[0])
                return Case(((equality, Const(None, first.type)),), first, first.type)
            case tree.Connected():
                args = tuple(self.compile(arg) for arg in expression.args)
                return BoolOp(_CONNECTIVES[expression.connective], args, BOOL)
            case tree.IsNull():
                return self._is_null(expression)
            case tree.RowOf():
                return self._row(expression)
            case tree.IsTruth():
                return self._truth(expression)
            case tree.CaseOf():
                return self._case(expression)
            case tree.CaseSubject():
                if not self._subjects:
                    raise unknown("a CASE subject outside CASE")
                return self._subjects[-1]
            case tree.FirstNotNull():
                return self._first_not_null(expression)
            case tree.Extreme():
                return self._extreme(expression)
            case tree.AnyOf():
                return self._any_of(expression)
            case tree.AnyOfArray():
                return self._any_of_array(expression)
            case tree.ArrayOf():
                return self._named("array_of(any)", expression.elements, expression.type, expression.at)
            case tree.Subscript(lower=None):
                return self._named("subscript(anyarray,int4)", (expression.array, expression.index), expression.type)
            case tree.Subscript():
                arguments = tree.arguments(expression)
                return self._named("slice(anyarray,int4,int4)", arguments, expression.type)
            case tree.RowOrder():
                return self._row_order(expression)
            case tree.Collated():
                return self.compile(expression.arg)
            case _:
                assert_never(expression)

    def _named(self, signature: str, arguments: Sequence[tree.Expression], type_: int, at: int | None = None) -> Expr:
        """What is no function of PostgreSQL but syntax."""
        entry, args = ENTRIES[signature], tuple(self.compile(arg) for arg in arguments)
        pg = self._catalog.pg_type(type_, -1)
        try:
            return Call(signature, args, ValueType(pg, entry.carrier(args)))
        except Unfit as error:
            construct = f"{signature.partition('(')[0]} on {error.problem}"
            raise Refused(Reason.CARRIER, construct, hint=error.hint or _OTHER_TYPE, token=at) from error

    def _any_of_array(self, expression: tree.AnyOfArray) -> Expr:
        info, listed = self._entry(expression)
        operator = self._catalog.operator(expression.operator).name
        entry = ENTRIES.get(f"{COMPARED.get(operator, '')}_{'all' if expression.every else 'any'}(anyelement,anyarray)")
        subject, array = self.compile(expression.subject), self.compile(expression.array)
        try:
            if entry is None or not is_own_comparison(info.signature, array.type.pg.name):
                raise Unfit(f"the operator {operator} of {subject.type.pg.display}", hint="list the values one by one")
            self._check_collation(listed, expression)
            return Call(entry.signature, (subject, array), ValueType(BOOL.pg, entry.carrier((subject, array))))
        except Unfit as error:
            construct = f"{'ALL' if expression.every else 'ANY'} of an array with {error.problem}"
            raise Refused(Reason.CARRIER, construct, hint=error.hint or _OTHER_TYPE, token=expression.at) from error

    def _is_null(self, expression: tree.IsNull) -> Expr:
        if not expression.of_row:
            return NullTest(self.compile(expression.arg), expression.negated, BOOL)
        if not isinstance(expression.arg, tree.RowOf):
            raise unknown("a test for NULL of a row that is not written out")
        tests = tuple(NullTest(self.compile(part), expression.negated, BOOL) for part in expression.arg.fields)
        return tests[0] if len(tests) == 1 else BoolOp(Logic.AND, tests, BOOL)

    def _row(self, row: tree.RowOf) -> Expr:
        fields = tuple(self.compile(part) for part in row.fields)
        if row.may_be_missing and all(nullable(part) for part in fields):
            hint = "list the columns; which rows are missing is known where one of them is NOT NULL"
            raise Refused(Reason.COLUMN, "a whole row that may be missing", hint=hint, token=row.at)
        args = (Const("\x00".join(row.names), TEXT), *fields)
        try:
            return Call(ROW_OF, args, ValueType(self._catalog.pg_type(row.type, -1), ENTRIES[ROW_OF].carrier(args)))
        except Unfit as error:
            raise Refused(
                Reason.CARRIER, f"a row with {error.problem}", hint=error.hint or _OTHER_TYPE, token=row.at
            ) from error

    def _row_order(self, expression: tree.RowOrder) -> Expr:
        """The first pair that differs decides; NULL when a NULL is met before.

        a < b  or  not b < a and the rest, and for <=: not b <= a  or  a <= b and the rest.
        """
        found: Expr | None = None
        for pair in reversed(expression.pairs):
            function = self._catalog.operator(pair.operator).function
            applied = replace(pair, function=function)
            ahead, behind = (self.compile(replace(applied, args=args)) for args in (pair.args, pair.args[::-1]))
            if found is None:
                found = ahead
                continue
            not_behind = BoolOp(Logic.NOT, (behind,), BOOL)
            first, undecided = (ahead, not_behind) if expression.strict else (not_behind, ahead)
            found = BoolOp(Logic.OR, (first, BoolOp(Logic.AND, (undecided, found), BOOL)), BOOL)
        if found is None:
            raise unknown("a comparison of empty rows")
        return found

    def _constant(self, constant: tree.Constant) -> Const:
        pg = self._catalog.pg_type(constant.type, constant.typmod)
        if constant.datum is None:
            unbounded = pg.name == "numeric" and pg.precision_scale is None
            return Const(None, ValueType(pg, "decimal(1,0)" if unbounded else pg.spark_ddl))
        if self._catalog.type(pg.oid).is_enum:
            labels = self._catalog.labels(pg.oid)
            return Const(labels[int.from_bytes(constant.datum[:4], "little")], ValueType.of_column(pg))
        value = decode(pg.name, constant.datum, constant.at)
        if not isinstance(value, Decimal):
            return Const(value, ValueType.of_column(pg))
        carrier = decimal_carrier(value)
        return Const(value, ValueType(pg, carrier)) if carrier else Const(f"{value:f}", ValueType(pg, "string"))

    def _entry(self, origin: tree.Apply | tree.AnyOf | tree.AnyOfArray) -> tuple[FunctionInfo, Entry]:
        info = self._catalog.function(origin.function)
        entry = ENTRIES.get(info.signature)
        if entry is None:
            raise self._unlisted(info, origin)
        return info, entry

    def _call(self, args: tuple[Expr, ...], origin: tree.Apply | tree.AnyOf) -> Expr:
        info, entry = self._entry(origin)
        self._check_collation(entry, origin)
        if entry.ordered_labels:
            # An enum's order is not that of its labels; a label that is added later is an error, not a guess.
            args = (*args, joined_labels(tuple(self._catalog.labels(args[0].type.pg.oid).values())))
        try:
            carrier = entry.carrier(args)
        except Unfit as error:
            construct = f"{self._called(info, origin)} on {error.problem}"
            raise Refused(Reason.CARRIER, construct, hint=error.hint or _OTHER_TYPE, token=origin.at) from error
        if isinstance(origin, tree.AnyOf):
            return Call(info.signature, args, BOOL)
        typmod = _typmod(info.signature, args)
        call = Call(info.signature, args, ValueType(self._catalog.pg_type(origin.type, typmod), carrier))
        return _folded(call)

    def _inlined(self, call: tree.Apply) -> Expr:
        """A user's function as the expression it stands for."""
        info = self._catalog.function(call.function)
        body = read_body(self._catalog.open(), call.function, self._catalog.major)
        if body is None or _calls_users(body.expression):
            raise self._unlisted(info, call)
        known = self._catalog.declared
        if known is not None and known.get(call.function) != body.digest:
            construct = f"{self._called(info, call)}, which is not the one the stream table was created with,"
            hint = "drop the stream table and create it again; a function inside a view is not followed at all"
            raise Refused(Reason.FUNCTION, construct, hint=hint, token=call.at)
        value = self.compile(tree.substituted(body.expression, call.args))
        if value.type.pg.oid != body.result:
            raise self._unlisted(info, call)
        if not body.strict or not call.args:
            return value
        missing = tuple(NullTest(self.compile(arg), False, BOOL) for arg in call.args)
        absent = missing[0] if len(missing) == 1 else BoolOp(Logic.OR, missing, BOOL)
        return Case(((absent, Const(None, value.type)),), value, value.type)

    def _similar(self, expression: tree.Apply) -> Expr:
        """The pattern of SIMILAR TO as the regular expression PostgreSQL would make of it."""
        args = [self.compile(arg) for arg in expression.args]
        try:
            pattern = from_similar(*map(literal_text, args))
        except Unfit as error:
            construct = f"SIMILAR TO with {error.problem}"
            raise Refused(Reason.CARRIER, construct, hint=error.hint or _OTHER_TYPE, token=expression.at) from error
        return Const(pattern, args[0].type)

    def _unlisted(self, info: FunctionInfo, origin: tree.Apply | tree.AnyOf | tree.AnyOfArray) -> Refused:
        construct = self._called(info, origin)
        if info.name in _TIME_FUNCTIONS and info.volatility is not Volatility.IMMUTABLE:
            hint = "compare with a column, or filter when reading the stream table"
            return Refused(Reason.CURRENT_TIME, construct, hint=hint, token=origin.at)
        match info.volatility:
            case Volatility.VOLATILE:
                hint = "store the value in a column; a volatile result has no one right content"
                return Refused(Reason.VOLATILE, construct, hint=hint, token=origin.at, full_in_postgres=False)
            case Volatility.STABLE:
                hint = (
                    "its result depends on session settings; use a form that does not (AT TIME ZONE 'UTC'), or store it"
                )
                return Refused(Reason.SESSION, construct, hint=hint, token=origin.at)
            case Volatility.IMMUTABLE if info.oid >= FIRST_USER_OID:
                hint = "write its expression in the query itself, or store the value in a column"
                return Refused(Reason.FUNCTION, construct, hint=hint, token=origin.at)
            case Volatility.IMMUTABLE:
                hint = "it is not yet proven equal in Spark; store the value in a column"
                return Refused(Reason.FUNCTION, construct, hint=hint, token=origin.at)
            case _:
                assert_never(info.volatility)

    def _called(self, info: FunctionInfo, origin: tree.Apply | tree.AnyOf | tree.AnyOfArray) -> str:
        if not origin.operator:
            return f"the function {info.signature}"
        return f"the operator {self._catalog.operator(origin.operator).name} ({info.signature})"

    def _check_collation(self, entry: Entry, origin: tree.Apply | tree.AnyOf | tree.AnyOfArray | tree.Extreme) -> None:
        # A function of any type has no collation where its arguments have none.
        if entry.collation is CollationNeed.NONE or (not origin.input_collation and "any" in entry.signature):
            return
        collation = self._catalog.collation(origin.input_collation)
        if entry.collation is CollationNeed.EQUALITY and not collation.deterministic:
            construct = f"text equality under the nondeterministic collation {collation.name}"
            raise Refused(Reason.COLLATION, construct, hint='use COLLATE "C"', token=origin.at)
        if entry.collation is CollationNeed.LETTERS and not collation.ascii_letters:
            construct = f"upper and lower case, or classes of letters, under the collation {collation.name}"
            raise Refused(Reason.COLLATION, construct, hint='use COLLATE "C", which knows ASCII only', token=origin.at)
        if entry.collation is CollationNeed.ORDER and not collation.byte_order:
            construct = f"text order under the collation {collation.name}"
            hint = 'declare the column COLLATE "C", or compare for equality only'
            raise Refused(Reason.COLLATION, construct, hint=hint, token=origin.at)

    def _relabel(self, relabel: tree.Relabel) -> Expr:
        arg = self.compile(relabel.arg)
        pg = self._catalog.pg_type(relabel.type, relabel.typmod)
        same_base = arg.type.pg.name == pg.name
        if not same_base and not {arg.type.pg.name, pg.name} <= _SAME_TEXT:
            construct = f"the cast from {arg.type.pg.display} to {pg.display}"
            raise Refused(Reason.CARRIER, construct, hint="cast to another type", token=relabel.at)
        return replace(arg, type=ValueType(pg, arg.type.spark))

    def _via_text(self, cast: tree.ViaText) -> Expr:
        arg = self.compile(cast.arg)
        pg = self._catalog.pg_type(cast.type, -1)
        target = "text" if pg.name in _SAME_TEXT else pg.name
        source = "anyarray" if arg.type.pg.name.startswith("_") else arg.type.pg.name
        known = self._catalog.type(arg.type.pg.oid)
        source = "anyenum" if known.is_enum else "record" if known.is_row else source
        entry = ENTRIES.get(io_cast(source, target))
        if entry is None or pg.oid != self._catalog.type(cast.type).base:
            construct = f"the cast from {arg.type.pg.display} to {pg.display}"
            raise Refused(Reason.FUNCTION, construct, hint="store the column in the type you need", token=cast.at)
        try:
            return Call(entry.signature, (arg,), ValueType(pg, entry.carrier((arg,))))
        except Unfit as error:
            construct = f"the cast from {arg.type.pg.display} on {error.problem}"
            raise Refused(Reason.CARRIER, construct, hint=error.hint or _OTHER_TYPE, token=cast.at) from error

    def _distinct(self, expression: tree.DistinctFrom) -> Expr:
        # NOT coalesce(a = b, both NULL): the equality is NULL only when a side is.
        equality = self.compile(expression.equality)
        sides = tuple(NullTest(self.compile(arg), False, BOOL) for arg in expression.equality.args)
        return BoolOp(Logic.NOT, (Coalesce((equality, BoolOp(Logic.AND, sides, BOOL)), BOOL),), BOOL)

    def _truth(self, expression: tree.IsTruth) -> Expr:
        arg = self.compile(expression.arg)
        false = Const(False, BOOL)
        negated = BoolOp(Logic.NOT, (arg,), BOOL)
        match expression.test:
            case tree.TruthTest.IS_TRUE:
                return Coalesce((arg, false), BOOL)
            case tree.TruthTest.IS_NOT_TRUE:
                return BoolOp(Logic.NOT, (Coalesce((arg, false), BOOL),), BOOL)
            case tree.TruthTest.IS_FALSE:
                return Coalesce((negated, false), BOOL)
            case tree.TruthTest.IS_NOT_FALSE:
                return BoolOp(Logic.NOT, (Coalesce((negated, false), BOOL),), BOOL)
            case tree.TruthTest.IS_UNKNOWN:
                return NullTest(arg, False, BOOL)
            case tree.TruthTest.IS_NOT_UNKNOWN:
                return NullTest(arg, True, BOOL)
            case _:
                assert_never(expression.test)

    def _case(self, expression: tree.CaseOf) -> Expr:
        with self._subject(expression.subject):
            conditions = [self.compile(condition) for condition, _ in expression.branches]
        results = [self.compile(result) for _, result in expression.branches]
        *arms, default = self._unified([*results, self.compile(expression.default)], expression.at)
        pg = self._catalog.pg_type(expression.type, -1)
        return Case(tuple(zip(conditions, arms, strict=True)), default, ValueType(pg, default.type.spark))

    @contextmanager
    def _subject(self, subject: tree.Expression | None) -> Iterator[None]:
        if subject is None:
            yield
            return
        self._subjects.append(self.compile(subject))
        yield
        self._subjects.pop()

    def _first_not_null(self, expression: tree.FirstNotNull) -> Expr:
        args = self._unified([self.compile(arg) for arg in expression.args], expression.at)
        return Coalesce(args, ValueType(self._catalog.pg_type(expression.type, -1), args[0].type.spark))

    def _extreme(self, expression: tree.Extreme) -> Expr:
        pg = self._catalog.pg_type(expression.type, -1)
        function = "GREATEST" if expression.largest else "LEAST"
        entry = ENTRIES.get(extreme(function, "text" if pg.name in _SAME_TEXT else pg.name))
        if entry is None:
            construct = f"{function} of values of type {pg.display}"
            hint = "it is not yet proven equal in Spark; write CASE, with a branch for NULL"
            raise Refused(Reason.FUNCTION, construct, hint=hint, token=expression.at)
        self._check_collation(entry, expression)
        first, *rest = self._unified([self.compile(arg) for arg in expression.args], expression.at)
        for arg in rest:
            try:
                carrier = entry.carrier((first, arg))
            except Unfit as error:
                construct = f"{function} on {error.problem}"
                hint = error.hint or _OTHER_TYPE
                raise Refused(Reason.CARRIER, construct, hint=hint, token=expression.at) from error
            first = Call(entry.signature, (first, arg), ValueType(pg, carrier))
        return first

    def _any_of(self, expression: tree.AnyOf) -> Expr:
        subject = self.compile(expression.subject)
        calls = tuple(self._call((subject, self.compile(element)), expression) for element in expression.elements)
        if not calls:
            return Const(expression.every, BOOL)
        return calls[0] if len(calls) == 1 else BoolOp(Logic.AND if expression.every else Logic.OR, calls, BOOL)

    def _unified(self, args: list[Expr], at: int | None) -> tuple[Expr, ...]:
        try:
            return unify(args)
        except Unfit as error:
            raise Refused(Reason.CARRIER, error.problem, hint=error.hint or _OTHER_TYPE, token=at) from error


def _calls_users(expression: tree.Expression) -> bool:
    own = isinstance(expression, tree.Apply) and expression.function >= FIRST_USER_OID
    return own or any(_calls_users(argument) for argument in tree.arguments(expression))


def _typmod(signature: str, args: tuple[Expr, ...]) -> int:
    """PostgreSQL's exprTypmod: only a length cast gives its result a modifier."""
    if signature in _LENGTH_CASTS and isinstance(args[1], Const) and isinstance(args[1].value, int):
        return args[1].value
    return -1


def _folded(call: Call) -> Expr:
    """An integer literal cast to numeric as the numeric literal it is, so that it does not widen what it meets."""
    match call.args:
        case (Const(value=int() as number),) if call.type.pg.name == "numeric":
            value = Decimal(number)
            return Const(value, ValueType(call.type.pg, decimal_carrier(value) or call.type.spark))
        case _:
            return call
