"""The analysis reads every catalog fact that later passes need, in few round trips, and nothing of it changes later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import psycopg
import pytest

from applier.plan.limits import DEFAULT_LIMITS, PlanBudget
from applier.sql.analyze.analyze import AnalyzedQuery, analyze
from applier.sql.analyze.built_ins import built_ins_of
from applier.sql.bind.bind import bind
from applier.sql.decorrelate.decorrelate import decorrelate
from applier.sql.pg_tree.read_query import read_query
from applier.sql.plan_query import plan_query
from applier.sql.refusal import DefinitionError
from applier.sql.sources import read_sources
from shared_schema.pg_types import FIRST_USER_OID

SCHEMA = """
CREATE SCHEMA app;
CREATE TYPE app.mood AS ENUM ('sad', 'ok', 'glad');
CREATE DOMAIN app.price AS numeric(10,2);
CREATE DOMAIN app.discount AS app.price;
CREATE TYPE app.pair AS (a int, b text);
CREATE COLLATION app.bytes FROM "C";
CREATE TABLE app.t (id int PRIMARY KEY, m app.mood, p app.discount, moods app.mood[], name text COLLATE app.bytes,
                    unread app.pair);
CREATE TABLE app.plain (id int PRIMARY KEY, name text);
CREATE FUNCTION app.twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE FUNCTION app.plus(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1 + $2';
CREATE AGGREGATE app.added(int) (SFUNC = app.plus, STYPE = int, INITCOND = '007', FINALFUNC = app.twice);
CREATE AGGREGATE app.listed(anycompatible) (SFUNC = array_append, STYPE = anycompatiblearray, INITCOND = '{ }');
CREATE FUNCTION app.same(app.mood, app.mood) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1::text = $2::text';
CREATE OPERATOR app.=== (LEFTARG = app.mood, RIGHTARG = app.mood, FUNCTION = app.same);
CREATE VIEW app.glad AS SELECT id, m, app.twice(id) AS double FROM app.t WHERE m = 'glad';
CREATE VIEW app.above AS SELECT id, double FROM app.glad;
"""


@pytest.fixture
def app(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
        yield connection


def _plan_without_server(analyzed: AnalyzedQuery) -> str:
    tree = read_query(analyzed.tree, analyzed.catalog.major)
    bound = bind(tree, analyzed.catalog, read_sources(tree, analyzed.catalog))
    return repr(decorrelate(bound, PlanBudget(DEFAULT_LIMITS)))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, m FROM t WHERE m IN ('ok', 'glad') ORDER BY m, id LIMIT 3",
        "SELECT p, sum(p) AS s, max(m) AS best FROM t GROUP BY p",
        "SELECT id, moods, name FROM t WHERE name = 'x' COLLATE bytes",
        "SELECT twice(id) AS d, double FROM above JOIN t USING (id)",
        "SELECT added(id) AS a, listed(id ORDER BY id) AS l FROM t",
        "SELECT id, ARRAY(SELECT u.m FROM t u WHERE u.id < t.id ORDER BY u.id) AS before FROM t",
        "SELECT id, array_agg(p) OVER (ORDER BY id) AS ps FROM t",
    ],
)
def test_the_passes_after_the_analysis_need_no_server(app: psycopg.Connection[Any], query: str) -> None:
    expected = repr(plan_query(app, query, "app").plan.root)
    analyzed = analyze(app, query, "app")
    app.close()
    assert _plan_without_server(analyzed) == expected


def test_the_snapshot_holds_what_the_query_names_and_is_frozen(app: psycopg.Connection[Any]) -> None:
    query = "SELECT m === 'ok' AS same, listed(id) AS l, added(id) AS a, p FROM t JOIN above USING (id) GROUP BY m, p"
    catalog = analyze(app, query, "app").catalog
    names = {info.name for info in catalog.objects.types.values()}
    assert {"mood", "_mood", "price", "discount", "pair"} <= names
    (discount,) = (info for info in catalog.objects.types.values() if info.name == "discount")
    assert (catalog.pg_type(discount.oid, -1).name, discount.base_typmod) == ("numeric", ((10 << 16) | 2) + 4)
    signatures = {info.signature for info in catalog.objects.functions.values()}
    assert signatures >= {"app.same(mood,mood)", "app.plus(int4,int4)", "app.twice(int4)", "app.added(int4)"}
    assert {info.name for info in catalog.objects.operators.values()} == {"==="}
    aggregates = {catalog.function(oid).name: info for oid, info in catalog.aggregates.items()}
    assert set(aggregates["added"].initial.values()) == {"7"}
    assert set(aggregates["listed"].initial.values()) == {"{}"}
    assert {relation.table.name for relation in catalog.relations.values()} == {"t", "above", "glad"}
    assert all(oid >= FIRST_USER_OID for oid in catalog.objects.types)
    with pytest.raises(FrozenInstanceError):
        catalog.major = 1  # type: ignore[misc]


def test_objects_of_users_are_read_again_for_every_query(app: psycopg.Connection[Any]) -> None:
    query = "SELECT id FROM app.t WHERE app.twice(id) > 2 AND m < 'glad'"
    before = repr(plan_query(app, query, "pg_catalog").plan)
    app.execute("ALTER TYPE app.mood ADD VALUE 'calm' BEFORE 'glad'")
    app.execute("CREATE OR REPLACE FUNCTION app.twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3'")
    after = repr(plan_query(app, query, "pg_catalog").plan)
    assert before != after and "calm" in after


def _count_statements(connection: psycopg.Connection[Any], query: str, postgres_log: list[str]) -> int:
    plan_query(connection, query, "app")
    connection.execute("SET client_min_messages = log; SET log_statement = 'all'")
    connection.add_notice_handler(lambda notice: postgres_log.append(str(notice.message_primary)))
    plan_query(connection, query, "app")
    connection.execute("RESET log_statement")
    return sum(bool(re.match(r"statement:|execute ", line)) for line in postgres_log)


@pytest.mark.parametrize(
    ("query", "statements"),
    [
        # BEGIN, a confined place, pins, CREATE VIEW, the tree, the relations, ROLLBACK; and the statement that ends the
        # count.
        ("SELECT a.id, b.name FROM plain a JOIN plain b ON a.name = b.name", 7 + 1),
        # The types, and the labels of enums.
        ("SELECT m, count(*) AS n FROM t WHERE p > 1 AND m <> 'sad' GROUP BY m", 9 + 1),
        # The relations of a view and of the view in it, and the body of a function, in a savepoint.
        ("SELECT id FROM above", 11 + 7 + 1),
    ],
)
def test_few_round_trips(app: psycopg.Connection[Any], query: str, statements: int) -> None:
    built_ins_of(app)
    assert _count_statements(app, query, []) == statements


def test_a_search_path_that_is_not_valid(app: psycopg.Connection[Any]) -> None:
    with pytest.raises(DefinitionError, match="search path"):
        analyze(app, "SELECT 1 AS one", '"')
