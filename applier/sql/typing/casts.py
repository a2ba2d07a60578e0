"""Literals, and casts that are not functions -> plan expressions."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import UnsuitableArguments, io_cast
from applier.plan.expr import Call, Const, Expr, ValueType
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.constants import decimal_physical_type, decode_constant

SAME_TEXT = frozenset({"text", "varchar"})
OTHER_TYPE = "cast or store the values in one type"


def compile_literal(constant: tree.Constant, catalog: CatalogSnapshot) -> Const:
    """Compile a constant of the query to its physical type."""
    pg = catalog.pg_type(constant.type, constant.typmod)
    if constant.datum is None:
        unbounded = pg.name == "numeric" and pg.precision_scale is None
        return Const(None, ValueType(pg, "decimal(1,0)" if unbounded else pg.spark_ddl))
    if catalog.type(pg.oid).is_enum:
        labels = catalog.labels(pg.oid)
        return Const(labels[int.from_bytes(constant.datum[:4], "little")], ValueType.of_column(pg))
    value = decode_constant(pg.name, constant.datum, constant.at)
    if not isinstance(value, Decimal):
        return Const(value, ValueType.of_column(pg))
    physical_type = decimal_physical_type(value)
    return Const(value, ValueType(pg, physical_type)) if physical_type else Const(f"{value:f}", ValueType(pg, "string"))


def compile_relabel(arg: Expr, cast: tree.RelabelType, catalog: CatalogSnapshot) -> Expr:
    """Compile a cast that keeps the bytes and changes only the type."""
    pg = catalog.pg_type(cast.type, cast.typmod)
    same_base = arg.type.pg.name == pg.name
    if not same_base and not {arg.type.pg.name, pg.name} <= SAME_TEXT:
        construct = f"the cast from {arg.type.pg.display} to {pg.display}"
        raise Refused(Reason.TYPE, construct, hint="cast to another type", token=cast.at)
    return replace(arg, type=ValueType(pg, arg.type.spark))


def compile_text_cast(arg: Expr, cast: tree.CoerceViaIO, catalog: CatalogSnapshot) -> Expr:
    """Compile a cast through text: the target's input function reads the text of the value."""
    pg = catalog.pg_type(cast.type, -1)
    target = "text" if pg.name in SAME_TEXT else pg.name
    source = "anyarray" if arg.type.pg.name.startswith("_") else arg.type.pg.name
    type_info = catalog.type(arg.type.pg.oid)
    source = "anyenum" if type_info.is_enum else "record" if type_info.is_row else source
    entry = ENTRIES.get(io_cast(source, target))
    if entry is None or pg.oid != catalog.type(cast.type).base:
        construct = f"the cast from {arg.type.pg.display} to {pg.display}"
        raise Refused(Reason.FUNCTION, construct, hint="store the column in the type you need", token=cast.at)
    try:
        return Call(entry.signature, (arg,), ValueType(pg, entry.physical_type((arg,))))
    except UnsuitableArguments as error:
        construct = f"the cast from {arg.type.pg.display} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=cast.at) from error


def compile_array_cast(arg: Expr, cast: tree.ArrayCoerceExpr, catalog: CatalogSnapshot) -> Expr:
    """Compile a cast of all elements of an array; the allow-list has only casts that keep the text of each element."""
    pg = catalog.pg_type(cast.type, -1)
    source, target = ("_text" if name == "_varchar" else name for name in (arg.type.pg.name, pg.name))
    entry = ENTRIES.get(io_cast(source, target))
    if entry is None or cast.typmod >= 0:
        construct = f"the cast from {arg.type.pg.display} to {pg.display}"
        raise Refused(Reason.FUNCTION, construct, hint="store the column in the type you need", token=cast.at)
    return Call(entry.signature, (arg,), ValueType(pg, entry.physical_type((arg,))))
