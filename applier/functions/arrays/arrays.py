"""Entries for one-dimensional arrays, which are stored as PostgreSQL's text and computed by the Java functions.

Elements are compared by their type: numbers as numbers, texts by their bytes. Arrays of arrays, and arrays that do
not begin at 1, raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from applier.functions.entry import (
    CollationNeed,
    Entry,
    Fixed,
    FuzzArg,
    UnsuitableArguments,
    fixed_physical_type,
    io_cast,
    template,
)
from applier.functions.literals import quote_text
from applier.functions.output_text import input_physical_type, output_text_sql, parse_output
from applier.plan.expr import Call, Const, Expr

COMPARED = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_ELEMENTS = frozenset(
    {"int2", "int4", "int8", "numeric", "float4", "float8", "bool", "text", "varchar", "uuid", "date", "timestamp",
     "timestamptz", "time"}
)  # fmt: skip
"""Element types that the Java functions can compare."""
_OWN = {"text": "text", "varchar": "text", "uuid": "uuid_", "date": "date_", "timestamp": "timestamp_",
        "timestamptz": "timestamptz_", "time": "time_", "numeric": "numeric_"}  # fmt: skip
_INTS: tuple[FuzzArg, ...] = ("int4[]",)
_FUZZ = ("int4[]", "text[]", "numeric[]")
Fuzz = tuple[tuple[FuzzArg, ...], ...]


def is_own_comparison(signature: str, array: str) -> bool:
    """Return whether a function compares two values of the array's element type."""
    element = array.removeprefix("_")
    name = "text" if element == "varchar" else element
    function, _, arguments = signature.partition("(")
    return arguments == f"{name},{name})" and function.startswith(_OWN.get(element, element))


def element_type(array: Expr) -> str:
    """Return the name of the element type; raise UnsuitableArguments if the value is not an array."""
    name = array.type.pg.name
    if not name.startswith("_") or array.type.spark != "string":
        raise UnsuitableArguments(f"values of type {array.type.pg.display}")
    return name[1:]


def comparison_name(array: Expr) -> str:
    """Return Java's name for the comparison of the elements; raise UnsuitableArguments if Java cannot compare them."""
    name = element_type(array)
    if name not in _ELEMENTS:
        raise UnsuitableArguments(f"values of type {array.type.pg.display}")
    return "text" if name == "varchar" else name


def _physical_type(
    result: str, arrays: Sequence[int], elements: Sequence[int] = (), compares: bool = False
) -> Callable[..., str]:
    def check(args: tuple[Expr, ...]) -> str:
        for place in arrays:
            if isinstance(args[place], Const) and args[place].type.spark == "string":
                continue
            (comparison_name if compares else element_type)(args[place])
        for place in elements:
            output_text_sql(args[place], "")
        return result

    return check


def _compare(form: str, array: int, elements: Sequence[int] = ()) -> Callable[[Call, Sequence[str]], str]:
    """Return a `sql` function that calls Java with the element type's name as first argument."""

    def write(call: Call, args: Sequence[str]) -> str:
        texts = [output_text_sql(call.args[i], a) if i in elements else a for i, a in enumerate(args)]
        return form.format(quote_text(comparison_name(call.args[array])), *texts)

    return write


def _comparisons() -> Iterator[Entry]:
    pairs: Fuzz = tuple((t, t) for t in (*_FUZZ, "float8[]", "bool[]", "date[]"))
    for suffix, sign in (("eq", "="), ("ne", "<>"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        yield Entry(
            f"array_{suffix}(anyarray,anyarray)",
            _physical_type("boolean", (0, 1), compares=True),
            _compare(f"(pg_arrays_cmp({{0}}, {{1}}, {{2}}) {sign} 0)", 0),
            pairs,
            collation=CollationNeed.EQUALITY if suffix in ("eq", "ne") else CollationNeed.ORDER,
            key_equal=suffix == "eq",
        )
    for signature, form in (
        ("arraycontains(anyarray,anyarray)", "pg_arrays_contains({0}, {1}, {2})"),
        ("arraycontained(anyarray,anyarray)", "pg_arrays_contains({0}, {2}, {1})"),
        ("arrayoverlap(anyarray,anyarray)", "pg_arrays_overlap({0}, {1}, {2})"),
    ):
        yield Entry(
            signature, _physical_type("boolean", (0, 1), compares=True), _compare(form, 0), pairs,
            collation=CollationNeed.EQUALITY,
        )  # fmt: skip
    fuzz: Fuzz = (("int4", "int4[]"), ("text", "text[]"), ("numeric", "numeric[]"), ("bool", "bool[]"))
    for operator, suffix in COMPARED.items():
        for quantifier in ("any", "all"):
            form = f"pg_nullaware_compare_all({{0}}, '{operator}', {{1}}, {{2}}, {str(quantifier == 'all').upper()})"
            yield Entry(
                f"{suffix}_{quantifier}(anyelement,anyarray)",
                _physical_type("boolean", (1,), (0,), compares=True),
                _compare(form, 1, (0,)),
                fuzz,
                strict=False,
                collation=CollationNeed.ORDER,
                spelling=f"({{0}} {operator} {quantifier.upper()} ({{1}}))",
            )


def _sizes() -> Iterator[Entry]:
    fuzz: Fuzz = tuple((t, Fixed(n)) for t in _FUZZ for n in ("1", "2", "0"))
    for function, java in (("array_length", "length"), ("array_upper", "length"), ("array_lower", "lower")):
        yield Entry(
            f"{function}(anyarray,int4)", _physical_type("int", (0,)), template(f"pg_arrays_{java}({{0}}, {{1}})"), fuzz
        )
    for function in ("cardinality",):
        yield Entry(
            f"{function}(anyarray)", _physical_type("int", (0,)), template("pg_arrays_cardinality({0})"),
            tuple((t,) for t in _FUZZ),
        )  # fmt: skip


def _element(args: tuple[Expr, ...]) -> str:
    if args[1].type.spark != "int":
        raise UnsuitableArguments(f"values held as {args[1].type.spark}")
    return input_physical_type(element_type(args[0]))


def _write_subscript(call: Call, args: Sequence[str]) -> str:
    return parse_output(element_type(call.args[0]), f"pg_arrays_get({args[0]}, {args[1]})")


def _parts() -> Iterator[Entry]:
    yield Entry(
        "subscript(anyarray,int4)", _element, _write_subscript,
        tuple((t, "int2:small") for t in (*_FUZZ, "float8[]", "bool[]", "date[]")),
        spelling="({0})[{1}]",
    )  # fmt: skip
    yield Entry(
        "slice(anyarray,int4,int4)",
        _physical_type("string", (0,)),
        template("pg_arrays_slice({0}, {1}, {2})"),
        (("int4[]", Fixed("2"), Fixed("3")), ("text[]", "int2:small", "int2:small")),
        spelling="({0})[{1}:{2}]",
    )


def _check_elements(args: tuple[Expr, ...]) -> str:
    for arg in args:
        if arg.type.pg.name.startswith("_"):
            raise UnsuitableArguments("an array of arrays")
        output_text_sql(arg, "")
    return "string"


def _write_array(call: Call, args: Sequence[str]) -> str:
    texts = ", ".join(output_text_sql(arg, sql) for arg, sql in zip(call.args, args, strict=True))
    return f"pg_arrays_make(CAST(array({texts}) AS array<string>))"


def _write_extension(function: str, call: Call, args: Sequence[str]) -> str:
    return f"pg_nullaware_{function}({', '.join(output_text_sql(a, s) for a, s in zip(call.args, args, strict=True))})"


def _building() -> Iterator[Entry]:
    yield Entry(
        "array_of(any)", _check_elements, _write_array,
        (("int4", "int4"), ("text", "text", "text"), ("numeric(10,2)", "numeric(10,2)"), ("bool",), ("timestamptz",),
         ("float8", "float8"), ("date",), ("numeric", "numeric")),
        strict=False, variadic=True, spelling="ARRAY[{all}]",
    )  # fmt: skip
    appended: Fuzz = (("int4[]", "int4"), ("text[]", "text"), ("numeric[]", "numeric"))
    for function, array, element in (("array_append", 0, 1), ("array_prepend", 1, 0)):
        arguments = ["anycompatiblearray", "anycompatible"]
        signature = f"{function}({','.join(arguments if array == 0 else arguments[::-1])})"
        yield Entry(
            signature,
            _physical_type("string", (array,), (element,)),
            partial(_write_extension, function),
            tuple(pair if array == 0 else pair[::-1] for pair in appended),
            strict=False,
        )
    yield Entry(
        "array_cat(anycompatiblearray,anycompatiblearray)", _physical_type("string", (0, 1)),
        template("pg_nullaware_array_cat({0}, {1})"), tuple((t, t) for t in _FUZZ), strict=False,
    )  # fmt: skip
    for function, result, elements in (("array_remove", "string", (1,)), ("array_position", "int", (1,))):
        yield Entry(
            f"{function}(anycompatiblearray,anycompatible)",
            _physical_type(result, (0,), elements, compares=True),
            _compare(f"pg_nullaware_{function}({{0}}, {{1}}, {{2}})", 0, elements),
            appended,
            strict=False,
            collation=CollationNeed.EQUALITY,
        )
    yield Entry(
        "array_replace(anycompatiblearray,anycompatible,anycompatible)",
        _physical_type("string", (0,), (1, 2), compares=True),
        _compare("pg_nullaware_array_replace({0}, {1}, {2}, {3})", 0, (1, 2)),
        tuple((a, e, e) for a, e in appended),
        strict=False,
        collation=CollationNeed.EQUALITY,
    )


def _texts() -> Iterator[Entry]:
    yield Entry(
        io_cast("anyarray", "text"), fixed_physical_type(["string"], "string"), template("{0}"),
        tuple((t,) for t in (*_FUZZ, "float8[]", "bool[]", "date[]")), spelling="({0})::text",
    )  # fmt: skip
    yield Entry(
        "array_to_string(anyarray,text)", _physical_type("string", (0,)), template("pg_arrays_to_string({0}, {1})"),
        tuple((t, "text") for t in _FUZZ), session=True,
    )  # fmt: skip
    yield Entry(
        "array_to_string(anyarray,text,text)", _physical_type("string", (0,)),
        template("pg_nullaware_array_to_string({0}, {1}, {2})"), tuple((t, "text", "text") for t in _FUZZ),
        session=True, strict=False,
    )  # fmt: skip
    split: Fuzz = (("text", "text"), ("text", Fixed("'a'")), ("text", Fixed("NULL")), ("text", Fixed("''")))
    yield Entry(
        "string_to_array(text,text)", fixed_physical_type(["string", "string"], "string"),
        template("pg_nullaware_string_to_array({0}, {1}, CAST(NULL AS string))"), split, strict=False,
        collation=CollationNeed.EQUALITY,
    )  # fmt: skip
    yield Entry(
        "string_to_array(text,text,text)", fixed_physical_type(["string", "string", "string"], "string"),
        template("pg_nullaware_string_to_array({0}, {1}, {2})"),
        (("text", Fixed("'a'"), Fixed("'b'")), ("text", "text", "text")),
        strict=False, collation=CollationNeed.EQUALITY,
    )  # fmt: skip


_SAME_TEXTS = {
    **{f"int{n}": ("text", "numeric", *(f"int{m}" for m in (4, 8) if m > n)) for n in (2, 4, 8)},
    "numeric": ("text",),
    "text": ("text",),
    "uuid": ("text",),
}
"""Casts of these element types do not change the text of any element."""


def _casts() -> Iterator[Entry]:
    for source, targets in _SAME_TEXTS.items():
        for target in targets:
            name = "varchar" if source == target else target
            yield Entry(
                io_cast(f"_{source}", f"_{target}"), fixed_physical_type(["string"], "string"), template("{0}"),
                ((f"{source}[]",),), spelling=f"({{0}})::{name}[]",
            )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_sizes(), *_parts(), *_building(), *_texts(), *_casts())
