"""Keys are equal exactly when PostgreSQL's values are, and sort keys order like them: all pairs of many values."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from applier.functions.comparison_keys import comparison_key, sort_position
from applier.plan.expr import Col, Expr, ValueType
from shared_schema.pg_types import PgType
from tests.applier.functions.frames import collect, emit, fetch, frame
from tests.applier.functions.values import edges, random_value

RANDOM_VALUES = 40
MOODS = ("sad", "ok", "happy", "a b", "Ok")
ALIKE = {
    "numeric": ["1.00", "100", "1e2", "0.000", "-1.5", "0.1", "0.10", "99999999999", "-100.0", "12.5", "-12.49"],
    "interval": ["30 days", "720:00:00", "1 year", "12 mons", "360 days", "-30 days", "-1 mons", "1 mon -30 days"],
    "jsonb": ["1.0", "1.00", '{"a": 1.0}', '{"a": 1.00}', "[1, 2.5]", "[1.0, 2.50]", '"1"', "100", "1e2", "[[]]", "-0"],
    "float8": ["0", "-0", "NaN"],
    "float4": ["0", "-0", "NaN"],
}


def _values(name: str) -> list[str]:
    random = Random(7)
    return [*edges(name), *ALIKE.get(name, ()), *(random_value(name, random) for _ in range(RANDOM_VALUES))]


def _compared(
    database: str, spark: SparkSession, name: str, values: list[str], operator: str, stands_for: Callable[[Expr], Expr]
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the pairs for which the operator holds, in PostgreSQL and for the derived keys."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TYPE fuzz_mood AS ENUM ('sad', 'ok', 'happy', 'a b', 'Ok')")
        connection.execute(f"CREATE TABLE v (n serial, x {name})".encode())
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO v (x) VALUES (%s::text::{name})".encode(), [(v,) for v in values])
        pairs = connection.execute(f"SELECT a.n, b.n FROM v a, v b WHERE a.x {operator} b.x".encode()).fetchall()
        held = ValueType.of_column(PgType(0, -1, name, name))
        int4 = ValueType.of_column(PgType(23, -1, "int4", "integer"))
        rows = fetch(connection, sql.SQL("v"), [("n", int4), ("x", held)])
    found = collect(frame(spark, rows, ["int", held.spark]).select("c0", emit(stands_for(Col(1, held)))))
    ours = {(n, m) for n, x in found for m, y in found if _holds(x, y, operator)}
    return {(n, m) for n, m in pairs}, ours


def _holds(x: Any, y: Any, operator: str) -> bool:
    if isinstance(x, str):  # Spark compares bytes
        x, y = x.encode(), y.encode()
    if operator == "<":
        return bool(x < y)
    # Spark groups NaN with NaN, and zero by its bits.
    return repr(x) == repr(y)


def _key(value: Expr) -> Expr:
    key = comparison_key(value)
    assert key is not None
    return key


def _place(value: Expr) -> Expr:
    place = sort_position(value, MOODS if value.type.pg.name == "fuzz_mood" else None)
    assert place is not None
    return place


@pytest.mark.parametrize("name", ["numeric", "interval", "jsonb", "float8", "float4", "int4[]", "text[]"])
def test_keys_are_equal_where_values_are(database: str, spark: SparkSession, name: str) -> None:
    stored = f"_{name[:-2]}" if name.endswith("[]") else name
    theirs, ours = _compared(database, spark, name, _values(name), "=", lambda v: _key(_of_type(v, stored)))
    assert ours == theirs
    assert len(theirs) > len(_values(name))


@pytest.mark.parametrize("name", ["numeric", "interval", "fuzz_mood"])
def test_places_sort_as_values_do(database: str, spark: SparkSession, name: str) -> None:
    values = list(MOODS) if name == "fuzz_mood" else _values(name)
    theirs, ours = _compared(database, spark, name, values, "<", _place)
    assert ours == theirs


def _of_type(value: Expr, name: str) -> Expr:
    assert isinstance(value, Col)
    return Col(value.ordinal, ValueType(PgType(0, -1, name, name), value.type.spark))
