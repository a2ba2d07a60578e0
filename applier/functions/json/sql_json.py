"""Entries for JSON syntax of SQL that is not a function: JSON_VALUE and the like, JSON_ARRAY, JSON_OBJECT, IS JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments, literal_text
from applier.functions.json import json_text, jsonb
from applier.functions.json.json_members import FIELD_TYPES
from applier.functions.json.to_json import as_json, as_jsonb, as_key, check_pairs
from applier.functions.literals import quote_text
from applier.functions.output_text import parse_output
from applier.plan.expr import Call, Const, Expr, ValueType
from shared_schema.pg_types import PgType

IS_JSON = "is_json(any,text,bool)"
RAISE = Const("raise", ValueType(PgType(0, -1, "raise", "raise"), "void"))
"""Instead of a value: raise an error."""
_VALUES = FIELD_TYPES - {"jsonb"} | {"varchar"}
_NOT_FOUND = "PostgreSQL would report: no SQL/JSON item found, or not one of that kind"


def json_query_sql(word: str, *, raises: bool) -> str:
    """Return the allow-list name of JSON_VALUE, JSON_QUERY, JSON_EXISTS or the rows of JSON_TABLE."""
    return f"json_{word}{'_or_error' if raises else ''}(any)"


def json_constructor_sql(type_: str, what: str, *, skips_null: bool) -> str:
    """Return the allow-list name of JSON_ARRAY or JSON_OBJECT."""
    return f"{type_}_{what}{'_given' if skips_null else ''}(any)"


def _query_physical_type(word: str, args: tuple[Expr, ...]) -> str:
    """Return the physical type of the result. The last argument is the call itself, which has the result type."""
    pg = args[-1].type.pg
    how = literal_text(args[3])
    known = {"exists": {"bool"}, "query": {"jsonb", "json", "text"}, "value": _VALUES, "rows": {"jsonb"}}[word]
    sized = pg.typmod >= 0 and not (pg.name == "numeric" and args[-1].type.spark.startswith("decimal("))
    if pg.name not in known or sized or (pg.name == "jsonb" and how.endswith("OMIT")):
        raise UnsuitableArguments(f"a result of type {pg.display}", hint="return text or jsonb, and cast it")
    return args[-1].type.spark


def _write_error(spark: str) -> str:
    return f"CAST(raise_error({quote_text(_NOT_FOUND)}) AS {spark})"


def _write_query(word: str, call: Call, args: Sequence[str]) -> str:
    json, path, variables, how, *places = args
    spark, pg = call.type.spark, call.type.pg
    defaults = [_write_error(spark) if arg == RAISE else sql for arg, sql in zip(call.args[4:], places, strict=True)]
    if word == "exists":
        found = f"pg_jsonpath_exists({json}, {path}, {variables}, true)"
        return f"if({json} IS NULL, CAST(NULL AS boolean), coalesce({found}, {defaults[0]}))"
    if word == "rows":
        strict = "true" if RAISE in call.args else "false"
        return f"pg_jsonpath_rows({json}, {path}, {variables}, {strict})"
    kind = ":".join(map(str, (pg.name, *(pg.precision_scale or ()))))
    found = f"pg_jsonpath_{word}({json}, {path}, {variables}, {quote_text(kind) if word == 'value' else how})"
    value = f"substr({found}, 2)"
    shown = f"CAST({value} AS {spark})" if spark.startswith("decimal(") else parse_output(pg.name, value)
    on_empty, on_error = defaults
    return (
        f"CASE left({found}, 1) WHEN 'v' THEN {shown} WHEN 'e' THEN {on_empty} WHEN 'x' THEN {on_error} "
        f"ELSE CAST(NULL AS {spark}) END"
    )


_FUZZ_CLAUSES = {
    "exists": ("", "TRUE ON ERROR", "UNKNOWN ON ERROR"),
    "query": (
        "", "WITH WRAPPER", "WITH CONDITIONAL WRAPPER", "RETURNING text", "RETURNING text OMIT QUOTES",
        "EMPTY ARRAY ON EMPTY DEFAULT '[1]' ON ERROR",
    ),
    "value": (
        "", "RETURNING int", "RETURNING smallint DEFAULT 7 ON EMPTY DEFAULT 8 ON ERROR", "RETURNING bigint",
        "RETURNING numeric", "RETURNING numeric(3,1)", "RETURNING bool DEFAULT true ON ERROR",
        "RETURNING float8", "RETURNING date DEFAULT '2020-01-01' ON ERROR", "RETURNING timestamptz", "RETURNING uuid",
        """PASSING 1 AS x, 'a' AS y DEFAULT 'none' ON EMPTY""",
    ),
}  # fmt: skip
_PATHS = ("$", "$.a", "strict $.a", "$[*]", "$.* ? (@ > 0)", "strict $.a.b", "$.a / 0")


def _fuzz_type(clause: str) -> str:
    return "jsonb:moments" if "date" in clause or "timestamp" in clause else "jsonb:values"


def _has_default(word: str, clause: str) -> bool:
    """Return whether a missing value may be replaced by something other than NULL."""
    return "DEFAULT" in clause or "EMPTY ARRAY" in clause or (word == "exists" and clause in ("", "TRUE ON ERROR"))


def _queries() -> Iterator[Entry]:
    for word in ("exists", "query", "value", "rows"):
        for raises in (False, True):
            clauses = ("ERROR ON ERROR",) if raises and word in _FUZZ_CLAUSES else _FUZZ_CLAUSES.get(word, ())
            calls: list[tuple[FuzzArg, ...]] = [
                (
                    _fuzz_type(clause),
                    Fixed(f"'{path}'"),
                    Fixed(clause),
                    Fixed("'null'" if _has_default(word, clause) else "NULL"),
                )
                for number, clause in enumerate(clauses)
                for path in (_PATHS[:4] if number else _PATHS)
            ]
            if word == "value" and not raises:
                calls.append(("jsonb", Fixed("'$[*] ? (@ == $x || @ == $y)'"), Fixed(clauses[-1]), Fixed("'[]'")))
            yield Entry(
                json_query_sql(word, raises=raises), partial(_query_physical_type, word), partial(_write_query, word),
                tuple(calls), raises=raises, strict=False, variadic=True, internal=word == "rows", since=17,
                runs_in=f"pg_jsonpath_{word}",
                spelling=f"JSON_{word.upper()}(coalesce({{0}}, {{3}}), {{1}} {{2}})",
            )  # fmt: skip


def _constructor_physical_type(object_: bool, args: tuple[Expr, ...]) -> str:
    if object_:
        check_pairs(args)
    for arg in args:
        as_json(arg, "")
    return "string"


def _write_array(type_: str, call: Call, args: Sequence[str]) -> str:
    write = as_jsonb if type_ == "jsonb" else as_json
    values = ", ".join(write(arg, sql) for arg, sql in zip(call.args, args, strict=True))
    listed = f"CAST(array({values}) AS array<string>)"
    non_null = f"filter({listed}, x -> x IS NOT NULL)"
    return f"pg_json_array({non_null})" if type_ == "jsonb" else f"pg_jsontext_array({non_null}, ', ')"


def _write_object(type_: str, call: Call, args: Sequence[str]) -> str:
    write = as_jsonb if type_ == "jsonb" else as_json
    both = list(zip(call.args, args, strict=True))
    pairs = [
        f"named_struct('k', {as_key(*key)}, 'v', {write(*value)})"
        for key, value in zip(both[::2], both[1::2], strict=True)
    ]
    non_null = f"filter(CAST(array({', '.join(pairs)}) AS array<struct<k:string,v:string>>), x -> x.v IS NOT NULL)"
    if type_ == "jsonb":
        return f"pg_json_object(flatten(transform({non_null}, x -> array(x.k, x.v))))"
    return f"pg_jsontext_object(transform({non_null}, x -> x.k), transform({non_null}, x -> x.v), '')"


def _constructors() -> Iterator[Entry]:
    fuzz_calls: dict[str, tuple[tuple[FuzzArg, ...], ...]] = {
        "array": (("int4", "text", "bool"), ("jsonb", "numeric"), ("int4[]", "timestamptz")),
        "object": (
            (Fixed("'k'"), "int4", Fixed("'b'"), "text"),
            (Fixed("1"), "jsonb", Fixed("'a'"), "numeric", Fixed("'a'"), "bool"),
        ),
    }
    plain = {("jsonb", "array"): jsonb.jsonb_array, ("jsonb", "object"): jsonb.jsonb_object}
    plain |= {("json", "array"): json_text.json_array, ("json", "object"): json_text.json_object}
    for what, write in (("array", _write_array), ("object", _write_object)):
        for type_ in ("json", "jsonb"):
            for skips_null in (False, True):
                pairs = "{0}: {1}, {2}: {3}" if what == "object" else "{all}"
                clause = "ABSENT ON NULL" if skips_null else "NULL ON NULL"
                calls = fuzz_calls[what] if what == "array" else fuzz_calls[what][:1]
                yield Entry(
                    json_constructor_sql(type_, what, skips_null=skips_null),
                    partial(_constructor_physical_type, what == "object"),
                    partial(write, type_) if skips_null else plain[type_, what],
                    calls,
                    strict=False, variadic=True, session=True, since=16,
                    spelling=f"JSON_{what.upper()}({pairs} {clause} RETURNING {type_})",
                )  # fmt: skip


def _is_json_physical_type(args: tuple[Expr, ...]) -> str:
    if args[0].type.pg.name not in ("text", "varchar", "json", "jsonb", "unknown"):
        raise UnsuitableArguments(f"values of type {args[0].type.pg.display}", hint="cast it to text")
    return "boolean"


def _write_is_json(call: Call, args: Sequence[str]) -> str:
    # A jsonb has no duplicate keys.
    unique = "false" if call.args[0].type.pg.name == "jsonb" else args[2]
    return f"pg_jsontext_is_json({args[0]}, {args[1]}, {unique})"


ENTRIES: tuple[Entry, ...] = (
    *_queries(),
    *_constructors(),
    Entry(
        IS_JSON,
        _is_json_physical_type,
        _write_is_json,
        tuple(
            (type_, Fixed(f"{shape}{unique}"))
            for type_ in ("text:json", "text:syntax", "json", "jsonb")
            for shape in ("", "OBJECT", "ARRAY", "SCALAR")
            for unique in ("", " WITH UNIQUE KEYS")
        ),
        variadic=True,
        since=16,
        runs_in="pg_jsontext_is_json",
        spelling="({0} IS JSON {1})",
    ),
)
