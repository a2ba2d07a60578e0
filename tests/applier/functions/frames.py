"""Exchanges values between PostgreSQL, Spark and Python exactly: every column in its physical type, through Arrow."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import Column, DataFrame, SparkSession, functions

from applier.functions.emit import spark_sql
from applier.plan.expr import Expr, ValueType
from shared_schema.pg_types import PhysicalType

Row = tuple[Any, ...]

_ARROW = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "string": pa.string(),
}


def emit(expr: Expr) -> Column:
    """Return the expression as a Spark column over a frame with the columns c0..cn-1."""
    return functions.expr(spark_sql(expr))


def arrow_type(spark: str) -> Any:
    """Return the Arrow type of a physical type."""
    size = re.fullmatch(r"decimal\((\d+),(\d+)\)", spark)
    return pa.decimal128(int(size[1]), int(size[2])) if size else _ARROW[spark]


def frame(spark: SparkSession, rows: Sequence[Row], physical_types: Sequence[str]) -> DataFrame:
    """Return rows as a DataFrame c0..cn-1; without columns it still has its rows."""
    if not physical_types:
        return spark.range(len(rows)).select()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(physical_types)
    arrays = [pa.array(list(c), arrow_type(t)) for c, t in zip(columns, physical_types, strict=True)]
    table = pa.table(arrays, names=[f"c{i}" for i in range(len(physical_types))])
    # Without a schema Spark would read local times as instants.
    return spark.createDataFrame(table, ", ".join(f"c{i} {spark_type}" for i, spark_type in enumerate(physical_types)))


def fetch(
    connection: psycopg.Connection[Any], source: sql.Composable, columns: Sequence[tuple[str, ValueType]]
) -> list[Row]:
    """Return all rows of a FROM item, each column as its physical type: text if that is the type, char(n) trimmed."""
    if not columns:
        return [()] * len(connection.execute(sql.SQL("SELECT FROM {}").format(source)).fetchall())
    names = [sql.SQL(_read_as(type_)).format(sql.Identifier(name)) for name, type_ in columns]
    return connection.execute(sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(names), source)).fetchall()


def _read_as(type_: ValueType) -> LiteralString:
    if type_.pg.physical_type is PhysicalType.TEXT and type_.spark == "string":
        return "{}::text"
    # PostgreSQL prints a float4 with the shortest digits that identify it as float4; as a double they differ.
    return "{}::float8" if type_.spark == "float" else "{}"


def collect(result: DataFrame) -> list[Row]:
    """Return the rows of a DataFrame as Python values."""
    if not result.columns:
        return [()] * result.count()
    table = result.toArrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else []


def exact(value: Any) -> Any:
    """Return a value that equals another only if both have the same meaning and type, display scale included."""
    match value:
        case Decimal():
            return "decimal", str(value) if value else str(abs(value))
        case float():
            return "float", "0.0" if value == 0 else repr(value)
        case datetime.datetime() if value.tzinfo is not None:
            return "timestamptz", value.astimezone(datetime.UTC).isoformat()
        case _:
            return type(value).__name__, value


def multiset(rows: Sequence[Row]) -> Counter[Row]:
    """Return rows with their multiplicities."""
    return Counter(tuple(exact(v) for v in row) for row in rows)
