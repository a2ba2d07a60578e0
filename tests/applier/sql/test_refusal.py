"""Refused queries, the reasons and the messages, compared with golden files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from applier.sql.analyze import built_ins
from applier.sql.plan_query import plan_query
from applier.sql.refusal import DefinitionError, Reason, Refused
from tests.applier.plan.golden_file import FOLDER, check_entries
from tests.applier.sql.queries import NOT_ACCEPTED_BY_POSTGRES, REFUSED
from tests.applier.sql.shop import SCHEMA

DEFAULT_COLLATION = 100


@pytest.fixture
def shop(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("SET search_path = shop")
        connection.execute(SCHEMA)
        yield connection


def _change_collation(connection: psycopg.Connection[Any], oid: int, **changes: Any) -> None:
    """Let the connection see a collation with other properties than the server's."""
    found = built_ins.built_ins_of(connection)
    known = dict(found.objects.collations)
    known[oid] = replace(known[oid], **changes)
    built_ins._OF_CONNECTIONS[connection] = replace(found, objects=replace(found.objects, collations=known))


def _refusal(connection: psycopg.Connection[Any], query: str) -> Refused:
    with pytest.raises(Refused) as caught:
        plan_query(connection, query, "shop")
    return caught.value


def test_refusals_are_as_reviewed(shop: psycopg.Connection[Any]) -> None:
    texts = {}
    for name, query in REFUSED.items():
        refused = _refusal(shop, query)
        assert refused.hint
        full = "can" if refused.full_in_postgres else "cannot"
        assert refused.place is not None, f"{name}: {refused.construct} has no place"
        texts[name] = (
            f"[{refused.reason.value}] {refused.construct}\n"
            f"at {refused.place}: {query[refused.place.offset :].splitlines()[0][:50]}\n"
            f"hint: {refused.hint}; FULL mode {full} take it\n"
        )
    check_entries(FOLDER / "refusals.txt", texts)


def test_errors_of_postgres_are_as_reviewed(shop: psycopg.Connection[Any]) -> None:
    texts = {}
    for name, query in NOT_ACCEPTED_BY_POSTGRES.items():
        with pytest.raises(DefinitionError) as caught:
            plan_query(shop, query, "shop")
        texts[name] = f"[{caught.value.sqlstate}] {caught.value.problem}\nhint: {caught.value.hint}\n"
    check_entries(FOLDER / "errors.txt", texts)


def test_every_reason_is_shown(shop: psycopg.Connection[Any]) -> None:
    shown = {_refusal(shop, query).reason for query in REFUSED.values()}
    # Unknown trees and collations need a server that the tests cannot have; they have their own tests.
    assert shown == set(Reason) - {Reason.UNKNOWN_TREE, Reason.COLLATION}


@pytest.mark.parametrize(
    ("query", "line", "column"),
    [
        ("SELECT id,\n  quote_ident(name) FROM customer", 2, 3),
        ("SELECT id FROM customer\nWHERE name ~ '(?=a)'", 2, 12),
        ("SELECT 'é', random() AS r FROM customer", 1, 13),
        ("SELECT region, json_agg(credit) FROM customer GROUP BY region", 1, 16),
        ("SELECT id FROM customer WHERE born > 'yesterday'", 1, 38),
        ("SELECT id,\n row_number() OVER (ORDER BY name) FROM customer", 2, 2),
        ("SELECT id FROM customer\nLIMIT 3", 2, 1),
        ("SELECT one\nFROM stored", 2, 6),
        ("SELECT id, count(*) OVER (ORDER BY id\nROWS BETWEEN 1 + 1 PRECEDING AND CURRENT ROW) FROM customer", 2, 1),
        ("SELECT id FROM customer WHERE born < CURRENT_DATE", 1, 38),
        ("SELECT id, ntile(1 + 1) OVER (ORDER BY id) FROM customer", 1, 12),
    ],
)
def test_a_refusal_knows_its_place(shop: psycopg.Connection[Any], query: str, line: int, column: int) -> None:
    place = _refusal(shop, query).place
    assert place is not None
    assert (place.line, place.column) == (line, column)
    assert query[place.offset :].startswith(query.split("\n")[line - 1][column - 1 :])


def test_an_error_of_postgres_knows_its_place(shop: psycopg.Connection[Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        plan_query(shop, "SELECT id,\n       'é' || nope FROM customer", "shop")
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (2, 15)
    assert caught.value.sqlstate == "42703"


def test_after_an_error_the_connection_is_usable(shop: psycopg.Connection[Any]) -> None:
    for query in ("SELECT nope", "SELECT now() FROM customer"):
        with pytest.raises((DefinitionError, Refused)):
            plan_query(shop, query, "shop")
    assert plan_query(shop, "SELECT id FROM customer", "shop").plan.names == ("id",)


def test_a_literal_that_only_looks_like_today_is_accepted(shop: psycopg.Connection[Any]) -> None:
    plan_query(shop, "SELECT id FROM customer WHERE name = 'today' AND born > '2001-01-01'", "shop")
    day = shop.execute("SELECT current_date::text").fetchone()
    plan_query(shop, f"SELECT id FROM customer WHERE name = 'tomorrowland' AND born > '{(day or ('',))[0]}'", "shop")


@pytest.mark.parametrize(
    ("query", "needs"),
    [
        ("SELECT id FROM customer WHERE name = 'a'", "equality"),
        ("SELECT name, count(*) FROM customer GROUP BY name", "equality"),
        ("SELECT a.id FROM customer a JOIN customer b ON a.name = b.name", "equality"),
        ("SELECT id FROM customer WHERE name LIKE 'a%'", "equality"),
        ("SELECT id FROM customer WHERE name < 'a'", "order"),
    ],
)
def test_collations_decide(shop: psycopg.Connection[Any], query: str, needs: str) -> None:
    _change_collation(shop, DEFAULT_COLLATION, byte_order=True, deterministic=True)
    plan_query(shop, query, "shop")
    _change_collation(shop, DEFAULT_COLLATION, byte_order=False, deterministic=True)
    if needs == "order":
        assert _refusal(shop, query).reason is Reason.COLLATION
    else:
        plan_query(shop, query, "shop")
    _change_collation(shop, DEFAULT_COLLATION, byte_order=False, deterministic=False)
    assert _refusal(shop, query).reason is Reason.COLLATION


def test_a_plain_column_may_have_any_collation(shop: psycopg.Connection[Any]) -> None:
    _change_collation(shop, DEFAULT_COLLATION, byte_order=False, deterministic=False)
    plan_query(shop, "SELECT id, name || region AS both FROM customer", "shop")


def test_a_function_is_inlined_under_the_collation_of_its_call(shop: psycopg.Connection[Any]) -> None:
    known = built_ins.built_ins_of(shop).objects.collations
    (own,) = (oid for oid, collation in known.items() if collation.name == "C")
    _change_collation(shop, DEFAULT_COLLATION, byte_order=True, deterministic=True)
    _change_collation(shop, own, byte_order=False)
    for function in ("larger({}, region)", "largest({})"):
        query = f"SELECT {function} AS l FROM customer"
        plan_query(shop, query.format("name"), "shop")
        assert _refusal(shop, query.format('name COLLATE "C"')).reason is Reason.COLLATION


def test_a_query_that_is_large_in_form(shop: psycopg.Connection[Any]) -> None:
    """Its texts would take all memory of the process: it is refused before they are written."""
    joins = " ".join(f"FULL JOIN customer c{i} USING (id)" for i in range(1, 40))
    excepts = " EXCEPT ".join("SELECT id FROM customer" for _ in range(100))
    for query in (f"SELECT id FROM customer c0 {joins}", excepts):
        refused = _refusal(shop, query)
        assert refused.reason is Reason.SIZE and "stream table for a part" in refused.hint and refused.full_in_postgres
