"""DDL on partitions with the event triggers in place: each transaction tells what it did, never what it only saw.

The consumers here compare the catalog rarely, so nothing but the messages corrects them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from applier.catalog.install import install_catalog
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, connect, scalar, until
from tests.cdc_consumer.test_partitions import copied, removed
from tests.cdc_consumer.test_refused_tables import stopped

TABLES = """
CREATE TABLE root (id int, region text, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE leaf_a PARTITION OF root FOR VALUES IN ('a');
CREATE TABLE leaf_b PARTITION OF root FOR VALUES IN ('b');
CREATE TABLE middle PARTITION OF root FOR VALUES IN ('m', 'n') PARTITION BY LIST (region);
CREATE TABLE leaf_m PARTITION OF middle FOR VALUES IN ('m');
CREATE TABLE bystander (id int PRIMARY KEY);
INSERT INTO root SELECT g, (ARRAY['a', 'b', 'm'])[1 + g % 3], 'v' || g FROM generate_series(1, 30) g
"""


@pytest.fixture
def installed(database: str) -> Iterator[Connection]:
    """Yield a session where a stream table reads a partitioned table."""
    with connect(database) as db:
        install_catalog(db)
        db.execute(TABLES)
        db.execute(
            "SELECT pgtrickle.create_stream_table('st', 'SELECT region, count(*) AS n FROM root GROUP BY region')"
        )
        yield db


@pytest.fixture
def consumer(make_consumer: MakeConsumer, installed: Connection) -> Consumer:
    consumer = make_consumer(heartbeat_ms=60_000)
    consumer.start()
    check(consumer, ["public.root"])
    return consumer


def oid(db: Connection, name: str) -> str:
    return str(scalar(db, f"SELECT '{name}'::regclass::int8"))


def test_a_partition_that_another_session_attached_meanwhile_stays(consumer: Consumer, installed: Connection) -> None:
    db = installed
    with connect(consumer.url) as other:
        for begin, ddl in (
            ("BEGIN", "ALTER TABLE leaf_a SET (fillfactor = 90)"),
            ("BEGIN", "CREATE TABLE leaf_n PARTITION OF middle FOR VALUES IN ('n')"),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ", "CREATE TABLE leaf_z PARTITION OF root FOR VALUES IN ('z')"),
            ("BEGIN", "DROP TABLE bystander"),
        ):
            number = scalar(db, "SELECT count(*) FROM pg_inherits")
            region = f"r{number}"
            other.execute(begin.encode())
            other.execute("SELECT 1")
            if "root" not in ddl:
                other.execute(ddl.encode())
            with db.transaction(), db.transaction():
                # In a subtransaction, as tools that make partitions do it.
                db.execute(f"CREATE TABLE leaf_{region} PARTITION OF root FOR VALUES IN ('{region}')".encode())
            db.execute(f"INSERT INTO root VALUES (1000 + {number}, '{region}', 'stays')".encode())
            if "root" in ddl:
                other.execute(ddl.encode())
            other.execute("COMMIT")
            db.execute(f"INSERT INTO root VALUES (2000 + {number}, '{region}', 'stays too')".encode())
            content = check(consumer, ["public.root"])
            assert removed(content) == [] and copied(content) == 30, ddl


def test_what_leaves_in_every_way(consumer: Consumer, installed: Connection) -> None:
    db, left = installed, []
    for name, statements in (
        # Created, filled and gone before anybody has looked.
        (
            "leaf_n",
            ["CREATE TABLE leaf_n PARTITION OF middle FOR VALUES IN ('n')", "INSERT INTO root VALUES (60, 'n', 'x')"],
        ),
        ("leaf_b", []),
    ):
        for statement in statements:
            db.execute(statement.encode())
        check(consumer, ["public.root"])
        left.append(oid(db, name))
        db.execute(f"DROP TABLE {name}".encode())
        assert removed(check(consumer, ["public.root"])) == left
    left.append(oid(db, "leaf_a"))
    db.execute("ALTER TABLE root DETACH PARTITION leaf_a; UPDATE leaf_a SET v = 'aside'")
    content = check(consumer, ["public.root"])
    assert removed(content) == left and copied(content) == 30
    db.execute("ALTER TABLE root ATTACH PARTITION leaf_a FOR VALUES IN ('a')")
    assert copied(check(consumer, ["public.root"])) == 40
    # The whole of a smaller tree, and again. The consumer looks at what is left.
    db.execute("ALTER TABLE root DETACH PARTITION middle")
    check(consumer, ["public.root"])
    db.execute("DELETE FROM middle WHERE id < 10")
    db.execute("ALTER TABLE root ATTACH PARTITION middle FOR VALUES IN ('m', 'n')")
    db.execute("INSERT INTO root VALUES (70, 'm', 'inside')")
    check(consumer, ["public.root"])
    # Its first transaction is noticed by comparison, its second one tells.
    db.execute("ALTER TABLE root DETACH PARTITION leaf_a CONCURRENTLY")
    check(consumer, ["public.root"])


def test_ddl_on_a_leaf_says_nothing_of_the_others(consumer: Consumer, installed: Connection) -> None:
    for n in range(60):
        installed.execute(f"CREATE TABLE many_{n} PARTITION OF root FOR VALUES IN ('x{n}')".encode())

    def written(statement: str) -> int:
        installed.execute(statement.encode())
        sizes = [
            len(str(record["content"]))
            for record in consumer.caught_up().control
            if record.get("prefix") == "pg_trickle" and str(record["content"]).startswith("ddl")
        ]
        return sizes[-1]

    one, all_of_it = (
        written("ALTER TABLE many_7 SET (fillfactor = 70)"),
        written("ALTER TABLE root ALTER v SET STATISTICS 9"),
    )
    assert one < 400 and all_of_it < 400
    assert written("CREATE TABLE many_60 PARTITION OF root FOR VALUES IN ('x60')") < 400
    check(consumer, ["public.root"])


@pytest.mark.parametrize(
    ("attach", "reason", "mend"),
    [
        (
            "CREATE TABLE p (id int NOT NULL, region text NOT NULL, v text); INSERT INTO p VALUES (1, 'p', 'x');"
            "ALTER TABLE root ATTACH PARTITION p FOR VALUES IN ('p')",
            "permission denied for table p",
            "GRANT SELECT ON p TO {role}",
        ),
        (
            "CREATE TABLE p (id int NOT NULL, region text NOT NULL, v text); INSERT INTO p VALUES (1, 'p', 'x');"
            "ALTER TABLE p ENABLE ROW LEVEL SECURITY; GRANT SELECT ON p TO {role};"
            "ALTER TABLE root ATTACH PARTITION p FOR VALUES IN ('p')",
            "row security",
            "ALTER TABLE p DISABLE ROW LEVEL SECURITY",
        ),
        (
            "CREATE UNLOGGED TABLE p PARTITION OF root FOR VALUES IN ('p'); GRANT SELECT ON p TO {role}",
            "unlogged",
            "ALTER TABLE p SET LOGGED",
        ),
    ],
    ids=["rights", "row security", "unlogged"],
)
def test_a_partition_that_cannot_be_followed_stops_its_table_alone(
    make_consumer: MakeConsumer, installed: Connection, attach: str, reason: str, mend: str
) -> None:
    db, consumer = installed, make_consumer(heartbeat_ms=300)
    role = f"reader_{consumer.prefix}"
    db.execute("CREATE TABLE other (id int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE other")
    db.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'".encode())
    try:
        db.execute(f"GRANT USAGE ON SCHEMA pgtrickle TO {role}".encode())
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public, pgtrickle TO {role}".encode())
        consumer.environment["PG_TRICKLE_DATABASE_URL"] = make_conninfo(consumer.url, user=role, password="x")
        consumer.start()
        consumer.caught_up()
        db.execute(attach.format(role=role).encode())
        db.execute("INSERT INTO other VALUES (1); INSERT INTO root VALUES (2, 'p', 'y')")
        assert reason in stopped(consumer, "root")
        check(consumer, ["public.other"])
        # Nothing else is in the way: it is captured again by itself.
        db.execute(mend.format(role=role).encode())
        until(lambda: not consumer.caught_up().captures[-1].get("stopped"), "captured again")
        db.execute("INSERT INTO root VALUES (3, 'p', 'z'); INSERT INTO other VALUES (2)")
        check(consumer, ["public.root", "public.other"])
        assert consumer.metric("pg_trickle_cdc_reconnects_total") == 0
    finally:
        consumer.end()
        db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
