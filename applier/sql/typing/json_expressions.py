"""SQL's own words for JSON -> plan expressions: JSON_VALUE and its like, JSON_ARRAY and JSON_OBJECT, IS JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import UnsuitableArguments
from applier.functions.json.jsonpath import may_fail
from applier.functions.json.sql_json import IS_JSON, RAISE, json_constructor_sql, json_query_sql
from applier.plan.expr import BOOL, JSONB, TEXT, Call, Const, Expr, ValueType, nullable
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.casts import OTHER_TYPE
from applier.sql.typing.json_paths import json_path
from applier.sql.typing.unify import unify

Compile = Callable[[tree.Expression], Expr]
_PASSED = frozenset({"bool", "int2", "int4", "int8", "numeric", "text", "varchar", "jsonb"})


def compile_json_path_query(asked: tree.JsonExpr, compile_: Compile, catalog: SystemCatalog) -> Expr:
    """What JSON_EXISTS, JSON_QUERY or JSON_VALUE finds, or what takes its place."""
    pg = catalog.pg_type(asked.type, asked.typmod)
    type_ = ValueType(pg, pg.spark_ddl)
    json = compile_(asked.json)
    try:
        if json.type.pg.name != "jsonb":
            raise UnsuitableArguments(f"values of type {json.type.pg.display}", hint="cast to jsonb")
        places = [_in_place(e, compile_, type_) for e in (asked.on_empty, asked.on_error)]
        if asked.op in (tree.JsonExprOp.EXISTS, tree.JsonExprOp.ROWS):
            places = places[1:]
        if nullable(json) and not asked.of_row:
            _check_null(asked, places)
        signature = json_query_sql(asked.op.name.lower(), raises=any(place == RAISE for place in places))
        wrapped = tree.JsonWrapper.NEVER if asked.wrapper is tree.JsonWrapper.UNSPECIFIED else asked.wrapper
        how = f"{wrapped.name} {'OMIT' if asked.omits_quotes else 'KEEP'}"
        args = (json, json_path(asked.path), _variables(asked, compile_), Const(how, TEXT), *places)
        result = Call(signature, args, type_)
        ENTRIES[signature].physical_type((*args, result))
    except UnsuitableArguments as error:
        construct = f"JSON_{asked.op.name} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=asked.at) from error
    return result


def _check_null(asked: tree.JsonExpr, places: Sequence[Expr]) -> None:
    """Unfit where PostgreSQL (18.4) says of a document that is NULL what it said of the one before it."""
    of_error = asked.op is tree.JsonExprOp.EXISTS
    given = [place for place in places if place != RAISE and not (isinstance(place, Const) and place.value is None)]
    if given and (not of_error or may_fail(json_path(asked.path))):
        hint = "declare the column NOT NULL, or write coalesce(document, 'null')"
        raise UnsuitableArguments(
            "a document that may be NULL, with something else than NULL in the place of what is missing", hint=hint
        )


def _in_place(given: tree.Expression | None, compile_: Compile, type_: ValueType) -> Expr:
    if given is None:
        return RAISE
    if isinstance(given, tree.Constant) and given.datum is None:
        return Const(None, type_)
    met, _ = unify((compile_(given), Const(None, type_)))
    if met.type.spark != type_.spark:
        raise UnsuitableArguments(
            f"a default held as {met.type.spark}", hint="cast the default to the type that is returned"
        )
    return met


def _variables(asked: tree.JsonExpr, compile_: Compile) -> Expr:
    if not asked.names:
        return Const("{}", JSONB)
    passed = [compile_(arg) for arg in asked.passing]
    for arg in passed:
        if arg.type.pg.name not in _PASSED:
            raise UnsuitableArguments(
                f"PASSING a value of type {arg.type.pg.display}", hint="cast it to text, numeric or jsonb"
            )
    args = tuple(e for name, arg in zip(asked.names, passed, strict=True) for e in (Const(name, TEXT), arg))
    ENTRIES["jsonb_build_object(any)"].physical_type(args)
    return Call("jsonb_build_object(any)", args, JSONB)


def compile_json_constructor(made: tree.JsonConstructorExpr, compile_: Compile, catalog: SystemCatalog) -> Expr:
    """JSON_ARRAY or JSON_OBJECT."""
    pg = catalog.pg_type(made.type, -1)
    name = "object" if made.is_object else "array"
    args = tuple(compile_(arg) for arg in made.args)
    signature = json_constructor_sql(pg.name, name, skips_null=made.skips_null)
    if made.is_object and made.skips_null and any(nullable(key) for key in args[::2]):
        # A key that is NULL is an error, also where its value is left out.
        hint = "write the key itself, or coalesce it"
        raise Refused(Reason.TYPE, "JSON_OBJECT with keys that may be NULL", hint=hint, token=made.at)
    return _called(signature, args, ValueType(pg, "string"), f"JSON_{name.upper()}", made.at)


def compile_is_json(asked: tree.JsonIsPredicate, compile_: Compile) -> Expr:
    """IS JSON."""
    args = (compile_(asked.arg), Const(asked.shape.name.lower(), TEXT), Const(asked.unique, BOOL))
    return _called(IS_JSON, args, BOOL, "IS JSON", asked.at)


def _called(signature: str, args: Sequence[Expr], type_: ValueType, written: str, at: int | None) -> Expr:
    entry = ENTRIES.get(signature)
    try:
        if entry is None:
            raise UnsuitableArguments(f"a result of type {type_.pg.display}", hint="return json or jsonb")
        entry.physical_type(tuple(args))
    except UnsuitableArguments as error:
        construct = f"{written} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=at) from error
    return Call(signature, tuple(args), type_)
