"""Any sequence of transactions, replayed from the topics by an independent reader, equals the tables."""

from __future__ import annotations

import random

import pytest

from tests.cdc_consumer.conftest import MODES, MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, check
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction


@MODES
@pytest.mark.parametrize("seed", [1])
def test_random_history(consumer: Consumer, db: Connection, seed: int) -> None:
    pick = random.Random(seed)
    db.execute(SCHEMA)
    for _ in range(10):
        run_transaction(db, pick)
    consumer.start()
    for _ in range(3):
        for _ in range(40):
            run_transaction(db, pick)
        content = check(consumer, TABLES)
    assert {row.op for rows in content.rows.values() for row in rows} == {"I", "D", "T"}
    assert consumer.stop() == 0


def test_several_partitions_keep_each_keys_order(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer, pick = make_consumer(topic_partitions=3), random.Random(5)
    db.execute(SCHEMA)
    consumer.start()
    for _ in range(60):
        run_transaction(db, pick)
    content = check(consumer, TABLES)
    rows = content.rows["public.full_key"]
    assert len({row.partition for row in rows}) == 3
    home: dict[bytes, int] = {}
    for row in rows:
        if row.key is not None:
            assert home.setdefault(row.key, row.partition) == row.partition


def test_what_an_update_says(consumer: Consumer, db: Connection) -> None:
    db.execute(SCHEMA)
    consumer.start()
    db.execute("INSERT INTO full_key VALUES (1, 'a', 1), (2, 'b', 2)")
    db.execute("INSERT INTO default_key VALUES (1, 'a', repeat('x', 9000))")
    db.execute("BEGIN; UPDATE full_key SET id = 3 WHERE id = 1; UPDATE default_key SET v = 'z'; COMMIT")
    content = check(consumer, TABLES)
    before, after = [row for row in by_stamp(content.rows["public.full_key"]) if row.changed is not None]
    assert (before.op, before.values[0], before.changed) == ("D", "1", frozenset({0}))
    assert (after.op, after.values[0], after.changed) == ("I", "3", frozenset({0}))
    assert before.key != after.key and before.key is not None
    before, after = [row for row in by_stamp(content.rows["public.default_key"]) if row.changed is not None]
    assert (before.unknown, after.unknown) == (frozenset({1, 2}), frozenset({2}))
    assert before.changed == after.changed == frozenset({1})
    assert before.key == after.key
    assert all(row.key is None for row in content.rows["public.keyless"])


@MODES
def test_a_new_column_starts_a_new_schema_version(consumer: Consumer, db: Connection) -> None:
    db.execute(SCHEMA)
    consumer.start()
    db.execute("INSERT INTO full_key VALUES (1, 'a', 1)")
    db.execute("BEGIN; ALTER TABLE full_key ADD extra int; INSERT INTO full_key VALUES (2, 'b', 2, 7); COMMIT")
    db.execute("ALTER TABLE full_key DROP v")
    db.execute("INSERT INTO full_key VALUES (3, 3, 8)")
    rows = by_stamp(consumer.caught_up().rows["public.full_key"])
    assert [(row.columns, row.values) for row in rows] == [
        (("id", "v", "n"), ("1", "a", "1.00")),
        (("id", "v", "n", "extra"), ("2", "b", "2.00", "7")),
        (("id", "n", "extra"), ("3", "3.00", "8")),
    ]


@MODES
def test_partitions_arrive_under_their_root(consumer: Consumer, db: Connection) -> None:
    db.execute(
        """
        CREATE TABLE root (id int, region text, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
        CREATE TABLE leaf_a PARTITION OF root FOR VALUES IN ('a');
        CREATE TABLE leaf_b (v text, dropped int, region text NOT NULL, id int NOT NULL);
        ALTER TABLE leaf_b DROP dropped;
        ALTER TABLE root ATTACH PARTITION leaf_b FOR VALUES IN ('b');
        ALTER TABLE leaf_a REPLICA IDENTITY FULL;
        INSERT INTO root VALUES (1, 'a', 'x'), (2, 'b', 'y');
        ALTER PUBLICATION pg_trickle ADD TABLE root
        """
    )
    consumer.start()
    db.execute("INSERT INTO root VALUES (3, 'a', 'z'), (4, 'b', 'w')")
    db.execute("UPDATE root SET v = v || '!'")
    db.execute("UPDATE root SET region = 'b' WHERE id = 1")
    db.execute("DELETE FROM root WHERE id = 4")
    content = check(consumer, ["public.root"])
    assert set(content.rows) == {"public.root"}
    db.execute("TRUNCATE root")
    check(consumer, ["public.root"])
