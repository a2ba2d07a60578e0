"""Leaf partitions come, go and change by themselves; the topic of their root follows, and only they are copied."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from shared_schema.signed_messages import signature
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, check, connect, refused, scalar, table_now, until
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
    """Run DDL and tell the leaves of the root in the same transaction, as the event trigger does."""
    with db.transaction():
        db.execute(statement)
        (leaves,), (xid,) = db.execute(TREE).fetchone() or ((),), _one(db, "SELECT pg_current_xact_id()::xid::text")
        tag, relids = (
            ("CREATE TABLE", [scalar(db, f"SELECT '{created}'::regclass::int8")]) if created else ("ALTER", [])
        )
        saw, saw_at = _one(db, "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text")
        roots = {str(scalar(db, "SELECT 'root'::regclass::int8")): leaves}
        body = json.dumps({"tag": tag, "relids": relids, "roots": roots, "saw": saw, "saw_at": saw_at})
        content = f"ddl {signature('ddl', body, KEY, int(str(xid)))} {body}"
        db.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', %s)", (content.encode(),))


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


def test_a_message_of_an_overlapping_transaction_removes_nothing(make_consumer: MakeConsumer, root: Connection) -> None:
    """It does not know a leaf that another transaction attached meanwhile, and is committed after it."""
    # No look at the catalog before the end of the test would correct it.
    consumer = make_consumer(heartbeat_ms=60_000)
    consumer.start()
    check(consumer, ["public.root"])
    with connect(consumer.url) as other:
        with other.transaction():
            alter(other, "ALTER TABLE leaf_a SET (fillfactor = 90)")
            alter(root, "CREATE TABLE leaf_c PARTITION OF root FOR VALUES IN ('c')", created="leaf_c")
            root.execute("INSERT INTO root VALUES (300, 'c', 'kept')")
        root.execute("INSERT INTO root VALUES (301, 'c', 'kept too')")
    content = check(consumer, ["public.root"])
    # It is copied once more, which begins with a T row.
    assert len(removed(content)) == 1 and copied(content) == 20 + 2


def test_a_leaf_that_was_dropped_before_its_rows_were_read(consumer: Consumer, root: Connection) -> None:
    """Its rows come from a time when it was there. Nobody can look it up any more."""
    consumer.start()
    check(consumer, ["public.root"])
    assert consumer.stop() == 0
    root.execute("UPDATE root SET v = 'last words' WHERE region = 'b'; INSERT INTO root VALUES (50, 'b', 'more')")
    root.execute(
        "CREATE TABLE leaf_c PARTITION OF root FOR VALUES IN ('c'); INSERT INTO root VALUES (60, 'c', 'never seen')"
    )
    root.execute("DROP TABLE leaf_b; DROP TABLE leaf_c; INSERT INTO root VALUES (70, 'a', 'stays')")
    consumer.start()
    until(lambda: len(removed(consumer.caught_up())) == 1, "the leaf is gone")
    content = check(consumer, ["public.root"])
    assert copied(content) == 20
    rows = [row for row in content.rows["public.root"] if row.op == "I"]
    assert any("last words" in row.values for row in rows) and not any("never seen" in row.values for row in rows)


def test_a_leaf_that_may_not_be_read_stops_its_table_alone(
    make_consumer: MakeConsumer, root: Connection, database: str
) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    root.execute(
        f"""
        CREATE TABLE other (id int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE other;
        CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'secret';
        GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
        GRANT USAGE ON SCHEMA pgtrickle TO {role}; GRANT SELECT ON pgtrickle.pgt_secret TO {role}
        """.encode()
    )
    url = psycopg.conninfo.make_conninfo(database, user=role, password="secret")
    consumer = make_consumer(heartbeat_ms=200, database_url=url)
    consumer.start()
    check(consumer, ["public.root", "public.other"])
    root.execute(
        "CREATE TABLE staged (id int NOT NULL, region text NOT NULL, v text); INSERT INTO staged VALUES (1, 's')"
    )
    alter(root, "ALTER TABLE root ATTACH PARTITION staged FOR VALUES IN ('s')")

    def stopped() -> str:
        return str(
            next((c.get("stopped", "") for c in consumer.caught_up().captures[::-1] if c["table"] == "root"), "")
        )

    try:
        until(lambda: "may not read public.staged" in stopped(), "its readers are told", limit_s=15)
        root.execute("INSERT INTO other VALUES (1)")
        check(consumer, ["public.other"])
        assert consumer.stop() == 0
        root.execute(f"GRANT SELECT ON staged TO {role}".encode())
        consumer.start()
        until(lambda: stopped() == "", "captured again")
        check(consumer, ["public.root", "public.other"])
    finally:
        consumer.end()
        root.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_temporary_partitioned_tables_of_others(make_consumer: MakeConsumer, root: Connection) -> None:
    """A publication of all tables does not have them."""
    root.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    consumer = make_consumer(heartbeat_ms=200, publications="everything")
    consumer.start()
    check(consumer, ["public.root"])
    with connect(consumer.url) as other:
        other.execute("CREATE TEMP TABLE mine (id int) PARTITION BY LIST (id)")
        other.execute("CREATE TEMP TABLE mine_1 PARTITION OF mine DEFAULT; INSERT INTO mine VALUES (1)")
        time.sleep(1.0)
        root.execute("INSERT INTO root VALUES (90, 'a', 'x')")
        assert set(check(consumer, ["public.root"]).rows) >= {"public.root"}
        assert not [c for c in consumer.caught_up().captures if c["table"] == "mine"]
    assert consumer.metric("pg_trickle_cdc_reconnects_total") == 0


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
    oid = scalar(root, "SELECT 'root'::regclass::int8")
    body = json.dumps({"tag": "ALTER", "relids": [], "roots": {str(oid): {}}})
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
