"""Writes expressions of a plan as SQL for people, with column names and operators. Pure; the SQL is never executed."""

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

MAX_LITERAL_LENGTH = 40
"""A longer literal is cut and ends with …."""


@dataclass(frozen=True, slots=True)
class Named:
    """A column with a name. `member` is its FROM item, "" if there is none. `number` makes every column distinct."""

    member: str
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Computed:
    """A column without a name: an expression over the columns below."""

    value: ShownValue
    over: tuple[ShownColumn, ...]


ShownValue = Expr | AggregateCall | WindowCall | TableFunction
ShownColumn = Named | Computed

_OR, _AND, _NOT, _IS, _COMPARISON, _OTHER, _SUM, _PRODUCT, _POWER, _SIGN, _CAST, _ATOM = range(12)
"""The precedence of operators in PostgreSQL, lowest first."""

_BINDING = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"), _COMPARISON),
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
_DISPLAY_NAMES = {
    "greatest_of": "greatest",
    "least_of": "least",
    "row_of": "row",
    "array_of": "ARRAY",
    "shown_of": "any_value",
}
_ROW_FUNCTIONS = {
    "jsonb_keys": "jsonb_object_keys",
    "jsonb_values": "jsonb_each",
    "jsonb_value_texts": "jsonb_each_text",
    "jsonb_element_texts": "jsonb_array_elements_text",
    "jsonb_fields": "jsonb_to_recordset",
    "jsonb_field": "jsonb_to_record",
    "regexp_match_list": "regexp_matches",
    "regexp_split_to_array": "regexp_split_to_table",
}
"""Maps an internal function that makes an array to the SQL function that returns its elements as rows."""


class Writer:
    """Writes expressions over some columns.

    A name that two columns share is written with its FROM item. With `qualified` every name is.
    """

    def __init__(self, columns: Iterable[ShownColumn], *, qualified: bool = False) -> None:
        self._columns = tuple(columns)
        found = dict.fromkeys(leaf for column in self._columns for leaf in leaves(column))
        self._texts = _name_leaves(found, qualified=qualified)

    def column(self, ordinal: int) -> str:
        """Write one of the columns."""
        return self._write_column(self._columns[ordinal])[0]

    def __call__(self, value: ShownValue) -> str:
        """Write an expression or call over the columns."""
        return self._write_value(value, self._columns)[0]

    def all(self, exprs: Iterable[Expr]) -> str:
        """Write several expressions, separated by commas."""
        return ", ".join(map(self, exprs))

    def order(self, keys: Iterable[SortKey]) -> str:
        """Write the keys of ORDER BY."""
        return self._write_order(keys, self._columns)

    def _write_column(self, column: ShownColumn) -> tuple[str, int]:
        if isinstance(column, Named):
            return self._texts[column], _ATOM
        return self._write_value(column.value, column.over)

    def _write_value(self, value: ShownValue, over: Sequence[ShownColumn]) -> tuple[str, int]:
        match value:
            case AggregateCall():
                return self._write_aggregate(value, over), _ATOM
            case WindowCall():
                return self._write_window(value, over), _ATOM
            case TableFunction():
                return self._write_table_function(value, over), _ATOM
            case _:
                return self._write_expr(value, over)

    def _write_expr(self, expr: Expr, over: Sequence[ShownColumn]) -> tuple[str, int]:
        def write_bound(part: Expr) -> tuple[str, int]:
            return self._write_expr(part, over)

        def write(part: Expr) -> str:
            return write_bound(part)[0]

        def wrap(part: Expr, least: int) -> str:
            text, binding = write_bound(part)
            return text if binding >= least else f"({text})"

        match expr:
            case Col():
                return self._write_column(over[expr.ordinal])
            case Const():
                return constant(expr), _ATOM
            case Call():
                return _write_call(expr, write_bound, wrap)
            case BoolOp(logic=Logic.NOT, args=(BoolOp(logic=Logic.NOT, args=(arg,)),)) if sides := _distinct_operands(
                arg
            ):
                return f"{wrap(sides[0], _OTHER)} IS NOT DISTINCT FROM {wrap(sides[1], _OTHER)}", _IS
            case BoolOp(logic=Logic.NOT, args=(arg,)) if sides := _distinct_operands(arg):
                return f"{wrap(sides[0], _OTHER)} IS DISTINCT FROM {wrap(sides[1], _OTHER)}", _IS
            case BoolOp(logic=Logic.NOT, args=(arg,)):
                return f"NOT {wrap(arg, _NOT)}", _NOT
            case BoolOp(logic=Logic.AND):
                return " AND ".join(wrap(arg, _NOT) for arg in expr.args), _AND
            case BoolOp():
                return " OR ".join(wrap(arg, _NOT) for arg in expr.args), _OR
            case IsNull():
                return f"{wrap(expr.arg, _OTHER)} IS {'NOT ' if expr.negated else ''}NULL", _IS
            case Coalesce():
                return f"coalesce({', '.join(map(write, expr.args))})", _ATOM
            case Widen():
                # The same value; its physical type is shown separately.
                return self._write_expr(expr.arg, over)
            case Case(branches=((Call() as test, Const(value=None)),)) if _is_nullif(test, expr.default):
                return f"nullif({', '.join(map(write, test.args))})", _ATOM
            case Case():
                whens = "".join(f"WHEN {write(c)} THEN {write(r)} " for c, r in expr.branches)
                absent = isinstance(expr.default, Const) and expr.default.value is None
                return f"CASE {whens}{'' if absent else f'ELSE {write(expr.default)} '}END", _ATOM
            case _:
                assert_never(expr)

    def _write_order(self, keys: Iterable[SortKey], over: Sequence[ShownColumn]) -> str:
        return ", ".join(self._write_sort_key(key, over) for key in keys)

    def _write_sort_key(self, key: SortKey, over: Sequence[ShownColumn]) -> str:
        direction = " DESC" if key.descending else ""
        nulls = "" if key.nulls_first == key.descending else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        return f"{self._write_expr(key.expr, over)[0]}{direction}{nulls}"

    def _write_list(self, exprs: Iterable[Expr], over: Sequence[ShownColumn]) -> str:
        return ", ".join(self._write_expr(expr, over)[0] for expr in exprs)

    def _write_aggregate(self, call: AggregateCall, over: Sequence[ShownColumn]) -> str:
        function = _DISPLAY_NAMES.get(name := call.signature.partition("(")[0], name)
        order = f"ORDER BY {self._write_order(call.order, over)}" if call.order else ""
        # The scale, passed next to the value, is not an argument that the user wrote.
        args = self._write_list(call.args[:1] if call.signature.endswith(",scale)") else call.args, over) or "*"
        if call.direct or name == "mode":
            text = f"{function}({self._write_list(call.direct, over)}) WITHIN GROUP ({order})"
        else:
            text = f"{function}({'DISTINCT ' if call.distinct else ''}{args}{f' {order}' if order else ''})"
        return text if call.filter is None else f"{text} FILTER (WHERE {self._write_expr(call.filter, over)[0]})"

    def _write_window(self, call: WindowCall, over: Sequence[ShownColumn]) -> str:
        name = f"{call.name}({self._write_list(call.args, over)})"
        text = name if call.aggregate is None else self._write_aggregate(call.aggregate, over)
        parts = [
            f"PARTITION BY {self._write_list(call.partition, over)}" if call.partition else "",
            f"ORDER BY {self._write_order(call.order, over)}" if call.order else "",
            ""
            if call.frame is None or _is_default_frame(call.frame, call.order)
            else _write_frame(call.frame, call.order),
        ]
        return f"{text} OVER ({' '.join(filter(None, parts))})"

    def _write_table_function(self, call: TableFunction, over: Sequence[ShownColumn]) -> str:
        args = self._write_list(call.args, over)
        match call.function:
            case SetReturningFunction.MOMENTS:
                first, last, step = call.args
                return f"generate_series({self._write_list((first, last), over)}, {_write_interval(step)})"
            case SetReturningFunction.SERIES | SetReturningFunction.CALENDAR:
                return f"generate_series({args})"
            case SetReturningFunction.MEMBERS:
                return f"jsonb_array_elements({args})"
            case SetReturningFunction.LISTED if len(call.args) == 1:
                return args
            case SetReturningFunction.LISTED:
                return f"unnest(ARRAY[{args}])"
            case SetReturningFunction.ELEMENTS:
                return self._write_elements(call.args[0], over)
            case _:
                assert_never(call.function)

    def _write_elements(self, array: Expr, over: Sequence[ShownColumn]) -> str:
        row_function = _ROW_FUNCTIONS.get(array.signature.partition("(")[0]) if isinstance(array, Call) else None
        if row_function is None or not isinstance(array, Call):
            return f"unnest({self._write_expr(array, over)[0]})"
        if row_function.startswith("jsonb_to_record"):
            document, field = self._write_list(array.args[:1], over), self._write_list(array.args[1:2], over)
            return f"{row_function}({document}) ->> {field}"
        return f"{row_function}({self._write_list(array.args, over)})"


def _distinct_operands(expr: Expr) -> tuple[Expr, ...] | None:
    """Return the two operands, if the expression says that they are equal or both NULL."""
    match expr:
        case Coalesce(args=(Call(args=sides) as test, BoolOp(logic=Logic.AND, args=(IsNull() as a, IsNull() as b)))):
            missing = (a.arg, b.arg) == sides and not a.negated and not b.negated
            return sides if missing and _is_equality(test) else None
        case _:
            return None


def _is_equality(test: Call) -> bool:
    return len(test.args) == 2 and infix(test.signature.partition("(")[0]) == "="


def _is_nullif(test: Call, default: Expr) -> bool:
    """Return whether `CASE WHEN test THEN NULL ELSE default END` is NULLIF."""
    return _is_equality(test) and test.args[0] == default


def leaves(column: ShownColumn) -> Iterator[Named]:
    """Yield the named columns that a column is, or is computed from."""
    if isinstance(column, Named):
        yield column
    else:
        for ordinal in dict.fromkeys(
            ordinal for part in _expressions_in(column.value) for ordinal in columns_read(part)
        ):
            yield from leaves(column.over[ordinal])


def _expressions_in(value: ShownValue) -> Iterator[Expr]:
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


def _name_leaves(leaves: Iterable[Named], *, qualified: bool) -> dict[Named, str]:
    """Name each column; qualify names that occur twice by their FROM item, and number them if that is not enough."""
    found, by_name = dict[Named, str](), dict[str, list[Named]]()
    for leaf in leaves:
        by_name.setdefault(leaf.name, []).append(leaf)
    for name, same in by_name.items():
        used: set[str] = set()
        for leaf in same:
            plain = not leaf.member or (len(same) == 1 and not qualified)
            text = base = quote_name(name) if plain else f"{quote_name(leaf.member)}.{quote_name(name)}"
            while text in used:
                text = f"{base}_{len(used)}"
            used.add(text)
            found[leaf] = text
    return found


def quote_name(name: str) -> str:
    """Return a name, in quotes where SQL needs them."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) and name == name.lower() else '"' + name.replace('"', '""') + '"'


def _write_call(
    call: Call, write_bound: Callable[[Expr], tuple[str, int]], wrap: Callable[[Expr, int], str]
) -> tuple[str, int]:
    def write(part: Expr) -> str:
        return write_bound(part)[0]

    function = call.signature.partition("(")[0]
    if (path := _path_argument(function, call.args)) is not None:
        # After the path come the wrapper and the default for an empty result.
        more = [write(arg) for arg in call.args[2:]]
        passed = [arg for arg in more[:1] if arg != "'{}'"] if function.startswith("json_") else more
        shown = [write(call.args[0]), _write_literal(path), *passed]
        symbol = infix(function)
        return (
            (f"{wrap(call.args[0], _OTHER)} {symbol} {shown[1]}", _OTHER)
            if symbol
            else _write_function(function, shown)
        )
    symbol = infix(function) if len(call.args) == 2 or function.startswith("enum_") else None
    if symbol is not None:
        binding = _BINDING.get(symbol, _OTHER)
        return f"{wrap(call.args[0], binding)} {symbol} {wrap(call.args[1], binding + 1)}", binding
    if len(call.args) == 1 and (sign := prefix(function)) is not None:
        return f"{sign}{wrap(call.args[0], _SIGN)}", _SIGN
    if function in _NUMBERS and isinstance(call.args[0], Const):
        return write_bound(call.args[0])
    if _CASTS.fullmatch(function):
        return f"{wrap(call.args[0], _CAST)}::{call.type.pg.display}", _CAST
    if test := _ARRAY_TEST.match(call.signature):
        subject, array = call.args
        return f"{wrap(subject, _OTHER)} {_TESTS[test[1]]} {test[2].upper()} ({write(array)})", _COMPARISON
    match function, call.args:
        case (("key_of" | "place_of"), (value, *_)):
            # An internal key that replaces the value in comparisons; show the value itself.
            return write_bound(value)
        case "is_json", (value, Const(value=kind), Const(value=unique)):
            what = "" if kind == "any" else f" {str(kind).upper()}"
            return f"{wrap(value, _OTHER)} IS JSON{what}{' WITH UNIQUE KEYS' if unique else ''}", _IS
        case "timezone", (zone, value):
            return f"{wrap(value, _CAST)} AT TIME ZONE {wrap(zone, _CAST)}", _SIGN
        case "extract", (Const(value=str() as part), value):
            return f"extract({part} FROM {write(value)})", _ATOM
        case "subscript", (array, index):
            return f"{wrap(array, _ATOM)}[{write(index)}]", _ATOM
        case "slice", (array, first, last):
            return f"{wrap(array, _ATOM)}[{write(first)}:{write(last)}]", _ATOM
        case "row_of", (_, *values):
            # The first argument holds the field names.
            return f"row({', '.join(map(write, values))})", _ATOM
        case "array_of", elements:
            return f"ARRAY[{', '.join(map(write, elements))}]", _ATOM
        case _:
            return _write_function(function, [write(arg) for arg in call.args])


def _write_function(name: str, args: Sequence[str]) -> tuple[str, int]:
    if name.endswith("_given"):
        return f"{name.removesuffix('_given')}({', '.join(args)} ABSENT ON NULL)", _ATOM
    return f"{_DISPLAY_NAMES.get(name, name)}({', '.join(args)})", _ATOM


def _path_argument(function: str, args: Sequence[Expr]) -> str | None:
    """Return the text of the second argument if it is a jsonpath."""
    if not _WITH_PATH.fullmatch(function) or len(args) < 2:
        return None
    stored = args[1].value if isinstance(args[1], Const) else None
    return json_path_text(stored) if isinstance(stored, str) else None


def constant(const: Const) -> str:
    """Write a literal, cut if it is long."""
    match const.value:
        case None:
            return "NULL"
        case bool() as truth:
            return "true" if truth else "false"
        case str() | datetime.date() | bytes() as value:
            return _write_literal(value.hex() if isinstance(value, bytes) else str(value))
        case value:
            return str(value)


def _write_literal(text: str) -> str:
    short = text if len(text) <= MAX_LITERAL_LENGTH else f"{text[: MAX_LITERAL_LENGTH - 1]}…"
    return "'" + short.replace("'", "''").replace("\n", "\\n") + "'"


def _write_interval(step: Expr) -> str:
    """Write an interval that is stored as microseconds."""
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


def _is_default_frame(frame: Frame, order: Sequence[SortKey]) -> bool:
    """Return whether this is the default frame of an OVER clause."""
    if not order:
        return frame.whole
    up_to_peers = frame.mode is FrameMode.RANGE and frame.end.kind is BoundKind.CURRENT
    return up_to_peers and frame.start.kind is BoundKind.FIRST and frame.exclude is Exclude.NOTHING


def _write_frame(frame: Frame, order: Sequence[SortKey]) -> str:
    by_time = frame.mode is FrameMode.RANGE and bool(order) and order[0].expr.type.pg.name in _TIMES

    def bound(end: Bound) -> str:
        if end.offset is None:
            return end.kind.value
        return f"{_write_interval(end.offset) if by_time else constant(end.offset)} {end.kind.value}"

    rest = f" EXCLUDE {_EXCLUDE_TEXTS[frame.exclude]}" if frame.exclude in _EXCLUDE_TEXTS else ""
    return f"{frame.mode.value} BETWEEN {bound(frame.start)} AND {bound(frame.end)}{rest}"


_EXCLUDE_TEXTS = {Exclude.CURRENT: "CURRENT ROW", Exclude.GROUP: "GROUP", Exclude.TIES: "TIES"}
_TIMES = frozenset({"date", "time", "timestamp", "timestamptz"})
