"""Entries for discrete ranges (int4, int8, date), which are stored as PostgreSQL's canonical text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList
from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments
from applier.functions.output_text import input_physical_type, output_text_sql, parse_output
from applier.plan.expr import AggregateCall, Call, Expr

_ELEMENTS = {"int4range": "int4", "int8range": "int8", "daterange": "date"}
_FUZZED = {"int4range": "int4", "daterange": "date:middle"}
_BOUNDS = ("'[)'", "'[]'", "'()'", "'(]'")


def _element(arg: Expr) -> str:
    name = arg.type.pg.name
    if name not in _ELEMENTS:
        raise UnsuitableArguments(f"values of type {arg.type.pg.display}", hint="use ranges of integers or dates")
    return _ELEMENTS[name]


def _range_physical_type(args: tuple[Expr, ...]) -> str:
    for arg in args[:2]:
        output_text_sql(arg, "")
    return "string"


def _write_range(element: str, call: Call, args: Sequence[str]) -> str:
    low, high = (output_text_sql(arg, sql) for arg, sql in zip(call.args[:2], args[:2], strict=True))
    return f"pg_nullaware_range('{element}', {low}, {high}, {args[2] if len(args) > 2 else _BOUNDS[0]})"


def _constructors() -> Iterator[Entry]:
    for name, element in _ELEMENTS.items():
        kinds = ("date:middle", "date:middle") if element == "date" else (element, "int2:small")
        plain: tuple[tuple[FuzzArg, ...], ...] = tuple((kind, kind) for kind in dict.fromkeys(kinds))
        bounded: tuple[tuple[FuzzArg, ...], ...] = tuple((kinds[1], kinds[1], Fixed(b)) for b in _BOUNDS)
        for more, calls in (("", plain), (",text", bounded)):
            yield Entry(
                f"{name}({element},{element}{more})", _range_physical_type, partial(_write_range, element), calls,
                raises=True, strict=False,
            )  # fmt: skip


def _bound_physical_type(args: tuple[Expr, ...]) -> str:
    return input_physical_type(_element(args[0]))


def _write_bound(function: str, call: Call, args: Sequence[str]) -> str:
    element = _element(call.args[0])
    return parse_output(element, f"pg_ranges_{function}('{element}', {args[0]})")


def _check_same_type(args: tuple[Expr, ...]) -> str:
    if _element(args[0]) != _element(args[1]):
        raise UnsuitableArguments("ranges of different types")
    return "boolean"


def _write_overlap(call: Call, args: Sequence[str]) -> str:
    return f"pg_ranges_overlaps('{_element(call.args[0])}', {args[0]}, {args[1]})"


def _check_element_type(range_: int, args: tuple[Expr, ...]) -> str:
    if args[1 - range_].type.pg.name != _element(args[range_]):
        raise UnsuitableArguments(f"a value of type {args[1 - range_].type.pg.display}")
    return "boolean"


def _write_contains(range_: int, call: Call, args: Sequence[str]) -> str:
    value = output_text_sql(call.args[1 - range_], args[1 - range_])
    return f"pg_ranges_contains('{_element(call.args[range_])}', {args[range_]}, {value})"


def _functions() -> Iterator[Entry]:
    for function in ("lower", "upper"):
        yield Entry(
            f"{function}(anyrange)",
            _bound_physical_type,
            partial(_write_bound, function),
            tuple((name,) for name in _FUZZED),
        )
    yield Entry(
        "range_overlaps(anyrange,anyrange)", _check_same_type, _write_overlap, tuple((name, name) for name in _FUZZED)
    )
    pairs = tuple(_FUZZED.items())
    yield Entry(
        "range_contains_elem(anyrange,anyelement)", partial(_check_element_type, 0), partial(_write_contains, 0), pairs
    )
    yield Entry(
        "elem_contained_by_range(anyelement,anyrange)", partial(_check_element_type, 1), partial(_write_contains, 1),
        tuple((element, name) for name, element in pairs),
    )  # fmt: skip


def _write_aggregate(function: str, call: AggregateCall) -> str:
    return f"pg_ranges_{function}('{_element(call.args[0])}', transform({{list}}, x -> x.a0))"


def _check_range(args: tuple[Expr, ...]) -> str:
    _element(args[0])
    return "string"


def range_aggregates() -> Iterator[AggregateEntry]:
    """Yield the aggregates over all ranges of a group, in any order."""
    for name, function in (("range_agg", "union"), ("range_intersect_agg", "intersection")):
        yield AggregateEntry(
            signature=f"{name}(anyrange)",
            physical_type=_check_range,
            form=OfList(partial(_write_aggregate, function), default_order=True),
            fuzz=tuple((range_,) for range_ in _FUZZED),
        )


ENTRIES: tuple[Entry, ...] = (*_constructors(), *_functions())
