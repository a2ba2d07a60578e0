"""Altering the query of an existing stream table: what stays, what changes, and that its readers change with it."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))


def one(db: Connection, query: str, *arguments: object) -> object:
    row = db.execute(query.encode(), arguments or None).fetchone()
    return row[0] if row else None


def create(db: Connection, name: str, query: str) -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def alter(db: Connection, name: str, query: str) -> object:
    return one(db, "SELECT pgtrickle.alter_stream_table(%s, query => %s)", name, query)


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def test_the_same_columns_change_in_place_and_the_readers_with_them(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE sold (id int PRIMARY KEY, kind text, amount int)")
    db.execute("INSERT INTO sold SELECT i, 'k' || i % 3, i FROM generate_series(1, 30) i")
    create(db, "sales", "SELECT id, kind, amount FROM sold WHERE amount > 10")
    create(db, "sales_by_kind", "SELECT kind, sum(amount) AS total FROM sales GROUP BY kind")
    db.execute("CREATE VIEW shown AS SELECT kind FROM sales; CREATE INDEX sales_kind ON sales (kind)")
    assert_equal(db, "sales", "sales_by_kind")
    relid = one(db, "SELECT 'sales'::regclass::oid")
    replay = oracle.TopicReplay(stack.addresses.kafka_bootstrap, "trickle_out.public.sales", "trickle_out.schemas")
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "sales"), replay.catch_up(), "topic"))
    before = len(replay.stamps)

    assert alter(db, "sales", "SELECT id, kind, amount FROM sold WHERE amount > 10") == "no-op"
    assert alter(db, "sales", "SELECT id, kind, amount FROM sold WHERE amount > 12") == "compatible"
    db.execute("INSERT INTO sold VALUES (99, 'late', 99)")
    assert_equal(db, "sales", "sales_by_kind")
    assert one(db, "SELECT min(amount) FROM sales") == 13
    assert one(db, "SELECT 'sales'::regclass::oid") == relid
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "sales"), replay.catch_up(), "topic"))
    # Two rows were deleted and one was inserted: nothing else was sent.
    assert len(replay.stamps) - before == 3

    # Duplicate rows are possible now: there is no key any more, and then there is one again.
    assert alter(db, "sales", "SELECT 7 AS id, kind, 1 AS amount FROM sold") == "compatible"
    assert_equal(db, "sales", "sales_by_kind")
    assert alter(db, "sales", "SELECT id, kind, -amount AS amount FROM sold") == "compatible"
    db.execute("UPDATE sold SET kind = 'moved' WHERE id < 5")
    assert_equal(db, "sales", "sales_by_kind")
    expected = oracle.query_result(db, "sales")
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "topic"))
    root = stack.addresses.delta_root
    oracle.eventually(lambda: oracle.assert_same(expected, oracle.in_delta(root, "sales"), "Delta"))
    history = "SELECT count(*) FROM pgtrickle.get_refresh_history('sales') WHERE refresh_reason = 'DEFINITION_CHANGED'"
    assert one(db, history) == 3
    with pytest.raises(errors.InvalidTableDefinition, match="read itself"):
        alter(db, "sales", "SELECT 1 AS id, kind, total::int AS amount FROM sales_by_kind")
    with pytest.raises(errors.FeatureNotSupported, match="random"):
        alter(db, "sales", "SELECT id, kind, (random() * 10)::int AS amount FROM sold")
    # When the query cannot be checked at once, the error is sent later as a notification; the old query stays.
    db.execute("LISTEN pg_trickle_alert")
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert alter(db, "sales", "SELECT id, kind, (random() * 10)::int AS amount FROM sold") == "compatible"
    next_alert(db, "alteration_refused", "random", timeout_s=30)
    db.execute("UNLISTEN *")
    assert "random" in str(one(db, "SELECT last_error_message FROM pgtrickle.pgt_status() WHERE name = 'public.sales'"))
    with pytest.raises(errors.DependentObjectsStillExist) as caught:
        alter(db, "sales", "SELECT id, kind FROM sold")
    assert "view public.shown" in str(caught.value.diag.message_detail)
    db.execute("DROP VIEW shown")
    assert_equal(db, "sales", "sales_by_kind")


def test_other_columns_are_built_separately_and_swapped(db: Connection, stack: Stack) -> None:
    db.execute(
        "CREATE TABLE components (id int PRIMARY KEY, name text, weight int); CREATE TABLE tariffs (id int, price int)"
    )
    db.execute("INSERT INTO components SELECT i, 'p' || i, i FROM generate_series(1, 20) i")
    db.execute("INSERT INTO tariffs SELECT i, i * 2 FROM generate_series(1, 20) i")
    create(db, "listed_parts", "SELECT id, name FROM components")
    assert_equal(db, "listed_parts")
    db.execute("CREATE INDEX listed_by_name ON listed_parts (name); GRANT SELECT ON listed_parts TO PUBLIC")
    db.execute("SELECT pgtrickle.stream_table_to_publication('listed_parts')")
    db.execute("SELECT pgtrickle.alter_stream_table('listed_parts', schedule => '2s')")
    db.execute("SELECT pgtrickle.allow_direct_dml('listed_parts')")
    # The new query reads a table that is not captured yet: the old rows stay, and stay fresh, until it is captured.
    new = "SELECT p.name, p.id, q.price, p.weight FROM components p JOIN tariffs q ON q.id = p.id"
    assert alter(db, "listed_parts", new) == "rebuild"
    db.execute("INSERT INTO components VALUES (21, 'p21', 21)")
    assert_equal(db, "listed_parts")
    columns = one(db, "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute"
                      " WHERE attrelid = 'listed_parts'::regclass AND attnum > 0")  # fmt: skip
    assert columns == "name id price weight"
    # What refreshes of the replaced table took says nothing about this one.
    costs = (
        "SELECT bool_or(of_replaced) AND NOT bool_and(of_replaced) FROM pgtrickle.get_refresh_history('listed_parts')"
    )
    assert one(db, costs) is True
    assert one(db, "SELECT indexdef FROM pg_indexes WHERE indexname = 'listed_by_name'") == (
        "CREATE INDEX listed_by_name ON public.listed_parts USING btree (name)"
    )
    assert one(db, "SELECT has_table_privilege('public', 'listed_parts', 'SELECT')") is True
    assert one(db, "SELECT count(*) FROM pg_class WHERE relname LIKE 'pgt\\_new%'") == 0
    published = "SELECT attnames::text FROM pg_publication_tables WHERE pubname = 'pgt_pub_listed_parts'"
    assert one(db, published) == "{name,id,price,weight}"
    shown = "SELECT publication FROM pgtrickle.pg_stat_stream_tables WHERE pgt_name = 'listed_parts'"
    assert one(db, shown) == "pgt_pub_listed_parts"
    assert one(db, "SELECT schedule FROM pgtrickle.pgt_status() WHERE name = 'public.listed_parts'") == "2s"
    assert one(db, "SELECT pgtrickle.stream_table_spec('listed_parts') ->> 'direct_dml'") == "true"
    db.execute("SELECT pgtrickle.allow_direct_dml('listed_parts', false)")
    db.execute("UPDATE tariffs SET price = 0 WHERE id < 3")
    assert_equal(db, "listed_parts")
    expected = oracle.query_result(db, "listed_parts")
    replay = oracle.TopicReplay(
        stack.addresses.kafka_bootstrap, "trickle_out.public.listed_parts", "trickle_out.schemas"
    )
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "topic"))
    root = stack.addresses.delta_root
    oracle.eventually(lambda: oracle.assert_same(expected, oracle.in_delta(root, "listed_parts"), "Delta"))


def test_create_alter_and_drop_while_it_ticks(db: Connection, stack: Stack) -> None:
    db.execute(
        "CREATE TABLE counters (id int PRIMARY KEY, v int);"
        " INSERT INTO counters SELECT i, i FROM generate_series(1, 50) i"
    )
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        with psycopg.connect(stack.addresses.database_url, autocommit=True) as writer:
            while not stop.wait(0.01):
                writer.execute("UPDATE counters SET v = v + 1 WHERE id = 1 + (random() * 49)::int")

    def manage(number: int) -> None:
        try:
            with psycopg.connect(stack.addresses.database_url, autocommit=True) as own:
                for round_ in range(2):
                    create(own, f"busy_{number}", f"SELECT id, v FROM counters WHERE v > {number}")
                    create(own, f"busy_{number}_read", f"SELECT id FROM busy_{number}")
                    for bound in range(2):
                        alter(own, f"busy_{number}", f"SELECT id, v FROM counters WHERE v > {number + bound + round_}")
                    with own.transaction(force_rollback=True):
                        own.execute("SELECT pgtrickle.drop_stream_table(%s)", (f"busy_{number}_read",))
                    own.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (f"busy_{number}",))
                create(own, f"busy_{number}", f"SELECT id, v FROM counters WHERE v > {number}")
                alter(own, f"busy_{number}", f"SELECT id, v + {number} AS v FROM counters")
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=write), *(threading.Thread(target=manage, args=(n,)) for n in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stop.set()
    threads[0].join()
    assert not failed
    assert_equal(db, "busy_0", "busy_1")


LEFT_OVER = """
SELECT relname::text FROM pg_class WHERE relname ~ '^pgt_(new|staged)_'
UNION ALL SELECT 'alteration of ' || pgt_id FROM pgtrickle.pgt_alterations
UNION ALL SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE replaces IS NOT NULL
"""


@pytest.mark.timeout(1200 if LONG else 400)
def test_a_kill_in_the_middle_of_an_alteration_leaves_the_old_query_or_the_new(db: Connection, stack: Stack) -> None:
    """One changes in place and one is built separately; 10 more kills at random with PG_TRICKLE_LONG_TESTS."""
    db.execute("CREATE TABLE shapes (id int PRIMARY KEY, kind text, size int)")
    db.execute("INSERT INTO shapes SELECT i, 'k' || i % 3, i FROM generate_series(1, 40) i")
    create(db, "resized", "SELECT id, kind, size FROM shapes")
    create(db, "reshaped", "SELECT id, kind FROM shapes")
    assert_equal(db, "resized", "reshaped")
    before = [oracle.in_postgres(db, name) for name in ("resized", "reshaped")]
    log = Path(stack.addresses.applier_log)
    # Both alterations reach their transactions, which then wait for these locks.
    with psycopg.connect(stack.addresses.database_url) as other:
        other.execute("LOCK TABLE resized IN SHARE MODE; LOCK TABLE reshaped IN ACCESS SHARE MODE")
        seen = log.stat().st_size
        assert alter(db, "resized", "SELECT id, kind, size FROM shapes WHERE id > 5") == "compatible"
        assert alter(db, "reshaped", "SELECT kind, id, size * 2 AS twice FROM shapes") == "rebuild"

        def both_wait() -> None:
            waiting = [w for w in log.read_text()[seen:].splitlines() if "alteration waits" in w]
            assert len({word for w in waiting for word in w.split() if word.startswith("table=")}) == 2, waiting

        oracle.eventually(both_wait)
        stack.kill("applier")
    assert [oracle.in_postgres(db, name) for name in ("resized", "reshaped")] == before
    _rows_are_those_of_the_query(db)
    rng = random.Random(3)
    for number in range(10 if LONG else 0):
        stack.restart("applier", wait=False)
        alter(db, "resized", f"SELECT id, kind, size FROM shapes WHERE id > {number}")
        alter(db, "reshaped", f"SELECT id, kind, size + {number} AS column_{number} FROM shapes")
        time.sleep(rng.uniform(8, 16))
        stack.kill("applier")
        _rows_are_those_of_the_query(db)
    stack.restart("applier")
    db.execute("UPDATE shapes SET kind = 'late' WHERE id % 7 = 0")
    assert_equal(db, "resized", "reshaped")
    if not LONG:
        assert one(db, "SELECT min(id) FROM resized") == 6
        assert one(db, "SELECT max(twice) FROM reshaped") == 80
    oracle.eventually(lambda: _nothing_is_left(db))
    for name in ("resized", "reshaped"):
        expected = oracle.query_result(db, name)
        replay = oracle.TopicReplay(
            stack.addresses.kafka_bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas"
        )
        oracle.eventually(lambda r=replay, e=expected: oracle.assert_same(e, r.catch_up(), "topic"))  # type: ignore[misc]
        oracle.eventually(
            lambda n=name, e=expected: oracle.assert_same(  # type: ignore[misc]
                e, oracle.in_delta(stack.addresses.delta_root, n), "Delta"
            )
        )


def _rows_are_those_of_the_query(db: Connection) -> None:
    """Check that the rows are those of the current query; their source does not change meanwhile."""
    for name in ("resized", "reshaped"):
        oracle.assert_same(oracle.query_result(db, name), oracle.in_postgres(db, name), name)


def _nothing_is_left(db: Connection) -> None:
    assert db.execute(LEFT_OVER).fetchall() == []
