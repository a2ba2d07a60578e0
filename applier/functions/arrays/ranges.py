"""Ranges of whole values (int4, int8, date), held as PostgreSQL prints them, which is canonical."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList
from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments
from applier.functions.output_text import input_physical_type, output_text_sql, parse_output
from applier.plan.expr import AggregateCall, Call, Expr

_ELEMENTS = {"int4range": "int4", "int8range": "int8", "daterange": "date"}
_TRIED = {"int4range": "int4", "daterange": "date:middle"}
_BOUNDS = ("'[)'", "'[]'", "'()'", "'(]'")


def _element(arg: Expr) -> str:
    name = arg.type.pg.name
    if name not in _ELEMENTS:
        raise UnsuitableArguments(f"values of type {arg.type.pg.display}", hint="use ranges of integers or dates")
    return _ELEMENTS[name]


def _made_physical_type(args: tuple[Expr, ...]) -> str:
    for arg in args[:2]:
        output_text_sql(arg, "")
    return "string"


def _made(element: str, call: Call, args: Sequence[str]) -> str:
    low, high = (output_text_sql(arg, sql) for arg, sql in zip(call.args[:2], args[:2], strict=True))
    return f"pg_nullaware_range('{element}', {low}, {high}, {args[2] if len(args) > 2 else _BOUNDS[0]})"


def _constructors() -> Iterator[Entry]:
    for name, element in _ELEMENTS.items():
        kinds = ("date:middle", "date:middle") if element == "date" else (element, "int2:small")
        plain: tuple[tuple[FuzzArg, ...], ...] = tuple((kind, kind) for kind in dict.fromkeys(kinds))
        bounded: tuple[tuple[FuzzArg, ...], ...] = tuple((kinds[1], kinds[1], Fixed(b)) for b in _BOUNDS)
        for more, calls in (("", plain), (",text", bounded)):
            yield Entry(
                f"{name}({element},{element}{more})", _made_physical_type, partial(_made, element), calls,
                raises=True, strict=False,
            )  # fmt: skip


def _bound_physical_type(args: tuple[Expr, ...]) -> str:
    return input_physical_type(_element(args[0]))


def _bound(function: str, call: Call, args: Sequence[str]) -> str:
    element = _element(call.args[0])
    return parse_output(element, f"pg_ranges_{function}('{element}', {args[0]})")


def _same(args: tuple[Expr, ...]) -> str:
    if _element(args[0]) != _element(args[1]):
        raise UnsuitableArguments("ranges of different types")
    return "boolean"


def _overlap(call: Call, args: Sequence[str]) -> str:
    return f"pg_ranges_overlaps('{_element(call.args[0])}', {args[0]}, {args[1]})"


def _of_element(range_: int, args: tuple[Expr, ...]) -> str:
    if args[1 - range_].type.pg.name != _element(args[range_]):
        raise UnsuitableArguments(f"a value of type {args[1 - range_].type.pg.display}")
    return "boolean"


def _holds(range_: int, call: Call, args: Sequence[str]) -> str:
    value = output_text_sql(call.args[1 - range_], args[1 - range_])
    return f"pg_ranges_contains('{_element(call.args[range_])}', {args[range_]}, {value})"


def _questions() -> Iterator[Entry]:
    for function in ("lower", "upper"):
        yield Entry(
            f"{function}(anyrange)", _bound_physical_type, partial(_bound, function), tuple((name,) for name in _TRIED)
        )
    yield Entry("range_overlaps(anyrange,anyrange)", _same, _overlap, tuple((name, name) for name in _TRIED))
    pairs = tuple(_TRIED.items())
    yield Entry("range_contains_elem(anyrange,anyelement)", partial(_of_element, 0), partial(_holds, 0), pairs)
    yield Entry(
        "elem_contained_by_range(anyelement,anyrange)", partial(_of_element, 1), partial(_holds, 1),
        tuple((element, name) for name, element in pairs),
    )  # fmt: skip


def _all_of(function: str, call: AggregateCall) -> str:
    return f"pg_ranges_{function}('{_element(call.args[0])}', transform({{list}}, x -> x.a0))"


def _listed(args: tuple[Expr, ...]) -> str:
    _element(args[0])
    return "string"


def range_aggregates() -> Iterator[AggregateEntry]:
    """Of all ranges of a group, in any order."""
    for name, function in (("range_agg", "union"), ("range_intersect_agg", "intersection")):
        yield AggregateEntry(
            signature=f"{name}(anyrange)",
            physical_type=_listed,
            form=OfList(partial(_all_of, function), default_order=True),
            fuzz=tuple((range_,) for range_ in _TRIED),
        )


ENTRIES: tuple[Entry, ...] = (*_constructors(), *_questions())
