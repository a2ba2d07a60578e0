"""Finds out where an entry of the allow-list runs, from the Spark SQL that it generates for arguments of its types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import product

from applier.functions.aggregates.aggregate_entry import Additive, AggregateEntry, Form, OfList, OfSet
from applier.functions.arrays.composites import ROW_OF
from applier.functions.comparison_keys import joined_labels
from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments
from applier.functions.literals import literal
from applier.plan.expr import AggregateCall, Call, Col, Const, Expr, SortKey, ValueType
from shared_schema.change_row import Value
from shared_schema.pg_types import VARHDRSZ, PgType

_JAVA = re.compile(r"\bpg_[a-z]+_\w+")
_SIZED = re.compile(r"(numeric|char|varchar)\((\d+)(?:,(\d+))?\)")
_NAMES = {"char": "bpchar", "fuzz_mood": "mood"}


def where(entry: Entry | AggregateEntry) -> tuple[str, ...]:
    """Return `Spark`, the names of the Java functions, or both if that depends on the physical types."""
    if isinstance(entry, Entry) and entry.runs_in:
        return (entry.runs_in,)
    found: dict[str, None] = {}
    for text in _generate_texts(entry):
        for name in _JAVA.findall(text) or ["Spark"]:
            found[name] = None
    return tuple(found)


def _generate_texts(entry: Entry | AggregateEntry) -> Iterator[str]:
    for fuzz in entry.fuzz or ((),):
        for args in product(*_candidates(entry, fuzz)):
            try:
                yield (
                    _write_aggregate(entry, args, fuzz)
                    if isinstance(entry, AggregateEntry)
                    else _write_call(entry, args)
                )
            except UnsuitableArguments:
                continue


def _write_call(entry: Entry, args: tuple[Expr, ...]) -> str:
    if entry.ordered_labels:
        args = (*args, joined_labels(("a", "b")))
    call = Call(entry.signature, args, ValueType(_pg("text"), entry.physical_type(args)))
    return entry.sql(call, [literal(a) if isinstance(a, Const) else f"c{i}" for i, a in enumerate(args)])


def _write_aggregate(entry: AggregateEntry, args: tuple[Expr, ...], fuzz: Sequence[FuzzArg]) -> str:
    first = len(fuzz) - 1 if entry.within_group else 0
    direct, given = args[:first], args[first:]
    if entry.ordered_labels:
        given = (*given, joined_labels(("a", "b")))
    physical_type = entry.physical_type((*direct, *given))
    order = tuple(SortKey(arg, False, False) for arg in given[: len(direct)])
    call = AggregateCall(entry.signature, given, ValueType(_pg("text"), physical_type), order=order, direct=direct)
    return _write_form(entry.form_of(given), call)


def _write_form(form: Form, call: AggregateCall) -> str:
    match form:
        case Additive():
            return " ".join([*(part.text for part in form.sums(call)), form.result(call)])
        case OfSet():
            return form.text
        case OfList():
            return form.result(call)


def _candidates(entry: Entry | AggregateEntry, fuzz: Sequence[FuzzArg]) -> Iterator[list[Expr]]:
    """Yield the expressions to try per argument: of the signature's type, or of the fuzz tests' type if it is `any`."""
    declared = entry.signature.partition("(")[2].removesuffix(")").split(",")
    for i, arg in enumerate(fuzz):
        own = declared[min(i, len(declared) - 1)]
        named = "any" not in own
        if isinstance(arg, Fixed):
            found: list[Expr] = [Const(_value(arg.sql, own), _type(own if named else "text"))]
            if own == "float8" and arg.sql.isdigit():
                found.append(_widen_to_float8(Const(int(arg.sql), _type("int4"))))
            yield found
            continue
        if own == "record":
            yield [Call(ROW_OF, (joined_labels(("f",)), Col(i, _type("text"))), _type("text"))]
            continue
        given = arg.partition(":")[0]
        if own == "float8" and given.startswith("int"):
            yield [_widen_to_float8(Col(i, _type(given)))]
            continue
        kinds = dict.fromkeys([given, own] if named and _name(given) == own else [own if named else given])
        yield [Col(i, _type(kind)) for kind in kinds]


def _widen_to_float8(arg: Expr) -> Expr:
    return Call(f"float8({arg.type.pg.name})", (arg,), _type("float8"))


def _value(sql: str, declared: str) -> Value:
    """Return the value of a literal of the fuzz tests, close enough to generate a call with it."""
    text = sql.partition("::")[0]
    if text == "NULL":
        return None
    if text.startswith("'"):
        return b"" if declared == "bytea" else text[1:-1]
    if declared.startswith("_"):
        return "{0.5}"
    if declared in ("int2", "int4", "int8"):
        return int(text)
    if declared == "bool":
        return text == "true"
    if re.fullmatch(r"-?[\d.]+", text):
        return float(text) if declared == "float8" else Decimal(text)
    return text


def _name(written: str) -> str:
    name = written.partition("(")[0]
    return f"_{name.removesuffix('[]')}" if name.endswith("[]") else _NAMES.get(name, name)


def _type(written: str) -> ValueType:
    return ValueType.of_column(_pg(written))


def _pg(written: str) -> PgType:
    typmod, sized = -1, _SIZED.fullmatch(written)
    if sized is not None:
        size = int(sized[2])
        typmod = (size << 16 | int(sized[3] or 0) if sized[1] == "numeric" else size) + VARHDRSZ
    return PgType(0, typmod, _name(written), written)
