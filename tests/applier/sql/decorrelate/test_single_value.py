"""A scalar subquery with more than one row is an error, exactly where PostgreSQL raises one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.operators.incrementalize import snapshot
from applier.operators.support.inputs import Side
from applier.plan.keys import row_key
from applier.plan.nodes import Scan
from applier.sql.plan_query import plan_query
from tests.applier.functions.frames import Row, fetch
from tests.applier.sql.snapshots import LoadedInputs, weighted

CORRELATED = "SELECT t.k, (SELECT u.v FROM u WHERE u.k = t.k) AS v FROM t"
ALONE = "SELECT t.k, (SELECT u.v FROM u WHERE u.k > 1) AS v FROM t"


@pytest.fixture
def tables(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE u (k int, v text)")
        connection.execute("INSERT INTO t VALUES (1), (2), (3); INSERT INTO u VALUES (1, 'one'), (2, 'two')")
        yield connection


def _ours(connection: psycopg.Connection[Any], spark: SparkSession, query: str) -> set[Row]:
    def load(scan: Scan) -> list[Row]:
        columns = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
        return fetch(connection, sql.Identifier(scan.table.schema, scan.table.name), columns)

    root = plan_query(connection, query, "public").plan.root
    return set(weighted(spark.sql(snapshot(root, Side.AFTER, LoadedInputs(spark, load)).sql)))


@pytest.mark.parametrize(
    ("query", "more", "fails"),
    [
        (CORRELATED, "(9, 'a'), (9, 'b'), (NULL, 'c'), (NULL, 'd')", False),
        (CORRELATED, "(2, 'deux')", True),
        (CORRELATED, "(2, 'two')", True),
        (ALONE, "(1, 'a')", False),
        (ALONE, "(7, 'a')", True),
    ],
)
def test_more_than_one_row_is_an_error(
    tables: psycopg.Connection[Any], spark: SparkSession, query: str, more: str, fails: bool
) -> None:
    tables.execute(f"INSERT INTO u VALUES {more}".encode())
    if not fails:
        assert _ours(tables, spark, query) == set(tables.execute(query.encode()).fetchall())
        return
    with pytest.raises(psycopg.errors.CardinalityViolation) as theirs:
        tables.execute(query.encode()).fetchall()
    with pytest.raises((PySparkException, Py4JJavaError)) as ours:
        _ours(tables, spark, query)
    assert str(theirs.value).splitlines()[0] in str(ours.value)


@pytest.mark.parametrize(
    "query",
    [
        CORRELATED,
        "SELECT k, (SELECT count(*) FROM u WHERE u.k < t.k) AS n FROM t",
        "SELECT k, k IN (SELECT k FROM u) AS found, k > ALL (SELECT k FROM u) AS above FROM t",
    ],
)
def test_scalar_subqueries_do_not_change_the_row_key(tables: psycopg.Connection[Any], query: str) -> None:
    assert row_key(plan_query(tables, query, "public").plan.root) == (0,)
