"""Writes Spark SQL that turns a value into the text of PostgreSQL's output function, and back."""

from __future__ import annotations

from applier.functions.entry import UnsuitableArguments
from applier.functions.numeric.physical_types import as_text
from applier.plan.expr import Expr
from shared_schema.pg_types import VARHDRSZ

_MICROS = "unix_micros(CAST({} AS timestamp))"
_OUT = {
    "int2": "CAST({} AS string)",
    "int4": "CAST({} AS string)",
    "int8": "CAST({} AS string)",
    "bool": "if({0}, 't', if({0} IS NULL, NULL, 'f'))",
    "float8": "pg_floats_out8({})",
    "float4": "pg_floats_out4({})",
    "date": "pg_dates_out_date(unix_date({}))",
    "timestamp": f"pg_dates_out_timestamp({_MICROS})",
    "timestamptz": f"concat(pg_dates_out_timestamp({_MICROS}), '+00')",
    "bytea": "pg_casts_out_bytea({})",
}
_IN = {
    "int2": "CAST({} AS smallint)",
    "int4": "CAST({} AS int)",
    "int8": "CAST({} AS bigint)",
    "bool": "({} = 't')",
    "float8": "pg_floats_in8({})",
    "float4": "pg_floats_in4({})",
    "date": "date_from_unix_date(pg_dates_in_date({}))",
    "timestamp": "CAST(timestamp_micros(pg_dates_in_timestamp({})) AS timestamp_ntz)",
    "timestamptz": "timestamp_micros(pg_dates_in_timestamptz({}))",
    "bytea": "pg_casts_in_bytea({})",
}
_PHYSICAL_TYPES = {
    "int2": "smallint", "int4": "int", "int8": "bigint", "bool": "boolean", "float8": "double", "float4": "float",
    "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "bytea": "binary",
}  # fmt: skip


def output_text_sql(arg: Expr, sql: str) -> str:
    """Return Spark SQL for the text that the type's output function prints."""
    name = arg.type.pg.name
    if name == "numeric":
        return as_text(arg, sql)
    if name == "bpchar":
        length = arg.type.pg.typmod - VARHDRSZ
        if length < 1:
            raise UnsuitableArguments("a char(n) of unknown length", hint="cast it to text")
        return f"rpad({sql}, {length}, ' ')"
    if arg.type.spark == "string":
        return sql
    if name not in _OUT:
        raise UnsuitableArguments(f"values of type {arg.type.pg.display}")
    return _OUT[name].format(sql)


def as_cast(arg: Expr, sql: str) -> str:
    """Return Spark SQL for a cast to text, which differs from the output function for some types."""
    match arg.type.pg.name:
        case "bool":
            return f"CAST({sql} AS string)"
        case "bpchar":
            return sql
        case _:
            return output_text_sql(arg, sql)


def input_physical_type(name: str) -> str:
    """Return the physical type of a value that is parsed from text; PostgreSQL's text if there is no other."""
    return _PHYSICAL_TYPES.get(name, "string")


def parse_output(name: str, sql: str) -> str:
    """Return Spark SQL that parses an output text."""
    return _IN[name].format(sql) if name in _IN else sql
