"""Self-monitoring by the running programs: its rows are those of its queries, and an idle system becomes quiet."""

from __future__ import annotations

import psycopg

from deploy.local.stack import Stack
from tests import oracle
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]

NAMES = ("df_efficiency", "df_anomaly", "df_failures", "df_freshness")


def one(db: Connection, query: str, *values: object) -> object:
    row = db.execute(query.encode(), values or None).fetchone()
    return row[0] if row else None


def assert_equal(db: Connection) -> None:
    """Soon, whatever other stream tables of the stack add to the history meanwhile."""

    def look() -> None:
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL search_path = pgtrickle")
            for name in NAMES:
                oracle.assert_same(oracle.query_result(db, name), oracle.in_postgres(db, name), name)

    oracle.eventually(look, 30)


def test_the_history_is_maintained_and_an_idle_system_is_quiet(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE watched_busy (id int PRIMARY KEY, k int)")
    db.execute(
        "SELECT pgtrickle.create_stream_table('busy_counts', 'SELECT k, count(*) AS n FROM watched_busy GROUP BY k')"
    )
    watched_busy = one(db, "SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'busy_counts'")
    db.execute("SELECT pgtrickle.setup_self_monitoring()")
    for name in NAMES:
        # As fast as it can be, so that a loop would show at once.
        db.execute("SELECT pgtrickle.alter_stream_table(%s, schedule => '1s')", (f"pgtrickle.{name}",))
    db.execute("SELECT pgtrickle.wait_for('pgtrickle.df_anomaly')")
    listener = psycopg.connect(stack.addresses.database_url, autocommit=True)
    listener.execute("LISTEN pg_trickle_alert")
    # A refresh that takes far longer than others, and one that fails, besides real ones.
    db.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason, rows_in,"
        " rows_inserted, rows_deleted, compute_ms, write_ms, tick_watermark_lsn, status, freshness_ms, error_message)"
        " SELECT %s, clock_timestamp(), clock_timestamp(), 'DIFFERENTIAL', 'MODE', 1, 1, 0,"
        " CASE i WHEN 40 THEN 90000.25 ELSE 1.5 END, 1.25, '0/1', CASE i WHEN 1 THEN 'FAILED' ELSE 'COMPLETED' END,"
        " 100.5, CASE i WHEN 1 THEN 'no luck' END FROM generate_series(1, 40) i",
        (watched_busy,),
    )
    db.execute("INSERT INTO watched_busy VALUES (1, 1)")
    db.execute("SELECT pgtrickle.wait_for('busy_counts')")
    assert_equal(db)
    assert one(db, "SELECT took_ms FROM pgtrickle.df_anomaly WHERE pgt_id = %s", watched_busy) == 90002
    assert one(db, "SELECT failures FROM pgtrickle.df_failures WHERE pgt_id = %s", watched_busy) == 1
    with listener:
        assert next_alert(listener, "slow_refresh", "public.busy_counts", 30)["took_ms"] == 90002
    assert "90002 ms" in str(one(db, "SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'slow_refreshes'"))
    # What it did itself is in the history, and in none of its rows.
    own = (
        "SELECT array_agg(DISTINCT initiated_by) FROM pgtrickle.pgt_refresh_history"
        " JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_schema = 'pgtrickle'"
    )
    assert one(db, own) == ["SELF_MONITOR"]
    # Nothing changes any more, so nobody writes history, though all of them are due every second.
    quiet_since = "SELECT clock_timestamp() - max(end_time) > interval '4 s' FROM pgtrickle.pgt_refresh_history"

    def assert_quiet() -> None:
        assert one(db, quiet_since) is True

    oracle.eventually(assert_quiet, 20)
    # Rows that are pruned leave the results, too.
    db.execute("DELETE FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED' OR compute_ms > 1000")
    assert_equal(db)
    assert one(db, "SELECT count(*) FROM pgtrickle.df_anomaly WHERE pgt_id = %s", watched_busy) == 0
    assert one(db, "SELECT count(*) FROM pgtrickle.df_failures WHERE pgt_id = %s", watched_busy) == 0
    db.execute("SELECT pgtrickle.teardown_self_monitoring()")
    db.execute("INSERT INTO watched_busy VALUES (2, 1)")
    db.execute("SELECT pgtrickle.wait_for('busy_counts')")
    assert oracle.query_result(db, "busy_counts") == oracle.in_postgres(db, "busy_counts")
