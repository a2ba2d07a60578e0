"""The SQL functions against the running stack, as a psql user calls them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests import oracle
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]


def one(db: Connection, query: str, *arguments: object) -> object:
    row = db.execute(query.encode(), arguments or None).fetchone()
    return row[0] if row else None


def test_the_running_applier_uses_a_changed_setting(db: Connection) -> None:
    shown = "SELECT value || ' ' || source FROM pgtrickle.settings() WHERE name = 'pipeline_batch_size'"
    assert one(db, shown) == "4096 default"
    in_use = "SELECT value || ' ' || source FROM pgtrickle.pgt_settings_in_use WHERE name = 'pipeline_batch_size'"
    for call, expected in (("set_setting(%s, '2')", "2 setting"), ("reset_setting(%s)", "4096 default")):
        db.execute(f"SELECT pgtrickle.{call}".encode(), ("pipeline_batch_size",))

        def assert_in_use(expected: str = expected) -> None:
            assert one(db, in_use) == expected

        oracle.eventually(assert_in_use)
        assert one(db, shown) == expected
    assert one(db, "SELECT source FROM pgtrickle.settings() WHERE name = 'delta_root'") == "environment"
    assert one(db, "SELECT count(*) FROM pgtrickle.settings() WHERE source = 'not reported'") == 0
    assert one(db, "SELECT severity FROM pgtrickle.health_check() WHERE check_name = 'applier_running'") == "OK"


def test_a_query_is_judged_in_the_callers_own_transaction(db: Connection) -> None:
    db.execute("CREATE SCHEMA asked; CREATE TABLE asked.orders (id int PRIMARY KEY, amount int)")
    judge = "SELECT check_name, result FROM pgtrickle.validate_query(%s)"

    def judged(query: str) -> dict[str, object]:
        return {str(check): result for check, result in db.execute(judge, (query,)).fetchall()}

    with db.transaction(force_rollback=True):
        db.execute("SET LOCAL search_path = asked")
        said = judged("SELECT amount, count(*) AS n FROM orders GROUP BY amount")
        assert said["supported"] == "yes" and said["row_key"] == "amount" and said["reads"] == "asked.orders"
        said = judged("SELECT id,\n random() AS r FROM orders")
        assert "random" in str(said["supported"]) and said["code"] == "volatile_function"
        assert said["place"] == "line 2, column 2"
        with pytest.raises(errors.UndefinedColumn), db.transaction():
            judged("SELECT nope FROM orders")
        with pytest.raises(errors.SyntaxError), db.transaction():
            judged("SELECT 1; DROP TABLE orders")
    with db.transaction(force_rollback=True):
        db.execute("ALTER TABLE asked.orders ADD note text")
        assert "locked" in str(judged("SELECT id FROM asked.orders")["supported"])
    assert one(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'asked'") == 0


def test_a_stream_table_explains_itself(db: Connection) -> None:
    db.execute("CREATE TABLE explained (id int PRIMARY KEY, kind text, amount int)")
    db.execute(
        "SELECT pgtrickle.create_stream_table('kinds',"
        " 'SELECT kind, sum(amount) AS total, count(*) AS n FROM explained GROUP BY kind')"
    )
    assert "not planned it yet" in str(one(db, "SELECT pgtrickle.explain_stream_table('kinds')"))
    db.execute("SELECT pgtrickle.wait_for('kinds')")
    text = str(one(db, "SELECT pgtrickle.explain_stream_table('kinds')"))
    for part in (
        "public.kinds, ACTIVE",
        "Aggregate by kind: sum(amount) AS total, count(*) AS n",
        "updates the accumulators of the affected groups",
        "last refresh: FULL (INITIAL)",
        "a refresh reads: the rows that changed",
        "a change of public.explained:",
    ):
        assert part in text
    facts = one(db, "SELECT pgtrickle.explain_stream_table('kinds', format => 'json')::jsonb")
    assert isinstance(facts, dict) and facts["row_key"] == ["kind"] and facts["plan"]["operator"]
    assert facts["last_refresh"]["reason"] == "INITIAL" and facts["thresholds"]["full_policy"] == "allow"
    lineage = db.execute("SELECT * FROM pgtrickle.stream_table_lineage('kinds')").fetchall()
    assert lineage == [
        ("kind", "public.explained", "kind"),
        ("total", "public.explained", "amount"),
        ("n", None, None),
    ]


def test_the_mode_of_the_last_refresh_and_why_it_was_in_full(db: Connection) -> None:
    """AUTO: few changes are always applied as a delta; more changes than the table has rows are not."""
    db.execute("CREATE TABLE moded (id int PRIMARY KEY, kind int)")
    db.execute("SELECT pgtrickle.create_stream_table('modes', 'SELECT kind, count(*) AS n FROM moded GROUP BY kind')")
    db.execute("SELECT pgtrickle.wait_for('modes')")
    for rows, expected in (
        ("1, 1", ("AUTO", "DIFFERENTIAL", None)),
        ("2, 2000", ("AUTO", "FULL", "CHANGE_RATIO: 1999 changes, 2000 source rows, auto_threshold 0.15")),
    ):
        db.execute(f"INSERT INTO moded SELECT i, i % 5 FROM generate_series({rows}) i".encode())
        db.execute("SELECT pgtrickle.wait_for('modes')")

        def assert_reported(expected: tuple[str, str, str | None] = expected) -> None:
            assert db.execute("SELECT * FROM pgtrickle.explain_refresh_mode('modes')").fetchone() == expected

        oracle.eventually(assert_reported)


def test_a_refusal_is_sent_as_a_notification(db: Connection) -> None:
    db.execute("CREATE TABLE rumours (id int PRIMARY KEY, note text); LISTEN pg_trickle_alert")
    create = "SELECT pgtrickle.create_stream_table(%s, 'SELECT id, random() AS r FROM rumours', refresh_mode => %s)"
    db.execute(create, ("lucky", "DIFFERENTIAL"))
    assert next_alert(db, "auto_suspended", "random", timeout_s=30)["hint"]
    db.execute("UNLISTEN *")
    status = "SELECT status || ': ' || last_error_message FROM pgtrickle.pgt_status() WHERE name = 'public.lucky'"
    assert str(one(db, status)).startswith("SUSPENDED: the function random()")
    # Another query repairs it.
    assert (
        one(db, "SELECT pgtrickle.alter_stream_table('lucky', 'SELECT id, 0.5::float8 AS r FROM rumours')")
        == "compatible"
    )
    db.execute("SELECT pgtrickle.wait_for('lucky')")
    assert one(db, status) is None
    # A query that only PostgreSQL can run is reported as such.
    words = "SELECT id, to_tsvector('simple', note)::text AS w FROM rumours"
    db.execute("SELECT pgtrickle.create_stream_table('words', %s)", (words,))
    db.execute("SELECT pgtrickle.wait_for('words')")
    assert "PostgreSQL runs the query itself" in str(one(db, "SELECT pgtrickle.explain_stream_table('words')"))
    assert one(db, "SELECT pgtrickle.explain_json('words') #>> '{in_full,0,code}'") == "run_by_postgres"
