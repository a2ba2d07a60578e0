"""User-defined functions: simple SQL ones are inlined, a replaced one is noticed, others are refused."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from applier.catalog.install import install_catalog
from applier.plan.nodes import Project, fields
from applier.sql.plan_query import StoredQuery, plan_query
from applier.sql.refusal import Refused
from tests.applier.functions.frames import collect, emit, exact, fetch, frame

SCHEMA = """
CREATE TABLE t (a int, b text);
INSERT INTO t VALUES (1, 'x'), (-5, NULL), (NULL, 'y'), (7, 'abc');
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE FUNCTION named(x int, y text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT y || x::text;';
CREATE FUNCTION careful(x int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT coalesce(x, 0) + 1';
CREATE FUNCTION careless(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT coalesce(x, 0) + 1';
CREATE FUNCTION atomic(x int) RETURNS int LANGUAGE sql IMMUTABLE RETURN x + 1;
CREATE FUNCTION nested(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT public.twice(x)';
CREATE FUNCTION looks(x int) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT count(*) FROM public.t';
CREATE FUNCTION today(x int) RETURNS date LANGUAGE sql IMMUTABLE AS $$SELECT 'today'::date + x$$;
CREATE FUNCTION procedural(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x; END';
CREATE FUNCTION shaky(x int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT x';
CREATE FUNCTION widened(x int) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT x';
CREATE FUNCTION two(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1; SELECT x';
"""


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True, options="-c TimeZone=UTC") as connection:
        connection.execute(SCHEMA.encode())
        yield connection


def test_simple_functions_equal_postgres(connection: psycopg.Connection[Any], spark: SparkSession) -> None:
    calls = ("twice(a)", "named(a, b)", "careful(a)", "careless(a)", "atomic(a + 1)", "twice(twice(a))")
    query = f"SELECT {', '.join(f'{call} AS c{i}' for i, call in enumerate(calls))} FROM t"
    plan = plan_query(connection, query, "public").plan.root
    assert isinstance(plan, Project)
    rows = [(1, "x"), (-5, None), (None, "y"), (7, "abc")]
    ours = collect(frame(spark, rows, ["int", "string"]).select(*(emit(e) for e in plan.exprs)))
    typed = [(f"c{i}", f.type) for i, f in enumerate(fields(plan))]
    theirs = fetch(connection, sql.SQL("({}) q").format(sql.SQL(query)), typed)
    assert [[exact(v) for v in row] for row in ours] == [[exact(v) for v in row] for row in theirs]


@pytest.mark.parametrize("name", ["nested", "looks", "today", "procedural", "shaky", "widened", "two"])
def test_other_functions_are_refused(connection: psycopg.Connection[Any], name: str) -> None:
    with pytest.raises(Refused, match=name):
        plan_query(connection, f"SELECT {name}(a) AS c FROM t", "public")


def test_a_replaced_function_is_noticed(connection: psycopg.Connection[Any]) -> None:
    written = StoredQuery("SELECT twice(a) AS c FROM t", datetime.datetime.now(datetime.UTC))
    row = connection.execute(
        "SELECT oid::int8, md5(concat_ws(' ', prosrc, prosqlbody::text, provolatile, proisstrict, prolang)) "
        "FROM pg_proc WHERE proname = 'twice'"
    ).fetchone()
    assert row is not None
    stored = f"/* functions: {row[0]}={row[1]} */ SELECT public.twice(a) AS c FROM public.t"
    plan_query(connection, stored, "pg_catalog", written)
    connection.execute("CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3'")
    with pytest.raises(Refused, match="was changed since the stream table was created"):
        plan_query(connection, stored, "pg_catalog", written)
    with pytest.raises(Refused, match="was changed since the stream table was created"):
        plan_query(connection, "SELECT public.twice(a) AS c FROM public.t", "pg_catalog", written)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE FUNCTION plus(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1 + $2 + 1'",
        "CREATE OR REPLACE AGGREGATE added(int) (SFUNC = plus, STYPE = int, INITCOND = '1', FINALFUNC = twice)",
        "CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3'",
    ],
)
def test_a_replaced_aggregate_is_noticed(connection: psycopg.Connection[Any], change: LiteralString) -> None:
    connection.execute(
        "CREATE FUNCTION plus(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1 + $2';"
        "CREATE AGGREGATE added(int) (SFUNC = plus, STYPE = int, INITCOND = '0', FINALFUNC = twice);"
        "CREATE VIEW v AS SELECT added(a) AS c FROM t"
    )
    install_catalog(connection)
    row = connection.execute("SELECT pgtrickle._canonical('v'::regclass)").fetchone()
    assert row is not None
    written = StoredQuery("SELECT added(a) AS c FROM t", datetime.datetime.now(datetime.UTC))
    plan_query(connection, row[0], "public", written)
    connection.execute(change)
    with pytest.raises(Refused, match="was changed since the stream table was created"):
        plan_query(connection, row[0], "public", written)
