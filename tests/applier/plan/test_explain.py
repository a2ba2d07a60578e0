"""`explain` names columns, functions and paths with the words of the query, and each name has one meaning."""

from __future__ import annotations

import re

import psycopg
import pytest

from applier.functions.allow_list import ENTRIES
from applier.operators.stateful_nodes import stateful_nodes
from applier.plan.explain import explain
from applier.plan.expr import (
    BOOL,
    INT4,
    AggregateCall,
    BoolOp,
    Call,
    Case,
    Coalesce,
    Col,
    Const,
    Expr,
    IsNull,
    Logic,
)
from applier.plan.expression_text import Named, Writer
from applier.plan.json_path import json_path_text
from applier.plan.nodes import Aggregate, ColumnName, Field, Join, Project, Scan, StreamPlan, named
from applier.plan.symbols import infix, prefix
from applier.sql.plan_query import plan_query
from shared_schema.table_schema import TableId
from tests.applier.plan.golden_file import entries
from tests.applier.sql.queries import ACCEPTED_FILES

CALLED_BY_NAME = {"@", "|/", "^@"}
"""Operators that are rarely written: the names of their functions are shown."""


def _scan(table: str, *columns: str) -> Scan:
    return Scan(TableId("s", table), 1, columns, tuple(Field(INT4, True) for _ in columns), None)


def _lines(query: str, database: str, *schema: str) -> list[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in schema:
            connection.execute(statement.encode())
        plan = plan_query(connection, query, "public").plan
    return [line.strip() for line in explain(plan, stateful_nodes(plan.root)).splitlines()]


def test_no_plan_shows_a_position_instead_of_a_name() -> None:
    plans = [entry for path in ACCEPTED_FILES for entry in entries(path)]
    assert len(plans) > 400
    assert [entry.name for entry in plans if re.search(r"\bc\d+\b", entry.text)] == []


def test_names_are_for_people_only() -> None:
    plain = _scan("t", "a", "b")
    called = named(plain, {1: ColumnName("a", "x")})
    assert called.names == (None, ColumnName("a", "x"))
    assert named(called, {0: ColumnName("b", "y")}).names == (ColumnName("b", "y"), ColumnName("a", "x"))
    assert (called, hash(called), repr(called)) == (plain, hash(plain), repr(plain))


def test_every_operator_is_the_one_of_postgres(database: str) -> None:
    functions = sorted({signature.partition("(")[0] for signature in ENTRIES})
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT DISTINCT p.proname, o.oprname, o.oprkind::text"
            " FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode"
            " WHERE p.proname = ANY(%s) AND p.pronamespace = 'pg_catalog'::regnamespace",
            (functions,),
        ).fetchall()
    words = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}
    listed = [(name, words.get(symbol, symbol), kind) for name, symbol, kind in found if symbol not in CALLED_BY_NAME]
    assert len(listed) > 250
    assert [(n, s) for n, s, kind in listed if (infix(n) if kind == "b" else prefix(n)) != s] == []
    operators = {name for name, _, _ in listed}
    assert [name for name in functions if (infix(name) or prefix(name)) and name not in operators] == []


@pytest.mark.parametrize(
    "path",
    [
        "$.a",
        'strict $."b c"[*].size()',
        "$.** ? (@.a == 1 && !(@.b > $x) || exists(@.c))",
        '$[0, 2 to last] ? (@ starts with "x")',
        "-$.a + 2 * (3 - $.b) % 4",
        '($.a == "é") is unknown',
        '$.* ? (@ like_regex "ab")',
        "$.**{1 to 2}.a ? (@ > 1.10)",
        "$.**{last}",
        "$.**{2 to last}[last]",
    ],
)
def test_a_path_is_written_as_postgres_reads_it(database: str, path: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, j jsonb)")
        query = f"SELECT jsonb_path_query_array(j, '{path}', '{{\"x\": 1}}') AS a FROM t"
        root = plan_query(connection, query, "public").plan.root
        assert isinstance(root, Project) and isinstance(root.exprs[0], Call)
        held = root.exprs[0].args[1]
        assert isinstance(held, Const) and isinstance(held.value, str)
        value = held.value
        same = connection.execute(
            "SELECT %s::jsonpath::text = %s::jsonpath::text", (path, json_path_text(value))
        ).fetchone()
        assert same == (True,), json_path_text(value)


def test_a_name_of_two_columns_is_made_unique(database: str) -> None:
    tables = ("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (id int PRIMARY KEY, v int, w int)")
    query = (
        "SELECT t.id, t.v + o.v AS both, o.w, (SELECT count(*) FROM u o WHERE o.v = t.v) AS n"
        " FROM t JOIN u o ON o.id = t.id WHERE o.w > 0"
    )
    lines = _lines(query, database, *tables)
    assert "Project t.id, t.v + o.v AS both, w, coalesce(count(*), 0) AS n" in lines
    assert "LeftJoin on t.v = o_1.v" in lines
    assert "Join on t.id = o.id" in lines
    assert "Filter w > 0" in lines
    assert "Scan public.u o reads id, v, w" in lines and "Scan public.u o_1 reads v" in lines


def test_similar_columns_have_different_names() -> None:
    counts = AggregateCall("count()", (), INT4)
    left, right = (Aggregate(_scan(table), (), (counts,)) for table in ("t", "u"))
    less = Call("int4lt(int4,int4)", (Col(0, INT4), Col(1, INT4)), BOOL)
    plan = StreamPlan(Project(Join(left, right, (), less), (less,)), ("x",))
    lines = [line.strip() for line in explain(plan, ()).splitlines()]
    assert lines[1::2] == [
        "Project count(*) < count_1 AS x",
        "CrossJoin where count(*) < count_1",
        "Aggregate count(*)",
        "Scan s.t reads no column",
        "Aggregate count(*) AS count_1",
        "Scan s.u reads no column",
    ]


def test_sql_forms_are_distinguished_from_similar_expressions() -> None:
    write = Writer([Named("t", "a", 1), Named("t", "b", 2)])
    a, b, null = Col(0, INT4), Col(1, INT4), Const(None, INT4)
    less, same = (Call(f"int4{name}(int4,int4)", (a, b), BOOL) for name in ("lt", "eq"))
    assert write(Case(((same, null),), a, INT4)) == "nullif(a, b)"
    assert write(Case(((less, null),), a, INT4)) == "CASE WHEN a < b THEN NULL ELSE a END"
    assert write(Case(((same, null),), b, INT4)) == "CASE WHEN a = b THEN NULL ELSE b END"

    def distinct(test: Expr, *tested: Expr) -> Expr:
        both = BoolOp(Logic.AND, tuple(IsNull(arg, False, BOOL) for arg in tested), BOOL)
        return BoolOp(Logic.NOT, (Coalesce((test, both), BOOL),), BOOL)

    assert write(distinct(same, a, b)) == "a IS DISTINCT FROM b"
    assert write(distinct(same, a, a)) == "NOT coalesce(a = b, a IS NULL AND a IS NULL)"
    assert write(distinct(less, a, b)) == "NOT coalesce(a < b, a IS NULL AND b IS NULL)"


def test_a_null_safe_join_is_shown_as_one_condition() -> None:
    a, b, zero, one = Col(0, INT4), Col(0, INT4), Const(0, INT4), Const(1, INT4)
    tested = IsNull(a, False, BOOL), IsNull(b, False, BOOL)

    def explain_join(*pairs: tuple[Expr, Expr]) -> str:
        plan = StreamPlan(Join(_scan("t", "a"), _scan("u", "b"), pairs, None), ("a", "b"))
        return explain(plan, ()).splitlines()[1].strip()

    filled = Coalesce((a, zero), INT4), Coalesce((b, zero), INT4)
    assert explain_join(tested, filled) == "Join on t.a IS NOT DISTINCT FROM u.b"
    assert explain_join(filled) == "Join on coalesce(t.a, 0) = coalesce(u.b, 0)"
    assert explain_join(tested) == "Join on (t.a IS NULL) = (u.b IS NULL)"
    other = Coalesce((a, zero), INT4), Coalesce((b, one), INT4)
    assert (
        explain_join(tested, other) == "Join on (t.a IS NULL) = (u.b IS NULL) AND coalesce(t.a, 0) = coalesce(u.b, 1)"
    )


def test_operators_bind_as_postgres_reads_them(database: str) -> None:
    query = "SELECT (a + b) * -a - (b - a) AS x, NOT (a > b OR a IS NULL) AND (a < b) IS NOT NULL AS y FROM t"
    lines = _lines(query, database, "CREATE TABLE t (a int, b int)")
    assert "Project (a + b) * -a - (b - a) AS x, NOT (a > b OR a IS NULL) AND (a < b) IS NOT NULL AS y" in lines


def test_names_that_need_quotes_have_them(database: str) -> None:
    lines = _lines('SELECT "A b" AS "Sum" FROM "T" WHERE "A b" > 0', database, 'CREATE TABLE "T" ("A b" int)')
    assert 'Filter "A b" > 0' in lines and 'StreamTable ("Sum" integer)' in lines
