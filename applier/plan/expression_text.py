"""Expressions of a plan as SQL for people: columns by their names, operators as operators. Pure; nothing runs it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from applier.plan.expr import (
    AggregateCall,
    BoolOp,
    Call,
    Case,
    Coalesce,
    Col,
    Const,
    Expr,
    IsNull,
    Logic,
    SortKey,
    Widen,
    columns_read,
)
from applier.plan.json_path import json_path_text
from applier.plan.nodes import SetReturningFunction, TableFunction
from applier.plan.symbols import infix, prefix
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode, WindowCall

LONGEST_LITERAL = 40
"""A longer one is cut, with … for the rest."""


@dataclass(frozen=True, slots=True)
class Named:
    """A column that has a name; `member` is what has it in FROM, "" where nothing has, `number` tells all apart."""

    member: str
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Computed:
    """A column without a name: what it is, over the columns below."""

    value: Value
    over: tuple[Column, ...]


Value = Expr | AggregateCall | WindowCall | TableFunction
Column = Named | Computed

_OR, _AND, _NOT, _IS, _COMPARED, _OTHER, _SUM, _PRODUCT, _POWER, _SIGN, _CAST, _ATOM = range(12)
"""How tightly operators bind, as PostgreSQL reads them."""

_BINDING = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"), _COMPARED),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
    "^": _POWER,
}
_CASTS = re.compile(
    r"io_cast_\w+|bool|bpchar|date|float[48]|int[248]|interval|numeric|text|time|timestamp|timestamptz|varchar"
)
_NUMBERS = frozenset({"float4", "float8", "int2", "int4", "int8", "numeric"})
_WITH_PATH = re.compile(r"json_(?:value|query|exists|rows)(?:_or_error)?|jsonb_path_\w+")
_ARRAY_TEST = re.compile(r"(eq|ne|lt|le|gt|ge)_(any|all)\(")
_TESTS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SHOWN_AS = {
    "greatest_of": "greatest",
    "least_of": "least",
    "row_of": "row",
    "array_of": "ARRAY",
    "shown_of": "any_value",
}
_LISTINGS = {
    "jsonb_keys": "jsonb_object_keys",
    "jsonb_values": "jsonb_each",
    "jsonb_value_texts": "jsonb_each_text",
    "jsonb_element_texts": "jsonb_array_elements_text",
    "jsonb_fields": "jsonb_to_recordset",
    "jsonb_field": "jsonb_to_record",
    "regexp_match_list": "regexp_matches",
    "regexp_split_to_array": "regexp_split_to_table",
}
"""By the function that makes an array, what people call to get its elements as rows."""


class Writer:
    """Writes what is computed over some columns.

    A name that two of them have is written with its member of FROM; `qualified` every name is.
    """

    def __init__(self, columns: Iterable[Column], *, qualified: bool = False) -> None:
        self._columns = tuple(columns)
        found = dict.fromkeys(leaf for column in self._columns for leaf in leaves(column))
        self._texts = _texts(found, qualified=qualified)

    def column(self, ordinal: int) -> str:
        """One of the columns."""
        return self._column(self._columns[ordinal])[0]

    def __call__(self, value: Value) -> str:
        """Anything that is computed over the columns."""
        return self._value(value, self._columns)[0]

    def all(self, exprs: Iterable[Expr]) -> str:
        """Several, with commas between them."""
        return ", ".join(map(self, exprs))

    def order(self, keys: Iterable[SortKey]) -> str:
        """The keys of ORDER BY."""
        return self._order(keys, self._columns)

    def _column(self, column: Column) -> tuple[str, int]:
        if isinstance(column, Named):
            return self._texts[column], _ATOM
        return self._value(column.value, column.over)

    def _value(self, value: Value, over: Sequence[Column]) -> tuple[str, int]:
        match value:
            case AggregateCall():
                return self._aggregate(value, over), _ATOM
            case WindowCall():
                return self._window(value, over), _ATOM
            case TableFunction():
                return self._set(value, over), _ATOM
            case _:
                return self._expr(value, over)

    def _expr(self, expr: Expr, over: Sequence[Column]) -> tuple[str, int]:
        def bare(part: Expr) -> tuple[str, int]:
            return self._expr(part, over)

        def write(part: Expr) -> str:
            return bare(part)[0]

        def tight(part: Expr, least: int) -> str:
            text, binding = bare(part)
            return text if binding >= least else f"({text})"

        match expr:
            case Col():
                return self._column(over[expr.ordinal])
            case Const():
                return constant(expr), _ATOM
            case Call():
                return _call(expr, bare, tight)
            case BoolOp(logic=Logic.NOT, args=(BoolOp(logic=Logic.NOT, args=(arg,)),)) if sides := _distinct_operands(
                arg
            ):
                return f"{tight(sides[0], _OTHER)} IS NOT DISTINCT FROM {tight(sides[1], _OTHER)}", _IS
            case BoolOp(logic=Logic.NOT, args=(arg,)) if sides := _distinct_operands(arg):
                return f"{tight(sides[0], _OTHER)} IS DISTINCT FROM {tight(sides[1], _OTHER)}", _IS
            case BoolOp(logic=Logic.NOT, args=(arg,)):
                return f"NOT {tight(arg, _NOT)}", _NOT
            case BoolOp(logic=Logic.AND):
                return " AND ".join(tight(arg, _NOT) for arg in expr.args), _AND
            case BoolOp():
                return " OR ".join(tight(arg, _NOT) for arg in expr.args), _OR
            case IsNull():
                return f"{tight(expr.arg, _OTHER)} IS {'NOT ' if expr.negated else ''}NULL", _IS
            case Coalesce():
                return f"coalesce({', '.join(map(write, expr.args))})", _ATOM
            case Widen():
                # The same value; how it is held shows among the physical types.
                return self._expr(expr.arg, over)
            case Case(branches=((Call() as test, Const(value=None)),)) if _nullif(test, expr.default):
                return f"nullif({', '.join(map(write, test.args))})", _ATOM
            case Case():
                whens = "".join(f"WHEN {write(c)} THEN {write(r)} " for c, r in expr.branches)
                absent = isinstance(expr.default, Const) and expr.default.value is None
                return f"CASE {whens}{'' if absent else f'ELSE {write(expr.default)} '}END", _ATOM
            case _:
                assert_never(expr)

    def _order(self, keys: Iterable[SortKey], over: Sequence[Column]) -> str:
        return ", ".join(self._sort_key(key, over) for key in keys)

    def _sort_key(self, key: SortKey, over: Sequence[Column]) -> str:
        direction = " DESC" if key.descending else ""
        nulls = "" if key.nulls_first == key.descending else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        return f"{self._expr(key.expr, over)[0]}{direction}{nulls}"

    def _list(self, exprs: Iterable[Expr], over: Sequence[Column]) -> str:
        return ", ".join(self._expr(expr, over)[0] for expr in exprs)

    def _aggregate(self, call: AggregateCall, over: Sequence[Column]) -> str:
        function = _SHOWN_AS.get(name := call.signature.partition("(")[0], name)
        order = f"ORDER BY {self._order(call.order, over)}" if call.order else ""
        # The number of decimals, which goes beside the value, is no argument of the user's.
        args = self._list(call.args[:1] if call.signature.endswith(",scale)") else call.args, over) or "*"
        if call.direct or name == "mode":
            text = f"{function}({self._list(call.direct, over)}) WITHIN GROUP ({order})"
        else:
            text = f"{function}({'DISTINCT ' if call.distinct else ''}{args}{f' {order}' if order else ''})"
        return text if call.filter is None else f"{text} FILTER (WHERE {self._expr(call.filter, over)[0]})"

    def _window(self, call: WindowCall, over: Sequence[Column]) -> str:
        name = f"{call.name}({self._list(call.args, over)})"
        text = name if call.aggregate is None else self._aggregate(call.aggregate, over)
        parts = [
            f"PARTITION BY {self._list(call.partition, over)}" if call.partition else "",
            f"ORDER BY {self._order(call.order, over)}" if call.order else "",
            "" if call.frame is None or _usual(call.frame, call.order) else _frame(call.frame, call.order),
        ]
        return f"{text} OVER ({' '.join(filter(None, parts))})"

    def _set(self, made: TableFunction, over: Sequence[Column]) -> str:
        args = self._list(made.args, over)
        match made.function:
            case SetReturningFunction.MOMENTS:
                first, last, step = made.args
                return f"generate_series({self._list((first, last), over)}, {_span(step)})"
            case SetReturningFunction.SERIES | SetReturningFunction.CALENDAR:
                return f"generate_series({args})"
            case SetReturningFunction.MEMBERS:
                return f"jsonb_array_elements({args})"
            case SetReturningFunction.LISTED if len(made.args) == 1:
                return args
            case SetReturningFunction.LISTED:
                return f"unnest(ARRAY[{args}])"
            case SetReturningFunction.ELEMENTS:
                return self._elements(made.args[0], over)
            case _:
                assert_never(made.function)

    def _elements(self, array: Expr, over: Sequence[Column]) -> str:
        listed = _LISTINGS.get(array.signature.partition("(")[0]) if isinstance(array, Call) else None
        if listed is None or not isinstance(array, Call):
            return f"unnest({self._expr(array, over)[0]})"
        if listed.startswith("jsonb_to_record"):
            return f"{listed}({self._list(array.args[:1], over)}) ->> {self._list(array.args[1:2], over)}"
        return f"{listed}({self._list(array.args, over)})"


def _distinct_operands(expr: Expr) -> tuple[Expr, ...] | None:
    """The sides of which it says that they are equal or both NULL."""
    match expr:
        case Coalesce(args=(Call(args=sides) as test, BoolOp(logic=Logic.AND, args=(IsNull() as a, IsNull() as b)))):
            missing = (a.arg, b.arg) == sides and not a.negated and not b.negated
            return sides if missing and _is_equality(test) else None
        case _:
            return None


def _is_equality(test: Call) -> bool:
    return len(test.args) == 2 and infix(test.signature.partition("(")[0]) == "="


def _nullif(test: Call, default: Expr) -> bool:
    """Whether a CASE that is NULL where the test holds, and else the default, is NULLIF."""
    return _is_equality(test) and test.args[0] == default


def leaves(column: Column) -> Iterator[Named]:
    """The columns with a name that a column is, or is computed from."""
    if isinstance(column, Named):
        yield column
    else:
        for ordinal in dict.fromkeys(ordinal for part in _parts(column.value) for ordinal in columns_read(part)):
            yield from leaves(column.over[ordinal])


def _parts(value: Value) -> Iterator[Expr]:
    match value:
        case AggregateCall():
            yield from (*value.args, *value.direct, *(key.expr for key in value.order))
            yield from () if value.filter is None else (value.filter,)
        case WindowCall():
            yield from value.inputs()
        case TableFunction():
            yield from value.args
        case _:
            yield value


def _texts(leaves: Iterable[Named], *, qualified: bool) -> dict[Named, str]:
    """Each by its name, with its member where others have that name too, and numbered where that is not enough."""
    found, by_name = dict[Named, str](), dict[str, list[Named]]()
    for leaf in leaves:
        by_name.setdefault(leaf.name, []).append(leaf)
    for name, same in by_name.items():
        taken: set[str] = set()
        for leaf in same:
            plain = not leaf.member or (len(same) == 1 and not qualified)
            text = base = quoted(name) if plain else f"{quoted(leaf.member)}.{quoted(name)}"
            while text in taken:
                text = f"{base}_{len(taken)}"
            taken.add(text)
            found[leaf] = text
    return found


def quoted(name: str) -> str:
    """A name, in quotes where SQL would need them."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) and name == name.lower() else '"' + name.replace('"', '""') + '"'


def _call(call: Call, bare: Callable[[Expr], tuple[str, int]], tight: Callable[[Expr, int], str]) -> tuple[str, int]:
    def write(part: Expr) -> str:
        return bare(part)[0]

    function = call.signature.partition("(")[0]
    if (path := _path(function, call.args)) is not None:
        # Behind it stands how the answer is wrapped, and what it is where there is none.
        more = [write(arg) for arg in call.args[2:]]
        given = [arg for arg in more[:1] if arg != "'{}'"] if function.startswith("json_") else more
        shown = [write(call.args[0]), _literal(path), *given]
        symbol = infix(function)
        return (f"{tight(call.args[0], _OTHER)} {symbol} {shown[1]}", _OTHER) if symbol else _function(function, shown)
    symbol = infix(function) if len(call.args) == 2 or function.startswith("enum_") else None
    if symbol is not None:
        binding = _BINDING.get(symbol, _OTHER)
        return f"{tight(call.args[0], binding)} {symbol} {tight(call.args[1], binding + 1)}", binding
    if len(call.args) == 1 and (sign := prefix(function)) is not None:
        return f"{sign}{tight(call.args[0], _SIGN)}", _SIGN
    if function in _NUMBERS and isinstance(call.args[0], Const):
        return bare(call.args[0])
    if _CASTS.fullmatch(function):
        return f"{tight(call.args[0], _CAST)}::{call.type.pg.display}", _CAST
    if test := _ARRAY_TEST.match(call.signature):
        subject, array = call.args
        return f"{tight(subject, _OTHER)} {_TESTS[test[1]]} {test[2].upper()} ({write(array)})", _COMPARED
    match function, call.args:
        case (("key_of" | "place_of"), (value, *_)):
            # What stands for the value where values are compared; people compare the value.
            return bare(value)
        case "is_json", (value, Const(value=kind), Const(value=unique)):
            what = "" if kind == "any" else f" {str(kind).upper()}"
            return f"{tight(value, _OTHER)} IS JSON{what}{' WITH UNIQUE KEYS' if unique else ''}", _IS
        case "timezone", (zone, value):
            return f"{tight(value, _CAST)} AT TIME ZONE {tight(zone, _CAST)}", _SIGN
        case "extract", (Const(value=str() as part), value):
            return f"extract({part} FROM {write(value)})", _ATOM
        case "subscript", (array, index):
            return f"{tight(array, _ATOM)}[{write(index)}]", _ATOM
        case "slice", (array, first, last):
            return f"{tight(array, _ATOM)}[{write(first)}:{write(last)}]", _ATOM
        case "row_of", (_, *values):
            # The names of its fields come first.
            return f"row({', '.join(map(write, values))})", _ATOM
        case "array_of", elements:
            return f"ARRAY[{', '.join(map(write, elements))}]", _ATOM
        case _:
            return _function(function, [write(arg) for arg in call.args])


def _function(name: str, args: Sequence[str]) -> tuple[str, int]:
    if name.endswith("_given"):
        return f"{name.removesuffix('_given')}({', '.join(args)} ABSENT ON NULL)", _ATOM
    return f"{_SHOWN_AS.get(name, name)}({', '.join(args)})", _ATOM


def _path(function: str, args: Sequence[Expr]) -> str | None:
    """The second argument, where it is a jsonpath."""
    if not _WITH_PATH.fullmatch(function) or len(args) < 2:
        return None
    held = args[1].value if isinstance(args[1], Const) else None
    return json_path_text(held) if isinstance(held, str) else None


def constant(const: Const) -> str:
    """A literal, cut where it is long."""
    match const.value:
        case None:
            return "NULL"
        case bool() as truth:
            return "true" if truth else "false"
        case str() | datetime.date() | bytes() as value:
            return _literal(value.hex() if isinstance(value, bytes) else str(value))
        case value:
            return str(value)


def _literal(text: str) -> str:
    short = text if len(text) <= LONGEST_LITERAL else f"{text[: LONGEST_LITERAL - 1]}…"
    return "'" + short.replace("'", "''").replace("\n", "\\n") + "'"


def _span(step: Expr) -> str:
    """An interval that is held as microseconds."""
    if not isinstance(step, Const):
        return "…"
    if not isinstance(step.value, int):
        return constant(step)
    seconds, micros = divmod(abs(step.value), 1_000_000)
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}" + (f".{micros:06}" if micros else "")
    parts = [f"{days} day{'' if days == 1 else 's'}"] if days or not (rest or micros) else []
    text = " ".join([*parts, *([clock] if rest or micros else [])])
    return f"'{text} ago'" if step.value < 0 else f"'{text}'"


def _usual(frame: Frame, order: Sequence[SortKey]) -> bool:
    """Whether it is the frame of an OVER that says nothing of one."""
    if not order:
        return frame.whole
    up_to_peers = frame.mode is FrameMode.RANGE and frame.end.kind is BoundKind.CURRENT
    return up_to_peers and frame.start.kind is BoundKind.FIRST and frame.exclude is Exclude.NOTHING


def _frame(frame: Frame, order: Sequence[SortKey]) -> str:
    by_time = frame.mode is FrameMode.RANGE and bool(order) and order[0].expr.type.pg.name in _TIMES

    def bound(end: Bound) -> str:
        if end.offset is None:
            return end.kind.value
        return f"{_span(end.offset) if by_time else constant(end.offset)} {end.kind.value}"

    rest = f" EXCLUDE {_EXCLUDED[frame.exclude]}" if frame.exclude in _EXCLUDED else ""
    return f"{frame.mode.value} BETWEEN {bound(frame.start)} AND {bound(frame.end)}{rest}"


_EXCLUDED = {Exclude.CURRENT: "CURRENT ROW", Exclude.GROUP: "GROUP", Exclude.TIES: "TIES"}
_TIMES = frozenset({"date", "time", "timestamp", "timestamptz"})
