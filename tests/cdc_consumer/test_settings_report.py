"""`pgtrickle.settings()` shows the settings of a running consumer, or that they are not reported."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from applier.catalog.install import install_catalog
from cdc_consumer.settings import ConsumerSettings
from shared_schema.stored_settings import HIDDEN
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, until

SHOWN = "SELECT value, source, pending_restart FROM pgtrickle.settings() WHERE name = %s"
NOT_REPORTED = (None, "not reported", False)


def shown(db: Connection, name: str) -> tuple[object, ...] | None:
    return db.execute(SHOWN, (name,)).fetchone()


def goes_by(db: Connection, consumer: Consumer) -> None:
    """Record, as an applier does, that it reads from the consumer's slot."""
    db.execute(
        "INSERT INTO pgtrickle.pgt_settings_in_use VALUES ('pg-trickle-applier', 'slot', %s, 'environment')"
        " ON CONFLICT DO NOTHING",
        (consumer.environment["PG_TRICKLE_SLOT"],),
    )


@pytest.fixture
def least(db: Connection, database: str) -> Iterator[tuple[str, sql.Identifier]]:
    """Yield a role that may only stream: its URL and its name."""
    name = f"cdc_{secrets.token_hex(4)}"
    db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hush' REPLICATION").format(sql.Identifier(name)))
    yield make_conninfo(database, user=name, password="hush"), sql.Identifier(name)
    db.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def test_each_setting_with_its_source(make_consumer: MakeConsumer, db: Connection) -> None:
    install_catalog(db)
    db.execute("SELECT pgtrickle.set_setting('heartbeat_ms', '500')")
    consumer = make_consumer(linger_ms=7, kafka_options='{"client.id": "hush"}')
    goes_by(db, consumer)
    assert shown(db, "linger_ms") == ("5", "default", False)
    # Other texts of what the program reads from them.
    name = db.info.dbname
    for setting in ("ring_buffer_slots = ' 065536 '", """publications = '["pg_trickle", "more" ]'"""):
        db.execute(f"ALTER DATABASE {name} SET pg_trickle.{setting}".encode())
    consumer.start()
    assert shown(db, "linger_ms") == ("7", "environment", False)
    assert shown(db, "heartbeat_ms") == ("500", "setting", False)
    assert shown(db, "batch_max_rows") == ("10000", "default", False)
    assert shown(db, "ring_buffer_slots") == ("65536", "database", False)
    assert shown(db, "publications") == ("pg_trickle,more", "database", False)
    pending = "SELECT name FROM pgtrickle.settings() WHERE pending_restart"
    assert db.execute(pending.encode()).fetchall() == []
    db.execute("SELECT pgtrickle.set_setting('batch_max_rows', '9'), pgtrickle.set_setting('linger_ms', '8')")
    db.execute(f"ALTER DATABASE {name} RESET pg_trickle.publications".encode())
    db.execute(f"ALTER DATABASE {name} SET pg_trickle.ring_buffer_slots = '65537'".encode())
    assert db.execute(pending.encode()).fetchall() == [("batch_max_rows",), ("publications",), ("ring_buffer_slots",)]
    assert shown(db, "batch_max_rows") == ("10000", "default", True)
    assert shown(db, "linger_ms") == ("7", "environment", False)
    reported: dict[str, str] = dict(
        db.execute("SELECT name, value FROM pgtrickle.pgt_consumer_settings_in_use").fetchall()
    )
    assert set(reported) == set(ConsumerSettings.model_fields) - HIDDEN - {"target_url", "schema_registry_url"}
    assert not any("hush" in value or "postgresql:" in value for value in reported.values())
    assert db.execute(
        "SELECT max_workers FROM pgtrickle.worker_pool_status() WHERE program LIKE '%cdc'"
    ).fetchone() == (4,)
    assert consumer.stop() == 0
    assert shown(db, "batch_max_rows") == ("9", "setting", False)
    assert "not reported" not in consumer.log.read_text()


def test_where_both_programs_have_a_setting_and_differ_each_is_shown(consumer: Consumer, db: Connection) -> None:
    install_catalog(db)
    goes_by(db, consumer)
    consumer.start()
    levels = "SELECT program, value FROM pgtrickle.settings() WHERE name = 'log_level'"
    assert db.execute(levels).fetchall() == [("both", "info")]
    db.execute(
        "INSERT INTO pgtrickle.pgt_settings_in_use VALUES ('pg-trickle-applier', 'log_level', 'info', 'default')"
    )
    # This shows that an applier runs.
    db.execute("SELECT pg_advisory_lock(1885828208, 0)")
    assert db.execute(levels).fetchall() == [("both", "info")]
    db.execute("UPDATE pgtrickle.pgt_settings_in_use SET value = 'debug' WHERE name = 'log_level'")
    assert db.execute(levels).fetchall() == [("pg-trickle-applier", "debug"), ("pg-trickle-cdc", "info")]


def test_whose_slot_it_is_reports(make_consumer: MakeConsumer, db: Connection) -> None:
    install_catalog(db)
    first, second = make_consumer(linger_ms=1), make_consumer(linger_ms=2)
    other = make_consumer(linger_ms=3, slot=f"other_{secrets.token_hex(4)}", topic_prefix=f"o{secrets.token_hex(4)}")
    goes_by(db, first)
    first.start()
    second.start(wait=False)
    other.start()
    until(lambda: "standing by" in second.get("/readyz")[1], "standing by")
    assert shown(db, "linger_ms") == ("1", "environment", False)
    first.kill()
    second.wait_ready()
    assert shown(db, "linger_ms") == ("2", "environment", False)
    other.stop()
    db.execute("SELECT pg_drop_replication_slot(%s)", (other.environment["PG_TRICKLE_SLOT"],))


def test_without_the_right_it_works_and_says_so_once(
    make_consumer: MakeConsumer, db: Connection, least: tuple[str, sql.Identifier]
) -> None:
    url, role = least
    consumer = make_consumer(database_url=url)
    consumer.start()
    assert consumer.stop() == 0
    assert consumer.log.read_text().count("settings are not reported problem=schema pgtrickle is not installed") == 1
    install_catalog(db)
    goes_by(db, consumer)
    db.execute(sql.SQL("GRANT USAGE ON SCHEMA pgtrickle TO {}").format(role))
    db.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {}").format(role))
    consumer.start()
    assert shown(db, "linger_ms") == NOT_REPORTED
    # A new session does not log it again.
    db.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    until(lambda: "session lost" in consumer.log.read_text(), "the session ends")
    consumer.wait_ready()
    assert consumer.stop() == 0
    assert consumer.log.read_text().count("settings are not reported problem=GRANT SELECT, INSERT, DELETE") == 1
    db.execute(sql.SQL("GRANT INSERT, DELETE ON pgtrickle.pgt_consumer_settings_in_use TO {}").format(role))
    consumer.start()
    assert shown(db, "linger_ms") == ("5", "default", False)


def test_grants_on_settings_survive_an_upgrade(db: Connection, least: tuple[str, sql.Identifier]) -> None:
    install_catalog(db)
    db.execute("DROP TABLE pgtrickle.pgt_consumer_settings_in_use")
    db.execute("DELETE FROM pgtrickle.pgt_schema_version WHERE name LIKE '%consumer_settings%'")
    db.execute(sql.SQL("GRANT USAGE ON SCHEMA pgtrickle TO {}").format(least[1]))
    db.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {}").format(least[1]))
    assert len(install_catalog(db)) == 1
    db.execute(sql.SQL("SET ROLE {}").format(least[1]))
    assert shown(db, "linger_ms") == ("5", "default", False)
    db.execute("RESET ROLE")


def test_each_source_shows_the_sessions_that_failed(make_consumer: MakeConsumer, db: Connection) -> None:
    install_catalog(db)
    db.execute(
        "CREATE TABLE plain (id int PRIMARY KEY); CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)"
    )
    db.execute("CREATE TABLE leaf PARTITION OF root DEFAULT")
    for source in ("plain", "root"):
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"of_{source}", f"SELECT id FROM {source}"))
    consumer = make_consumer(linger_ms=6)
    goes_by(db, consumer)
    status = (
        "SELECT source, cdc_mode, leaves, attempts, cardinality(attempted_at), last_error_at = attempted_at[1],"
        " attempted_at[1] > attempted_at[2], coalesce(last_error, '') <> ''"
        " FROM pgtrickle.wal_source_status() ORDER BY 1"
    )

    def shows(*said: object) -> bool:
        sources = [("public.plain", "log", None), ("public.root", "log", 1)]
        return db.execute(status.encode()).fetchall() == [(*source, *said) for source in sources]

    consumer.start()
    until(lambda: shows(0, None, None, None, False), "no session failed")
    for number, is_later in ((1, None), (2, True)):
        db.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        until(lambda n=number, late=is_later: shows(n, n, True, late, True), f"{number} failed")
        consumer.wait_ready()
        until(lambda: consumer.get("/readyz")[0] == 200, "it works again")
    assert shown(db, "linger_ms") == ("6", "environment", False)
    blocked = "SELECT DISTINCT blocked_reason FROM pgtrickle.wal_source_status()"
    until(lambda: db.execute(blocked).fetchall() == [(None,)], "nothing prevents them")
    # Another process goes on counting.
    beat = "SELECT beat_at FROM pgtrickle.pgt_consumer_beats"
    consumer.kill()
    consumer.start()
    begun = db.execute("SELECT clock_timestamp()").fetchone()
    until(lambda: (db.execute(beat).fetchone() or ()) > (begun or ()), "it beats")
    assert shows(2, 2, True, True, True)
    db.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    until(lambda: shows(3, 3, True, True, True), "one more failed")
