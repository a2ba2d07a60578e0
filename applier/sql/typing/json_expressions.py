"""SQL/JSON syntax -> plan expressions: JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_ARRAY, JSON_OBJECT and IS JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import UnsuitableArguments
from applier.functions.json.jsonpath import may_fail
from applier.functions.json.sql_json import IS_JSON, RAISE, json_constructor_sql, json_query_sql
from applier.plan.expr import BOOL, JSONB, TEXT, Call, Const, Expr, ValueType, nullable
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.casts import OTHER_TYPE
from applier.sql.typing.json_paths import compile_json_path
from applier.sql.typing.unify import unify

Compile = Callable[[tree.Expression], Expr]
_PASSING_TYPES = frozenset({"bool", "int2", "int4", "int8", "numeric", "text", "varchar", "jsonb"})


def compile_json_path_query(expression: tree.JsonExpr, compile_: Compile, catalog: CatalogSnapshot) -> Expr:
    """Compile JSON_EXISTS, JSON_QUERY or JSON_VALUE with its ON EMPTY and ON ERROR behaviour."""
    pg = catalog.pg_type(expression.type, expression.typmod)
    type_ = ValueType(pg, pg.spark_ddl)
    json = compile_(expression.json)
    try:
        if json.type.pg.name != "jsonb":
            raise UnsuitableArguments(f"values of type {json.type.pg.display}", hint="cast to jsonb")
        defaults = [_compile_default(e, compile_, type_) for e in (expression.on_empty, expression.on_error)]
        if expression.op in (tree.JsonExprOp.EXISTS, tree.JsonExprOp.ROWS):
            defaults = defaults[1:]
        if nullable(json) and not expression.of_row:
            _check_null_document(expression, defaults)
        signature = json_query_sql(expression.op.name.lower(), raises=any(default == RAISE for default in defaults))
        wrapper = tree.JsonWrapper.NEVER if expression.wrapper is tree.JsonWrapper.UNSPECIFIED else expression.wrapper
        options = f"{wrapper.name} {'OMIT' if expression.omits_quotes else 'KEEP'}"
        args = (
            json,
            compile_json_path(expression.path),
            _compile_passing(expression, compile_),
            Const(options, TEXT),
            *defaults,
        )
        result = Call(signature, args, type_)
        ENTRIES[signature].physical_type((*args, result))
    except UnsuitableArguments as error:
        construct = f"JSON_{expression.op.name} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=expression.at) from error
    return result


def _check_null_document(expression: tree.JsonExpr, defaults: Sequence[Expr]) -> None:
    """Raise UnsuitableArguments where PostgreSQL (18.4) gives a NULL document the result of the document before it."""
    of_error = expression.op is tree.JsonExprOp.EXISTS
    values = [
        default
        for default in defaults
        if default != RAISE and not (isinstance(default, Const) and default.value is None)
    ]
    if values and (not of_error or may_fail(compile_json_path(expression.path))):
        hint = "declare the column NOT NULL, or write coalesce(document, 'null')"
        raise UnsuitableArguments("a document that may be NULL, with a default other than NULL", hint=hint)


def _compile_default(behaviour: tree.Expression | None, compile_: Compile, type_: ValueType) -> Expr:
    if behaviour is None:
        return RAISE
    if isinstance(behaviour, tree.Constant) and behaviour.datum is None:
        return Const(None, type_)
    default, _ = unify((compile_(behaviour), Const(None, type_)))
    if default.type.spark != type_.spark:
        raise UnsuitableArguments(
            f"a default stored as {default.type.spark}", hint="cast the default to the returned type"
        )
    return default


def _compile_passing(expression: tree.JsonExpr, compile_: Compile) -> Expr:
    if not expression.names:
        return Const("{}", JSONB)
    arguments = [compile_(arg) for arg in expression.passing]
    for arg in arguments:
        if arg.type.pg.name not in _PASSING_TYPES:
            raise UnsuitableArguments(
                f"PASSING a value of type {arg.type.pg.display}", hint="cast it to text, numeric or jsonb"
            )
    args = tuple(e for name, arg in zip(expression.names, arguments, strict=True) for e in (Const(name, TEXT), arg))
    ENTRIES["jsonb_build_object(any)"].physical_type(args)
    return Call("jsonb_build_object(any)", args, JSONB)


def compile_json_constructor(
    constructor: tree.JsonConstructorExpr, compile_: Compile, catalog: CatalogSnapshot
) -> Expr:
    """Compile JSON_ARRAY or JSON_OBJECT."""
    pg = catalog.pg_type(constructor.type, -1)
    name = "object" if constructor.is_object else "array"
    args = tuple(compile_(arg) for arg in constructor.args)
    signature = json_constructor_sql(pg.name, name, skips_null=constructor.skips_null)
    if constructor.is_object and constructor.skips_null and any(nullable(key) for key in args[::2]):
        # A NULL key is an error, also where ABSENT ON NULL omits its value.
        hint = "write a literal key, or use coalesce"
        raise Refused(Reason.TYPE, "JSON_OBJECT with keys that may be NULL", hint=hint, token=constructor.at)
    return _build_call(signature, args, ValueType(pg, "string"), f"JSON_{name.upper()}", constructor.at)


def compile_is_json(expression: tree.JsonIsPredicate, compile_: Compile) -> Expr:
    """Compile IS JSON."""
    args = (compile_(expression.arg), Const(expression.shape.name.lower(), TEXT), Const(expression.unique, BOOL))
    return _build_call(IS_JSON, args, BOOL, "IS JSON", expression.at)


def _build_call(signature: str, args: Sequence[Expr], type_: ValueType, name: str, at: int | None) -> Expr:
    entry = ENTRIES.get(signature)
    try:
        if entry is None:
            raise UnsuitableArguments(f"a result of type {type_.pg.display}", hint="return json or jsonb")
        entry.physical_type(tuple(args))
    except UnsuitableArguments as error:
        construct = f"{name} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=at) from error
    return Call(signature, tuple(args), type_)
