"""Copies in parallel chunks: each row comes once, whatever happens to the table or the consumer meanwhile."""

from __future__ import annotations

import random
import time

import pytest

from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import LIMIT_S, Connection, Consumer, by_stamp, check, until
from tests.cdc_consumer.topic_reader import open_reader, replay, wait_for_record
from tests.cdc_consumer.writers import writing

ROWS = 8_000

BIG = f"""
CREATE TABLE big (id int PRIMARY KEY, v int, pad text);
ALTER TABLE big REPLICA IDENTITY FULL;
INSERT INTO big SELECT g, 0, repeat('x', 60) FROM generate_series(1, {ROWS}) g;
"""


def churn(connection: Connection, pick: random.Random) -> None:
    """Update, delete, insert and move rows to other pages."""
    key = pick.randrange(ROWS + 500)
    connection.execute(
        f"""
        BEGIN;
        UPDATE big SET v = v + 1 WHERE id BETWEEN {key} AND {key + 3};
        DELETE FROM big WHERE id = {pick.randrange(ROWS)};
        INSERT INTO big VALUES ({key}, -1, 'new') ON CONFLICT (id) DO UPDATE SET v = -2, pad = 'moved';
        COMMIT
        """.encode()
    )


def add(db: Connection, tables: str) -> None:
    db.execute(f"ALTER PUBLICATION pg_trickle ADD TABLE {tables}".encode())
    db.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', 'capture')")


def test_chunks_by_several_connections_under_load(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(copy_chunk_pages=7, copy_connections=4)
    db.execute(BIG)
    consumer.start()
    with writing(consumer.url, churn, sessions=2, pause_s=0.005):
        time.sleep(0.2)
        add(db, "big")
        until(lambda: consumer.metric("pg_trickle_cdc_captured_tables") == 1, "captured")
        time.sleep(0.3)
    content = check(consumer, ["public.big"])
    rows = by_stamp(content.rows["public.big"])
    (capture,) = content.captures
    copied = [row for row in rows if row.snapshot]
    assert len(copied) == capture["rows"] == len({row.values[0] for row in copied})
    assert [row.seq for row in copied] == list(range(1, len(copied) + 1))
    assert len(rows) > len(copied), "the writers should have changed it after the snapshot"


def test_a_copy_killed_after_some_of_it_was_committed(make_consumer: MakeConsumer, db: Connection) -> None:
    """A T row removes the rows of the first attempt; each row counts once."""
    consumer = make_consumer(transaction_max_s=0, copy_chunk_pages=4)
    db.execute(BIG)
    add(db, "big")
    consumer.start(wait=False)
    # Each batch is counted, then committed; so all but the last counted one are.
    until(lambda: consumer.metric("pg_trickle_cdc_captured_rows_total") > 700, "several batches")
    consumer.kill()
    db.execute("DELETE FROM big WHERE id % 2 = 0")
    db.execute("CREATE TABLE more (id int PRIMARY KEY); INSERT INTO more VALUES (1)")
    add(db, "more")
    consumer.start()
    db.execute("UPDATE big SET v = 7 WHERE id < 5")
    content = check(consumer, ["public.big", "public.more"])
    rows = by_stamp(content.rows["public.big"])
    empties = [i for i, row in enumerate(rows) if row.op == "T"]
    assert len(empties) == 1 and empties[0] > 0, "the first attempt should have committed some rows"
    assert sum(row.snapshot for row in rows[empties[0] + 1 :]) == ROWS // 2


def test_a_restart_of_the_first_load_copies_only_what_is_missing(consumer: Consumer, db: Connection) -> None:
    db.execute("CREATE TABLE aaa (id int PRIMARY KEY); INSERT INTO aaa SELECT generate_series(1, 300)")
    db.execute(BIG)
    add(db, "aaa, big")
    consumer.start(wait=False)
    # The log says so before the transaction with the copy is committed; a copy that was not is made again.
    reader, give_up = open_reader(consumer.bootstrap), time.monotonic() + LIMIT_S
    wait_for_record(
        reader,
        consumer.prefix,
        lambda record: record["kind"] == "capture" and record["table"] == "aaa",
        lambda: time.monotonic() < give_up,
    )
    consumer.kill()
    reader.close()
    db.execute("DELETE FROM aaa WHERE id = 1; INSERT INTO aaa VALUES (1000)")
    consumer.start()
    content = check(consumer, ["public.aaa", "public.big"])
    assert consumer.log.read_text().count("table captured table=public.aaa") == 1
    assert sum(row.snapshot for row in content.rows["public.aaa"]) == 300


def test_partitions_in_chunks_with_other_column_orders(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(copy_chunk_pages=2)
    db.execute(
        """
        CREATE TABLE root (id int, region text, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
        CREATE TABLE leaf_a PARTITION OF root FOR VALUES IN ('a');
        CREATE TABLE leaf_b (v text, dropped int, region text NOT NULL, id int NOT NULL);
        ALTER TABLE leaf_b DROP dropped;
        ALTER TABLE root ATTACH PARTITION leaf_b FOR VALUES IN ('b');
        CREATE TABLE middle PARTITION OF root FOR VALUES IN ('c', 'd') PARTITION BY LIST (region);
        CREATE TABLE leaf_c PARTITION OF middle FOR VALUES IN ('c');
        CREATE TABLE leaf_d PARTITION OF middle DEFAULT;
        INSERT INTO root SELECT g, (ARRAY['a','b','c','d'])[1 + g % 4], repeat('y', 30) FROM generate_series(1, 3000) g;
        ALTER PUBLICATION pg_trickle ADD TABLE root
        """
    )
    consumer.start()
    db.execute("UPDATE root SET v = 'z', region = 'd' WHERE id % 100 = 0")
    content = check(consumer, ["public.root"])
    assert set(content.rows) == {"public.root"}
    assert sum(row.snapshot for row in content.rows["public.root"]) == 3000


def test_chunks_with_a_filter_and_a_column_list(make_consumer: MakeConsumer, db: Connection) -> None:
    if db.info.server_version < 150000:
        pytest.skip("PostgreSQL 14 has neither")
    consumer = make_consumer(copy_chunk_pages=3)
    db.execute("CREATE TABLE t (hidden text, id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v + 1) STORED)")
    db.execute("INSERT INTO t SELECT repeat('secret', 9), g, g % 10 FROM generate_series(1, 3000) g")
    db.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    generated = db.info.server_version >= 180000
    db.execute(f"ALTER PUBLICATION pg_trickle ADD TABLE t ({'v, g, id' if generated else 'v, id'})".encode())
    db.execute("ALTER PUBLICATION pg_trickle SET TABLE t WHERE (v = 3 OR v = 4)") if not generated else None
    consumer.start()
    content = consumer.caught_up()
    rows = by_stamp(content.rows["public.t"])
    names = {row.columns for row in rows}
    assert names == {("id", "v", "g") if generated else ("hidden", "id", "v")}
    assert len(rows) == (3000 if generated else 600)
    where = "true" if generated else "v IN (3, 4)"
    listed = "id, v, g" if generated else "hidden, id, v"
    expected = db.execute(f"SELECT {listed} FROM t WHERE {where}".encode()).fetchall()
    assert sorted(replay(rows)) == sorted(tuple(str(value) for value in row) for row in expected)
