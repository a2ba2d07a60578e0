"""Each accepted query over random small tables: the snapshot rule of its plan equals PostgreSQL as a multiset."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from applier.operators.incrementalize import snapshot
from applier.operators.support.inputs import Side
from applier.plan.expr import ValueType
from applier.plan.keys import row_key
from applier.plan.nodes import Node, Scan, fields
from applier.sql.plan_query import plan_query
from tests.applier.functions.frames import Row, fetch, multiset
from tests.applier.sql.queries import ACCEPTED
from tests.applier.sql.shop import SCHEMA
from tests.applier.sql.snapshots import LoadedInputs, weighted

SEEDS = range(1, 1 + int(os.environ.get("EQUALS_SEEDS", "2")))
ONLY = re.compile(os.environ.get("EQUALS_ONLY", ""))
"""A regular expression of names, to select some queries."""
_WORDS = ["", "a", "ab", "Abe", "b_c", "é", "open", "paid"]


def _rows(random: Random) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows with few distinct values, many NULLs and duplicates, so that joins match and groups are large."""

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    def day() -> str:
        return f"20{random.randrange(18, 26)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"

    def cents(top: int) -> str:
        return f"{random.randrange(-top, top) / 100:.2f}"

    customers = [
        (i, random.choice(_WORDS), maybe(random.choice(["ab", "ab  ", "", "abcd"])), maybe(random.choice("NS")),
         maybe(random.random() < 0.5), maybe(day()), maybe(cents(20000)), maybe(random.choice([0.5, 0.75, -0.0])),
         maybe(f"00000000-0000-0000-0000-00000000000{random.randrange(3)}"), maybe('{"b": 1, "a": 1.0}'),
         maybe(random.choice(["1.0", "1.00", "1e50", "NaN"])))
        for i in range(random.randrange(8))
    ]  # fmt: skip
    orders = [
        (i, random.randrange(6), maybe(cents(10000)), maybe(random.randrange(5)), maybe(f"{day()} 10:00:00.123456+02"),
         maybe(f"{day()} 23:59:59.999999"), maybe(random.choice(_WORDS)), maybe(cents(1000)))
        for i in range(random.randrange(25))
    ]  # fmt: skip
    logs = [
        (maybe(random.randrange(5)), maybe(random.choice(_WORDS)), maybe(random.choice([1, 2**62, -(2**62)])))
        for _ in range(random.randrange(12))
    ]
    lines = [(i % 6, i, maybe(random.choice(_WORDS)), maybe(random.randrange(4))) for i in range(random.randrange(15))]
    measures = [(f"20{15 + i}-01-01", random.randrange(3), maybe(random.randrange(9))) for i in range(10)]
    return {
        "customer": customers, "orders": orders, "log": logs, "line": lines, "measure": measures,
        "parent": [(1,), (1,)], "child": [(2,)],
    }  # fmt: skip


@pytest.fixture(scope="module")
def shop(postgres: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.url, autocommit=True, options="-c TimeZone=UTC") as connection:
        connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
        connection.execute("CREATE SCHEMA shop")
        connection.execute("SET search_path = shop")
        connection.execute(SCHEMA)
        yield connection
        connection.execute("DROP SCHEMA shop CASCADE")


def _load(connection: psycopg.Connection[Any], seed: int) -> None:
    for table, rows in _rows(Random(seed)).items():
        name = sql.Identifier(table)
        connection.execute(sql.SQL("TRUNCATE ONLY {}" if table == "parent" else "TRUNCATE {}").format(name))
        with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
            for row in rows:
                copy.write_row(row)


def _expected(connection: psycopg.Connection[Any], query: str, typed: list[tuple[str, ValueType]]) -> list[Row]:
    """Run the query as a view, because its text may end with a semicolon and a comment."""
    connection.execute("DROP VIEW IF EXISTS pg_temp.expected")
    connection.execute(sql.SQL("CREATE TEMP VIEW expected AS {}").format(sql.SQL(query)))
    return fetch(connection, sql.SQL("pg_temp.expected"), typed)


def _scanned(connection: psycopg.Connection[Any], scan: Scan) -> list[tuple[Any, ...]]:
    columns = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
    only = sql.SQL("ONLY {}") if scan.table.name == "parent" else sql.SQL("{}")
    return fetch(connection, only.format(sql.Identifier(scan.table.schema, scan.table.name)), columns)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
def test_snapshots_equal_postgres(shop: psycopg.Connection[Any], interpreted: SparkSession, seed: int) -> None:
    spark = interpreted
    _load(shop, seed)
    compared = []
    for name, query in ((n, q) for n, q in ACCEPTED.items() if ONLY.search(n)):
        definition = plan_query(shop, query, "shop")
        root = definition.plan.root
        text = snapshot(root, Side.AFTER, LoadedInputs(spark, lambda scan: _scanned(shop, scan))).sql
        typed = list(zip(definition.plan.names, (f.type for f in fields(root)), strict=True))
        compared.append((name, root, text, typed, _expected(shop, query, typed)))
    # Most of the time is spent in Spark's planning, which uses one core.
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda query: list(_differences(spark, *query)), compared)
        wrong = [difference for differences in found for difference in differences]
    assert not wrong, "\n".join(wrong)


def _differences(
    spark: SparkSession, name: str, root: Node, text: str, typed: list[tuple[str, ValueType]], expected: list[Row]
) -> Iterator[str]:
    result = spark.sql(text)
    ours = weighted(result)
    if [f.dataType.simpleString() for f in result.schema.fields[:-1]] != [f.type.spark for f in fields(root)]:
        yield f"{name}: physical types {result.schema.simpleString()}"
    if name.endswith("of_equals"):
        ours, expected = (_without_looks(rows, typed) for rows in (ours, expected))
    if multiset(ours) != multiset(expected):
        yield f"{name}: Spark {ours[:5]}, PostgreSQL {expected[:5]}"
    yield from _broken_promises(name, root, expected)


def _without_looks(rows: list[tuple[Any, ...]], typed: list[tuple[str, ValueType]]) -> list[tuple[Any, ...]]:
    """Normalize values that are equal and print differently (1.0, 1.00): PostgreSQL may show any of them."""

    def plain(value: Any, type_: ValueType) -> Any:
        if value is None or type_.spark != "string":
            return value
        if type_.pg.name == "numeric":
            return str(Decimal(value).normalize())
        return str(json.loads(value, parse_float=float, parse_int=float)) if type_.pg.name == "jsonb" else value

    return [tuple(plain(value, type_) for value, (_, type_) in zip(row, typed, strict=True)) for row in rows]


def _broken_promises(name: str, root: Any, rows: list[tuple[Any, ...]]) -> Iterator[str]:
    """Check that the row key identifies rows, and that columns declared not null are not NULL."""
    key = row_key(root)
    if key is not None and len({tuple(row[i] for i in key) for row in rows}) != len(rows):
        yield f"{name}: key {key} repeats"
    for i, field in enumerate(fields(root)):
        if not field.nullable and any(row[i] is None for row in rows):
            yield f"{name}: column {i} is NULL"
