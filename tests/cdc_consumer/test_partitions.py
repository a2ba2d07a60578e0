"""Leaf partitions come, go and change by themselves; the topic of their root follows, and only they are copied."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from shared_schema.signed_messages import signature
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, check, connect, refused, scalar, table_now, until
from tests.cdc_consumer.test_refused_tables import stopped
from tests.cdc_consumer.topic_reader import Content, position, replay

KEY = secrets.token_bytes(32)

MODES = pytest.mark.parametrize("consumer", ["log", "sidecar"], indirect=True)

TREE = """
WITH RECURSIVE tree(relid, joined) AS (
    SELECT 'root'::regclass::oid, ''
  UNION
    SELECT i.inhrelid, concat(t.joined, '.', i.xmin)
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
)
SELECT coalesce(jsonb_object_agg(t.relid::text, t.joined), '{}') FROM tree t
JOIN pg_class c ON c.oid = t.relid WHERE c.relkind <> 'p'
"""


@pytest.fixture
def consumer(make_consumer: MakeConsumer, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    yield make_consumer(mode=getattr(request, "param", "log"), heartbeat_ms=200)


@pytest.fixture
def root(db: Connection) -> Connection:
    """A partitioned table with two filled leaves, and the key of signed messages."""
    db.execute("CREATE SCHEMA pgtrickle; CREATE TABLE pgtrickle.pgt_secret (secret bytea)")
    db.execute("INSERT INTO pgtrickle.pgt_secret VALUES (%s)", (KEY,))
    db.execute(
        """
        CREATE TABLE root (id int, region text, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
        CREATE TABLE leaf_a PARTITION OF root FOR VALUES IN ('a');
        CREATE TABLE leaf_b PARTITION OF root FOR VALUES IN ('b');
        INSERT INTO root SELECT g, (ARRAY['a', 'b'])[1 + g % 2], 'v' || g FROM generate_series(1, 20) g;
        ALTER PUBLICATION pg_trickle ADD TABLE root
        """
    )
    return db


def alter(db: Connection, statement: LiteralString, created: LiteralString | None = None) -> None:
    """Run DDL and tell what it did to the leaves of the root in the same transaction, as the event trigger does."""
    with db.transaction():
        before = _tree(db)
        db.execute(statement)
        after, (xid,) = _tree(db), _one(db, "SELECT pg_current_xact_id()::xid::text")
        tag, relids = (
            ("CREATE TABLE", [scalar(db, f"SELECT '{created}'::regclass::int8")]) if created else ("ALTER", [])
        )
        joined = {leaf: by for leaf, by in after.items() if before.get(leaf) != by}
        body = json.dumps(
            {
                "tag": tag,
                "relids": relids,
                "joined": {str(scalar(db, "SELECT 'root'::regclass::int8")): joined},
                "gone": [int(leaf) for leaf in before if leaf not in after],
            }
        )
        content = f"ddl {signature('ddl', body, KEY, int(str(xid)))} {body}"
        db.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', %s)", (content.encode(),))


def _tree(db: Connection) -> dict[str, str]:
    (leaves,) = _one(db, TREE)
    assert isinstance(leaves, dict)
    return leaves


def _one(db: Connection, query: LiteralString) -> tuple[object, ...]:
    row = db.execute(query).fetchone()
    assert row is not None
    return row


def copied(content: Content) -> int:
    return sum(row.snapshot and row.op == "I" for row in content.rows["public.root"])


def removed(content: Content) -> list[str | None]:
    """Return the leaves of the T rows."""
    return [row.values[-1] for row in by_stamp(content.rows["public.root"]) if row.op == "T" and row.values]


@MODES
def test_announced_changes_of_the_leaves(consumer: Consumer, root: Connection) -> None:
    consumer.start()
    assert copied(check(consumer, ["public.root"])) == 20
    oids = {name: str(scalar(root, f"SELECT '{name}'::regclass::int8")) for name in ("leaf_a", "leaf_b")}

    root.execute("TRUNCATE leaf_a; INSERT INTO root VALUES (100, 'a', 'new'); UPDATE root SET v = 'w' WHERE id = 1")
    assert removed(check(consumer, ["public.root"])) == [oids["leaf_a"]]

    alter(root, "ALTER TABLE root DETACH PARTITION leaf_b")
    content = check(consumer, ["public.root"])
    assert removed(content)[1:] == [oids["leaf_b"]] and copied(content) == 20

    # Nobody sees what is written to a detached table, until it is attached again.
    root.execute("DELETE FROM leaf_b WHERE id < 5; INSERT INTO leaf_b VALUES (200, 'b', 'aside')")
    check(consumer, ["public.root"])
    alter(root, "ALTER TABLE root ATTACH PARTITION leaf_b FOR VALUES IN ('b')")
    root.execute("UPDATE root SET v = v || '!'")
    content = check(consumer, ["public.root"])
    assert copied(content) == 20 + 9, "only the leaf that joined was copied"

    # A new leaf is empty: nothing is copied, also when rows follow in the same transaction.
    with root.transaction():
        alter(root, "CREATE TABLE leaf_c PARTITION OF root FOR VALUES IN ('c')", created="leaf_c")
        root.execute("INSERT INTO root VALUES (300, 'c', 'same'), (301, 'c', 'transaction')")
    root.execute("UPDATE root SET region = 'c' WHERE id = 200")
    content = check(consumer, ["public.root"])
    assert copied(content) == 29
    alter(root, "DROP TABLE leaf_c")
    check(consumer, ["public.root"])

    # A filled tree of partitions, with its columns in another order.
    root.execute(
        """
        CREATE TABLE middle (v text, dropped int, region text NOT NULL, id int NOT NULL) PARTITION BY LIST (region);
        ALTER TABLE middle DROP dropped;
        CREATE TABLE leaf_d PARTITION OF middle FOR VALUES IN ('d');
        CREATE TABLE leaf_e PARTITION OF middle FOR VALUES IN ('e');
        INSERT INTO middle SELECT 'x' || g, (ARRAY['d', 'e'])[1 + g % 2], g FROM generate_series(400, 409) g
        """
    )
    alter(root, "ALTER TABLE root ATTACH PARTITION middle FOR VALUES IN ('d', 'e')")
    root.execute("INSERT INTO root VALUES (410, 'd', 'later'); UPDATE root SET region = 'a' WHERE id = 401")
    content = check(consumer, ["public.root"])
    assert copied(content) == 39
    root.execute("TRUNCATE root")
    content = check(consumer, ["public.root"])
    assert table_now(root, "root").total() == 0
    assert all(row.op != "T" or row.values for row in content.rows["public.root"]), "no T row of the whole table"
    assert consumer.metric("pg_trickle_cdc_reconnects_total") == 0


@MODES
def test_changes_that_nobody_announced(consumer: Consumer, root: Connection) -> None:
    consumer.start()
    check(consumer, ["public.root"])

    def follows() -> bool:
        content = consumer.caught_up()
        return replay(by_stamp(content.rows["public.root"])) == table_now(root, "root")

    for statement in (
        "ALTER TABLE root DETACH PARTITION leaf_b",
        "DELETE FROM leaf_b WHERE id < 5; ALTER TABLE root ATTACH PARTITION leaf_b FOR VALUES IN ('b')",
        "CREATE TABLE leaf_c PARTITION OF root FOR VALUES IN ('c'); INSERT INTO root VALUES (300, 'c', 'new')",
        "DROP TABLE leaf_a; CREATE TABLE leaf_a PARTITION OF root DEFAULT; INSERT INTO root VALUES (1, 'x', 'y')",
        "ALTER TABLE root DETACH PARTITION leaf_c; UPDATE leaf_c SET v = 'aside';"
        "ALTER TABLE root ATTACH PARTITION leaf_c FOR VALUES IN ('c')",
    ):
        root.execute(statement)
        until(follows, statement, limit_s=20)
    content = check(consumer, ["public.root"])
    assert copied(content) == 20 + 8 + 1 + 1 + 1


def test_partitions_that_left_before_their_rows_are_read(make_consumer: MakeConsumer, root: Connection) -> None:
    """Nobody told that they came or left, and the catalog knows neither of them any more."""
    # One Kafka transaction per commit: a frontier could stand between any two.
    consumer = make_consumer(batch_max_rows=1, heartbeat_ms=60_000)
    root.execute("CREATE TABLE alike (id int, region text, v text); ALTER PUBLICATION pg_trickle ADD TABLE alike")
    consumer.start()
    check(consumer, ["public.root"])
    # It lags. A start would compare the catalog first, and copy the table again.
    consumer.process.send_signal(signal.SIGSTOP)

    def end_of_log() -> int:
        return position(str(scalar(root, "SELECT pg_current_wal_insert_lsn()::text")))

    spans: list[tuple[int, int]] = []
    for name, leave in (("leaf_c", "DROP TABLE leaf_c"), ("leaf_d", "ALTER TABLE root DETACH PARTITION leaf_d")):
        root.execute(f"CREATE TABLE {name} PARTITION OF root FOR VALUES IN ('{name}')".encode())
        root.execute(
            "UPDATE root SET region = %s WHERE id BETWEEN %s AND %s", (name, 1 + 5 * len(spans), 4 + 5 * len(spans))
        )
        moved = end_of_log()
        root.execute("INSERT INTO alike VALUES (1, %s, 'no partition')", (name,))
        root.execute("UPDATE root SET v = 'later' WHERE id = 20")
        before_leave = end_of_log()
        root.execute(leave)
        spans.append((moved, before_leave))
    # Known ones: one is gone, the other one has other columns now.
    root.execute("UPDATE root SET v = 'last' WHERE id > 10; DROP TABLE leaf_b; INSERT INTO root VALUES (100, 'a', 'z')")
    root.execute("ALTER TABLE root DETACH PARTITION leaf_a; ALTER TABLE leaf_a DROP v, ADD w int; DROP TABLE leaf_d")
    consumer.process.send_signal(signal.SIGCONT)

    def follows() -> bool:
        content = consumer.caught_up()
        return replay(by_stamp(content.rows["public.root"])) == table_now(root, "root")

    until(follows, "the rows of partitions that left are gone", limit_s=20)
    check(consumer, ["public.root", "public.alike"])
    shown = [frontier for frontier in _progress(consumer) for begin, end in spans if begin <= frontier <= end]
    assert not shown, "a frontier stands where rows of a partition are missing"


def test_a_partition_that_left_had_other_columns(make_consumer: MakeConsumer, root: Connection) -> None:
    """Its table was altered before, and no row said so yet."""
    consumer = make_consumer(batch_max_rows=1, heartbeat_ms=60_000)
    root.execute("CREATE TABLE other (a int, b text); ALTER PUBLICATION pg_trickle ADD TABLE other")
    consumer.start()
    check(consumer, ["public.root"])

    def end_of_log() -> int:
        return position(str(scalar(root, "SELECT pg_current_wal_insert_lsn()::text")))

    def follows() -> bool:
        content = consumer.caught_up()
        return replay(by_stamp(content.rows["public.root"])) == table_now(root, "root")

    for number, ddl in enumerate(("ADD w int", "DROP w", "ALTER v TYPE varchar")):
        # Rows with other columns could not be compared.
        root.execute("DELETE FROM root")
        check(consumer, ["public.root"])
        consumer.process.send_signal(signal.SIGSTOP)
        root.execute(f"ALTER TABLE root {ddl}".encode())
        root.execute("CREATE TABLE leaf_c PARTITION OF root FOR VALUES IN ('c')")
        root.execute("INSERT INTO root VALUES (%s, 'c', 'in a partition that leaves')", (number,))
        inserted = end_of_log()
        root.execute("INSERT INTO other VALUES (1, 'no partition')")
        before_drop = end_of_log()
        root.execute("DROP TABLE leaf_c")
        consumer.process.send_signal(signal.SIGCONT)
        until(follows, f"the rows of the partition are gone after {ddl}", limit_s=20)
        check(consumer, ["public.root", "public.other"])
        shown = [frontier for frontier in _progress(consumer) if inserted <= frontier <= before_drop]
        assert not shown, f"a frontier stands where a row is missing, after {ddl}"
        # Now the stream has the columns.
        root.execute("INSERT INTO root VALUES (%s, 'a', 'stays')", (number,))
        check(consumer, ["public.root", "public.other"])


def test_detached_while_the_table_is_used(consumer: Consumer, root: Connection) -> None:
    """DETACH CONCURRENTLY takes two transactions: the rows leave with the first one."""
    consumer.start()
    check(consumer, ["public.root"])
    with connect(consumer.url) as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM root")
        # It waits for the other transaction, and is given up: the partition stays half detached.
        root.execute("SET statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            root.execute("ALTER TABLE root DETACH PARTITION leaf_b CONCURRENTLY")
        root.execute("RESET statement_timeout")
        assert scalar(root, "SELECT count(*) FROM root") == 10
        until(lambda: len(removed(consumer.caught_up())) == 1, "the half detached leaf left")
        check(consumer, ["public.root"])
    root.execute("ALTER TABLE root DETACH PARTITION leaf_b FINALIZE; INSERT INTO root VALUES (50, 'a', 'z')")
    assert len(removed(check(consumer, ["public.root"]))) == 1


def test_the_frontier_waits_for_a_leaf_across_a_restart(consumer: Consumer, root: Connection) -> None:
    consumer.start()
    check(consumer, ["public.root"])
    root.execute(
        "CREATE TABLE leaf_c (id int NOT NULL, region text NOT NULL, v text); INSERT INTO leaf_c VALUES (1, 'c')"
    )
    with connect(consumer.url) as other:
        # The export waits for this transaction.
        other.execute("BEGIN; SELECT pg_current_xact_id()")
        before = position(str(scalar(root, "SELECT pg_current_wal_insert_lsn()::text")))
        alter(root, "ALTER TABLE root ATTACH PARTITION leaf_c FOR VALUES IN ('c')")
        attached = position(str(scalar(root, "SELECT pg_current_wal_insert_lsn()::text")))
        root.execute("INSERT INTO root VALUES (2, 'c', 'x'), (500, 'a', 'y')")
        for _ in range(2):
            time.sleep(1.0)
            latest = [line for line in _progress(consumer) if line >= before]
            assert all(frontier < attached for frontier in latest), "the frontier passed a leaf that is not copied"
            consumer.kill()
            consumer.start(wait=False)
        other.execute("COMMIT")
    content = check(consumer, ["public.root"])
    assert copied(content) == 20 + 2


def _progress(consumer: Consumer) -> list[int]:
    from tests.cdc_consumer.topic_reader import open_reader, read_topics

    reader = open_reader(consumer.bootstrap)
    try:
        return [position(record["frontier"]) for record in read_topics(reader, consumer.prefix).progress]
    finally:
        reader.close()


def test_an_old_row_is_judged_by_the_identity_of_its_leaf(consumer: Consumer, root: Connection) -> None:
    root.execute("ALTER TABLE root REPLICA IDENTITY FULL; ALTER TABLE leaf_a REPLICA IDENTITY FULL")
    consumer.start()
    root.execute("DELETE FROM root WHERE id IN (1, 2)")
    content = check(consumer, ["public.root"])
    deleted = {row.values[1]: row.unknown for row in content.rows["public.root"] if row.op == "D"}
    assert deleted == {"a": frozenset(), "b": frozenset({2})}


def test_a_message_that_is_not_signed_removes_nothing(consumer: Consumer, root: Connection) -> None:
    consumer.start()
    leaf = scalar(root, "SELECT 'leaf_a'::regclass::int8")
    body = json.dumps({"tag": "ALTER", "relids": [], "gone": [leaf]})
    for content in (f"ddl {'0' * 64} {body}", f"ddl {signature('ddl', body, KEY, 1)} {body}"):
        root.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', %s)", (content.encode(),))
    assert removed(check(consumer, ["public.root"])) == []
    assert "is not signed" in consumer.log.read_text()


def test_a_foreign_publication_via_the_root_is_refused(make_consumer: MakeConsumer, root: Connection) -> None:
    root.execute("CREATE PUBLICATION theirs FOR TABLE root WITH (publish_via_partition_root = true)")
    text = refused(make_consumer(publications="theirs"))
    assert "via the root" in text and "publish_via_partition_root = false" in text


def test_our_own_publication_is_altered(consumer: Consumer, root: Connection) -> None:
    root.execute("ALTER PUBLICATION pg_trickle SET (publish_via_partition_root = true)")
    consumer.start()
    assert scalar(root, "SELECT pubviaroot FROM pg_publication WHERE pubname = 'pg_trickle'") is False
    root.execute("TRUNCATE leaf_a")
    assert len(removed(check(consumer, ["public.root"]))) == 1


def test_published_via_the_root_for_some_time(consumer: Consumer, root: Connection) -> None:
    """Such rows have no leaf: the frontier stays before them until all of the table is copied again."""
    consumer.start()
    check(consumer, ["public.root"])
    root.execute("ALTER PUBLICATION pg_trickle SET (publish_via_partition_root = true)")
    root.execute("INSERT INTO root VALUES (600, 'a', 'no leaf')")
    until(lambda: scalar(root, "SELECT pubviaroot FROM pg_publication") is False, "the publication is ours to alter")
    root.execute("INSERT INTO root VALUES (601, 'b', 'leaf')")
    content = check(consumer, ["public.root"])
    assert all(row.values[-1:] != (None,) for row in content.rows["public.root"] if row.op != "T")


def test_a_table_with_a_topic_of_its_own_joins_and_leaves(consumer: Consumer, root: Connection) -> None:
    """Its topic says that it stopped; when it leaves it is copied again, with what happened to it as a partition."""
    root.execute(
        """
        CREATE TABLE alone (id int, region text, v text, PRIMARY KEY (id, region));
        INSERT INTO alone VALUES (700, 'x', 'before'), (701, 'x', 'before');
        ALTER PUBLICATION pg_trickle ADD TABLE alone
        """
    )
    consumer.start()
    check(consumer, ["public.root", "public.alone"])
    alter(root, "ALTER TABLE root ATTACH PARTITION alone FOR VALUES IN ('x')")
    root.execute("INSERT INTO root VALUES (702, 'x', 'inside'); DELETE FROM root WHERE id = 700")
    content = check(consumer, ["public.root"])
    stopped = [record["stopped"] for record in content.captures if "stopped" in record]
    assert stopped == ["it is a partition of public.root, whose topic has its changes"]
    alter(root, "ALTER TABLE root DETACH PARTITION alone")
    root.execute("UPDATE alone SET v = 'outside' WHERE id = 701")

    def is_copied() -> bool:
        rows = consumer.caught_up().rows["public.alone"]
        return replay(by_stamp(rows)) == table_now(root, "alone")

    until(is_copied, "the table that left is captured again", limit_s=20)
    root.execute("INSERT INTO alone VALUES (703, 'x', 'later')")
    check(consumer, ["public.root", "public.alone"])


@pytest.mark.parametrize("consumer", ["sidecar"], indirect=True)
def test_a_table_that_an_older_version_captured_is_copied_once_more(consumer: Consumer, root: Connection) -> None:
    """Such a version published via the root, and its records do not name the leaves."""
    consumer.start()
    check(consumer, ["public.root"])
    consumer.stop()
    root.execute(
        """
        UPDATE pgtrickle_changes.progress SET record = record - 'leaves' - 'joined' WHERE record ->> 'kind' = 'capture';
        ALTER PUBLICATION pg_trickle SET (publish_via_partition_root = true)
        """
    )
    root.execute("INSERT INTO root VALUES (800, 'a', 'while nothing ran'); DELETE FROM root WHERE id = 1")
    (before,) = [record["frontier"] for record in _buffered(consumer) if record["kind"] == "progress"]
    with connect(consumer.url) as other:
        # The copy waits for this transaction, and the frontier for the copy.
        other.execute("BEGIN; SELECT pg_current_xact_id()")
        consumer.start(wait=False)
        until(lambda: "is copied again" in consumer.log.read_text(), "noticed")
        root.execute("INSERT INTO root VALUES (801, 'b', 'meanwhile')")
        time.sleep(1.0)
        assert [record["frontier"] for record in _buffered(consumer) if record["kind"] == "progress"] == [before]
    content = check(consumer, ["public.root"])
    assert copied(content) == 20 + 21
    (record,) = content.captures
    assert len(record["leaves"]) == 2 and not record.get("awaited")
    root.execute("TRUNCATE leaf_b")
    assert len(removed(check(consumer, ["public.root"]))) == 1


def _buffered(consumer: Consumer) -> list[dict[str, object]]:
    with connect(consumer.url) as connection:
        return [record for (record,) in connection.execute("SELECT record FROM pgtrickle_changes.progress")]


def test_partitions_of_which_the_stream_does_not_have_everything(make_consumer: MakeConsumer, root: Connection) -> None:
    """They stop their table, and neither another one nor the consumer; partitions of temporary tables are nobody's."""
    root.execute(
        """
        CREATE TABLE other (id int PRIMARY KEY);
        CREATE TABLE far (id int, region text) PARTITION BY LIST (region);
        CREATE TABLE near PARTITION OF far FOR VALUES IN ('n');
        CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
        CREATE FOREIGN TABLE far_a PARTITION OF far FOR VALUES IN ('a') SERVER nowhere;
        CREATE PUBLICATION everything FOR ALL TABLES;
        CREATE TEMP TABLE of_a_session (id int) PARTITION BY LIST (id);
        CREATE TEMP TABLE of_a_session_1 PARTITION OF of_a_session FOR VALUES IN (1)
        """
    )
    consumer = make_consumer(publications="everything", heartbeat_ms=300)
    consumer.start()
    assert "far_a is a foreign table" in stopped(consumer, "far")
    check(consumer, ["public.root", "public.other"])
    root.execute("CREATE UNLOGGED TABLE leaf_u PARTITION OF root FOR VALUES IN ('u')")
    assert "leaf_u is unlogged" in stopped(consumer, "root")
    root.execute("DROP TABLE leaf_u; INSERT INTO other VALUES (1)")
    until(lambda: not captured_last(consumer, "root").get("stopped"), "captured again")
    root.execute("DROP FOREIGN TABLE far_a; INSERT INTO far VALUES (1, 'n')")
    until(lambda: not captured_last(consumer, "far").get("stopped"), "captured after all")
    content = check(consumer, ["public.root", "public.far", "public.other"])
    assert not [record for record in content.captures if "of_a_session" in record["table"]]


def test_a_partition_with_a_row_filter_of_its_own(make_consumer: MakeConsumer, root: Connection) -> None:
    if root.info.server_version < 150000:
        pytest.skip("this version has no row filters")
    root.execute(
        "CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION mine FOR TABLE root, leaf_a WHERE (id > 5), other"
    )
    consumer = make_consumer(publications="mine", heartbeat_ms=300)
    consumer.start()
    assert "leaf_a has a row filter" in stopped(consumer, "root")
    root.execute("INSERT INTO other VALUES (1)")
    check(consumer, ["public.other"])
    root.execute("ALTER PUBLICATION mine DROP TABLE leaf_a")
    until(lambda: not captured_last(consumer, "root").get("stopped"), "captured after all")
    check(consumer, ["public.root", "public.other"])


def captured_last(consumer: Consumer, table: str) -> dict[str, object]:
    """Return the newest capture record of a table."""
    return [record for record in consumer.caught_up().captures if record["table"] == table][-1]
