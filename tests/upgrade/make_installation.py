"""`python -m tests.upgrade.make_installation` creates an installation of this version and packs it into archives.

It runs a small workload with stream tables in every status and stops it in the middle of its work: the applier is
killed while Delta lacks some deltas, the consumer is stopped later, and the sources are written to until the end.
An installation is created once per version and never again; see README.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import admin as kafka_admin
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict

from deploy.local.stack import Stack
from tests import oracle
from tests.upgrade.archive import INSTALLATIONS, PARTS, pack

Connection = psycopg.Connection[tuple[object, ...]]

PASSWORD = "kept"
"""The superuser's password in the archive: once unpacked, the server listens on the loopback address only."""

PRODUCT = ("applier", "cdc_consumer", "shared_schema", "deploy", "pyproject.toml")

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text, segment text, since date, profile jsonb);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), placed date, note text);
CREATE TABLE events (kind text, at timestamptz, payload jsonb);
CREATE TABLE documents (id int PRIMARY KEY, title text, body text);
ALTER TABLE documents ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE staff (id int PRIMARY KEY, boss int, name text);
CREATE TABLE ratios (id int PRIMARY KEY, above int, below int);
CREATE TABLE measures (id int, month int, v double precision, PRIMARY KEY (id, month)) PARTITION BY RANGE (month);
CREATE TABLE measures_h1 PARTITION OF measures FOR VALUES FROM (1) TO (7);
CREATE TABLE measures_h2 PARTITION OF measures FOR VALUES FROM (7) TO (13);
CREATE SCHEMA "side-ways";
CREATE TABLE "side-ways"."Größe & Co" (id int PRIMARY KEY, "Maß" numeric);

INSERT INTO customers SELECT i, 'customer ' || i, (ARRAY['retail', 'online', 'trade'])[1 + i % 3],
    date '2020-02-29' + i, jsonb_build_object('level', i % 4, 'tags', jsonb_build_array('a', i))
    FROM generate_series(1, 40) i;
INSERT INTO orders SELECT i, 1 + i % 40, i * 1.25, date '2024-01-01' + i % 50, CASE WHEN i % 7 > 0 THEN 'note ' || i END
    FROM generate_series(1, 300) i;
INSERT INTO events SELECT 'kind ' || i % 5, timestamptz '2024-05-05 12:00+02' + make_interval(mins => i % 10),
    CASE WHEN i % 6 > 0 THEN jsonb_build_object('n', i % 3) END FROM generate_series(1, 120) i;
INSERT INTO documents SELECT i, 'title ' || i, repeat(md5(i::text), 200 + i) FROM generate_series(1, 12) i;
INSERT INTO staff SELECT i, nullif(i / 3, 0), 'member ' || i FROM generate_series(1, 30) i;
INSERT INTO ratios SELECT i, i * 10, i FROM generate_series(1, 20) i;
INSERT INTO measures SELECT i, 1 + i % 12, i / 3.0 FROM generate_series(1, 60) i;
INSERT INTO "side-ways"."Größe & Co" SELECT i, i / 7.0 FROM generate_series(1, 15) i;
"""

NOT_MAINTAINED = "SELECT id, customer, amount, xmin IS NOT NULL AS stored FROM orders WHERE amount > 200"

STREAM_TABLES: dict[str, tuple[str, dict[str, object]]] = {
    "by_segment": (
        "SELECT c.segment, count(*) AS n, sum(o.amount) AS total, avg(o.amount) AS mean, min(o.placed) AS first,"
        " max(o.amount) AS most FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.segment",
        {"refresh_mode": "DIFFERENTIAL"},
    ),
    "by_customer": (
        "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
        {"refresh_mode": "DIFFERENTIAL", "schedule": "continuous"},
    ),
    # Reads another stream table.
    "top_customers": (
        "SELECT customer, total FROM by_customer ORDER BY total DESC NULLS LAST, customer LIMIT 5",
        {"refresh_mode": "DIFFERENTIAL"},
    ),
    "large_orders": ("SELECT id, customer, amount, note FROM orders WHERE amount > 100", {"auto_threshold": 0.5}),
    "per_day": (
        "SELECT placed, count(*) AS n, count(note) AS noted FROM orders GROUP BY placed",
        {"refresh_mode": "IMMEDIATE"},
    ),
    "whole": (
        "SELECT customer % 5 AS part, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer % 5",
        {"refresh_mode": "FULL"},
    ),
    "run_by_postgres": (NOT_MAINTAINED, {}),
    "outer_joined": (
        "SELECT c.id, c.name, c.profile, o.id AS number, o.amount FROM customers c"
        " LEFT JOIN orders o ON o.customer = c.id AND o.amount > 330",
        {"full_policy": "error"},
    ),
    "below": (
        "WITH RECURSIVE below(id, top) AS (SELECT id, id FROM staff WHERE boss IS NULL"
        " UNION SELECT s.id, b.top FROM staff s JOIN below b ON s.boss = b.id) SELECT id, top FROM below",
        {"refresh_mode": "DIFFERENTIAL"},
    ),
    "ranked": (
        "SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place FROM orders",
        {"refresh_mode": "DIFFERENTIAL"},
    ),
    # Duplicate rows, from a table without a key.
    "bag": ("SELECT kind, payload FROM events", {"refresh_mode": "DIFFERENTIAL"}),
    "appended": ("SELECT kind, at FROM events WHERE kind <> 'kind 0'", {"append_only": True}),
    "documents_kept": ("SELECT id, title, body FROM documents", {"refresh_mode": "DIFFERENTIAL"}),
    "by_month": (
        "SELECT month, count(*) AS n, max(v) AS most FROM measures GROUP BY month",
        {"refresh_mode": "DIFFERENTIAL", "schedule": "30s"},
    ),
    "Größen": (
        'SELECT id, "Maß", "Maß" * 2 AS "doppelt so groß" FROM "side-ways"."Größe & Co"',
        {"refresh_mode": "DIFFERENTIAL"},
    ),
    "nightly": ("SELECT count(*) AS n, sum(amount) AS total FROM orders", {"schedule": "59 23 31 12 *"}),
    "gradual": ("SELECT id, amount, placed FROM orders", {"refresh_mode": "DIFFERENTIAL"}),
    "altered": ("SELECT id, name FROM customers WHERE id > 3", {"refresh_mode": "DIFFERENTIAL"}),
    "rebuilt": ("SELECT id, name FROM customers", {"refresh_mode": "DIFFERENTIAL"}),
    "paused": ("SELECT segment, count(*) AS n FROM customers GROUP BY segment", {"refresh_mode": "DIFFERENTIAL"}),
    "divided": ("SELECT id, above / below AS quotient FROM ratios", {"refresh_mode": "DIFFERENTIAL"}),
    "refused": (NOT_MAINTAINED, {"refresh_mode": "DIFFERENTIAL"}),
}

SCHEMA_OF = {"Größen": "side-ways"}

NEVER_FILLED = {"refused"}

SETTINGS = {
    "pipeline_batch_size": "64",
    "max_consecutive_errors": "2",
    "checkpoint_rows": "5000",
    "delta_interval_ms": "400",
    "heartbeat_ms": "2000",
    "log_level": "info",
}

LONG_AFTER = "3600000"

REPAIR = "DELETE FROM ratios WHERE below = 0"


def changes(number: int) -> list[str]:
    """Return transactions that insert, update, move and delete rows of all sources; they differ for every number."""
    base = 1000 * number
    return [
        f"INSERT INTO orders SELECT {base} + i, 1 + i % 40, 50 + i * {number}.35, date '2024-03-01' + i % 9, 'new'"
        " FROM generate_series(1, 70) i",
        f"UPDATE orders SET amount = amount + {number}.05, note = NULL WHERE id % 11 = {number % 11}",
        f"DELETE FROM orders WHERE id % 17 = {number % 17}",
        f"UPDATE customers SET segment = 'moved', profile = profile || '{{\"seen\": {number}}}'"
        f" WHERE id % 9 = {number % 9}",
        f"UPDATE customers SET id = {base} + id WHERE id = {number + 4}",
        "INSERT INTO events SELECT 'kind ' || i % 3, timestamptz '2024-06-06 00:00Z', '{\"n\": 1}'"
        " FROM generate_series(1, 6) i",
        # One of several equal rows.
        "DELETE FROM events WHERE ctid IN (SELECT ctid FROM events WHERE kind = 'kind 0' LIMIT 2)",
        # The long value did not change, so it is not in the log.
        f"UPDATE documents SET title = title || '!' WHERE id % 4 = {number % 4}",
        f"UPDATE documents SET body = repeat(md5('{number}'), 300) WHERE id = {1 + number}",
        f"UPDATE staff SET boss = NULL WHERE id = {3 + number}",
        f"INSERT INTO staff VALUES ({base}, {3 + number}, 'late')",
        f"INSERT INTO ratios VALUES ({base}, {number}, 2)",
        f"UPDATE measures SET v = v + 0.5, month = 1 + (month + 5) % 12 WHERE id % 8 = {number % 8}",
        f'UPDATE "side-ways"."Größe & Co" SET "Maß" = {number}.125 WHERE id = {number}',
    ]


def write(db: Connection, number: int) -> None:
    """Run each change in a transaction of its own."""
    for statement in changes(number):
        db.execute(statement.encode())


def qualified(name: str) -> str:
    """Return the qualified name in the form that the SQL functions accept."""
    return f'"{SCHEMA_OF.get(name, "public")}"."{name}"'


def one(db: Connection, query: str, *arguments: object) -> Any:
    """The first value of the first row."""
    row = db.execute(query.encode(), arguments or None).fetchone()
    return row[0] if row else None


def say(line: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {line}", file=sys.stderr, flush=True)


_BEGAN = time.monotonic()


def until(condition: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
    """Poll."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.1)


def wait_for(db: Connection, names: Iterable[str]) -> None:
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s)", (qualified(name),))


def create(db: Connection) -> list[str]:
    """Create and fill everything; return the names of the stream tables in service."""
    db.execute(TABLES.encode())
    for name, value in SETTINGS.items():
        db.execute("SELECT pgtrickle.set_setting(%s, %s)", (name, value))
    for name, (query, options) in STREAM_TABLES.items():
        named = "".join(f", {option} => %s" for option in options)
        db.execute(
            f"SELECT pgtrickle.create_stream_table(%s, %s{named})".encode(),
            (qualified(name), query, *options.values()),
        )
    db.execute("SELECT pgtrickle.set_visibility('gradual', 'progressive')")
    in_service = [name for name in STREAM_TABLES if name not in NEVER_FILLED]
    wait_for(db, in_service)
    db.execute("SELECT pgtrickle.stream_table_to_publication('large_orders')")
    db.execute("CREATE INDEX large_orders_by_customer ON large_orders (customer)")
    return in_service


def status(db: Connection, name: str) -> object:
    return one(db, "SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s AND replaces IS NULL", name)


def keep_publications(stack: Stack) -> None:
    """Set an unlimited retention on the topics of stream tables; the broker's default is a week."""
    # The module does not export its names in a way that the type checker accepts.
    kafka: Any = kafka_admin
    client = kafka.AdminClient({"bootstrap.servers": stack.addresses.kafka_bootstrap})
    topics = [name for name in client.list_topics(timeout=30).topics if name.startswith("trickle_out.")]
    entry = [kafka.ConfigEntry("retention.ms", "-1", incremental_operation=kafka.AlterConfigOpType.SET)]
    resources = [kafka.ConfigResource(kafka.ResourceType.TOPIC, name, incremental_configs=entry) for name in topics]
    for done in client.incremental_alter_configs(resources).values():
        done.result(30)


def wait_until_acknowledged(db: Connection) -> None:
    """Wait until the consumer has written everything so far to Kafka."""
    at = one(db, "SELECT pg_current_wal_insert_lsn()::text")
    # The last record of an idle server may be one that is not sent to the consumer.
    db.execute("SELECT pg_logical_emit_message(true, 'upgrade', 'here')")
    until(
        lambda: one(db, "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE NOT temporary", at),
        "the consumer should have acknowledged everything",
    )


def behind_in_delta(stack: Stack, db: Connection) -> list[str]:
    """Return the stream tables whose Delta table has no commit at the LSN of their newest rows in PostgreSQL."""
    written = db.execute(
        "SELECT s.pgt_name, max(h.tick_watermark_lsn) - '0/0' FROM pgtrickle.pgt_refresh_history h"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE h.status = 'COMPLETED' AND s.pgt_schema = 'public'"
        " GROUP BY 1 ORDER BY 1"
    ).fetchall()
    behind = []
    for name, at in written:
        commits = DeltaTable(f"{stack.addresses.delta_root}/public/{name}").history()
        positions = [str(commit["pgtrickle_lsn"]) for commit in commits if "pgtrickle_lsn" in commit]
        reached = one(db, "SELECT max(p::pg_lsn) - '0/0' FROM unnest(%s::text[]) p", positions)
        behind += [str(name)] if reached < at else []
    return behind


def facts(db: Connection, stack: Stack, behind: Sequence[str]) -> dict[str, Any]:
    """Return the content of `installation.json`, for readers and for the upgrade test."""
    tables = db.execute(
        "SELECT s.pgt_name, s.pgt_schema, s.status, s.refresh_mode, s.schedule, s.visibility, s.full_policy,"
        " s.append_only, s.defining_query, s.last_error_message, f.frontier::text, s.downstream_publication_name,"
        " (SELECT h.action FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = s.pgt_id AND h.status = 'COMPLETED'"
        "  ORDER BY h.refresh_id DESC LIMIT 1) AS executed, a.defining_query AS new_query,"
        " EXISTS (SELECT FROM pgtrickle.pgt_stream_tables r WHERE r.replaces = s.pgt_id) AS being_rebuilt"
        " FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
        " LEFT JOIN pgtrickle.pgt_alterations a USING (pgt_id) WHERE s.replaces IS NULL ORDER BY s.pgt_id"
    )
    names = [column.name for column in tables.description or ()]
    owed = db.execute(
        "SELECT s.pgt_name, o.old_frontier::text, o.new_frontier::text FROM pgtrickle.pgt_outbox o"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) ORDER BY 1, 3, o.part"
    ).fetchall()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "version": version("pg-trickle-spark"),
        "commit": commit,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "pyspark": version("pyspark"),
        "deltalake": version("deltalake"),
        "postgres": {
            "major": stack.postgres.major,
            "version": one(db, "SELECT version()"),
            "password": PASSWORD,
            "wal_insert": one(db, "SELECT pg_current_wal_insert_lsn()::text"),
            "slots": [
                dict(zip(("name", "restart", "confirmed"), row, strict=True))
                for row in db.execute(
                    "SELECT slot_name, restart_lsn::text, confirmed_flush_lsn::text FROM pg_replication_slots"
                ).fetchall()
            ],
        },
        "kafka": {"cluster_id": json.loads((stack.folder / "kafka.json").read_text())["cluster_id"]},
        "catalog_version": one(db, "SELECT max(version) FROM pgtrickle.pgt_schema_version"),
        "checkpoint": one(db, "SELECT frontier::text FROM pgtrickle.pgt_checkpoints"),
        "last_refresh": one(db, "SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history"),
        "settings": one(db, "SELECT json_object_agg(name, value ORDER BY name) FROM pgtrickle.pgt_settings"),
        "owed": [dict(zip(("table", "old", "new"), row, strict=True)) for row in owed],
        "behind_in_delta": list(behind),
        "more": [changes(7), changes(8)],
        "repair": [REPAIR],
        "stream_tables": [dict(zip(names, row, strict=True)) for row in tables.fetchall()],
    }


def dump(stack: Stack, to: Path) -> None:
    """Dump the catalog as text, for people and for diffs; without functions, which every install replaces."""
    environment = conninfo_to_dict(stack.addresses.database_url)
    subprocess.run(
        [str(stack.postgres.bin("pg_dump")), "--table=pgtrickle.*", "--no-owner", "-f", str(to)]
        + [f"--{o}={environment[k]}" for o, k in (("host", "host"), ("port", "port"), ("username", "user"))]
        + [str(environment["dbname"])],
        env={"PGPASSWORD": str(environment["password"])},
        check=True,
    )


def live(stack: Stack, db: Connection) -> dict[str, Any]:
    """Run the installation until only PostgreSQL and Kafka are left; return its facts."""
    in_service = create(db)
    say("filled")
    until(lambda: status(db, "refused") == "SUSPENDED", "a query that cannot be maintained is refused")
    write(db, 1)
    wait_for(db, in_service)
    db.execute("INSERT INTO ratios VALUES (0, 1, 0)")
    until(lambda: status(db, "divided") == "SUSPENDED", "a division by zero suspends")
    in_service.remove("divided")
    write(db, 2)
    wait_for(db, in_service)
    db.execute("SELECT pgtrickle.pause_stream_table('paused')")
    in_service.remove("paused")
    say("suspended and paused")
    stack.restart("applier")
    say("the applier has written a checkpoint and runs again")
    write(db, 3)
    wait_for(db, in_service)
    judged = oracle.judge(stack.addresses, in_service)
    if not judged.equal:
        raise SystemExit(f"not settled: {judged}")
    keep_publications(stack)
    say(f"settled: {judged}")

    # From here on Delta is written later, so that deltas for it are still in the outbox when the applier is killed.
    db.execute("SELECT pgtrickle.set_setting('delta_interval_ms', %s)", (LONG_AFTER,))
    until(
        lambda: one(db, "SELECT value FROM pgtrickle.settings() WHERE name = 'delta_interval_ms'") == LONG_AFTER,
        "the applier should use the new setting",
    )
    time.sleep(3)
    write(db, 4)
    wait_for(db, in_service)
    stack.kill("applier")
    db.execute("SELECT pgtrickle.set_setting('delta_interval_ms', %s)", (SETTINGS["delta_interval_ms"],))
    behind = behind_in_delta(stack, db)
    if not {"whole", "run_by_postgres"} <= set(behind) or not one(db, "SELECT count(*) FROM pgtrickle.pgt_outbox"):
        raise SystemExit(f"the outbox is empty; behind are {behind}")
    say(f"the applier is dead; Delta is behind for {', '.join(behind)}")
    write(db, 5)
    wait_until_acknowledged(db)
    stack.stop("cdc")
    say("the consumer is stopped")
    write(db, 6)
    leave_work(db)
    return facts(db, stack, behind)


def leave_work(db: Connection) -> None:
    """Create and alter stream tables while no program runs that could do the work."""
    db.execute("CREATE TABLE late (id int PRIMARY KEY, customer int, v text)")
    db.execute("INSERT INTO late SELECT i, i % 9, 'late ' || i FROM generate_series(1, 25) i")
    db.execute(
        "SELECT pgtrickle.create_stream_table('unborn', 'SELECT l.id, l.v, o.amount FROM late l"
        " JOIN orders o ON o.customer = l.customer', refresh_mode => 'DIFFERENTIAL')"
    )
    for name, query in {
        "altered": "SELECT id, name FROM customers WHERE id > 10",
        "rebuilt": "SELECT name, id, segment, since FROM customers WHERE segment <> 'trade'",
    }.items():
        with db.transaction():
            # This isolation level skips the check whether the query can be maintained: no applier could reply.
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            db.execute("SELECT pgtrickle.alter_stream_table(%s, query => %s)", (name, query))
    db.execute("UPDATE late SET v = v || '?' WHERE id < 5")


def main() -> None:
    """Create the installation; refuse to replace an existing one and to run code that is not committed."""
    to = INSTALLATIONS / version("pg-trickle-spark")
    if to.exists():
        raise SystemExit(f"{to} is there: an installation is made once per version")
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", *PRODUCT], capture_output=True, text=True, check=True
    ).stdout
    if changed:
        raise SystemExit(f"not the code of a commit:\n{changed}")
    with tempfile.TemporaryDirectory(prefix="pg-trickle-installation-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with (
            Stack(Path(folder), durable=False, say=say) as stack,
            psycopg.connect(stack.addresses.database_url, autocommit=True) as db,
        ):
            found = live(stack, db)
            to.mkdir(parents=True)
            dump(stack, to / "catalog.sql")
            db.execute(f"ALTER ROLE postgres PASSWORD '{PASSWORD}'".encode())
            db.execute("CHECKPOINT")
        (to / "installation.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        pack(Path(folder), to)
    for part in sorted(to.iterdir()):
        say(f"{part.name}: {part.stat().st_size / 1e6:.2f} MB")
    assert all((to / f"{part}.tar.xz").exists() for part in PARTS)


if __name__ == "__main__":
    main()
