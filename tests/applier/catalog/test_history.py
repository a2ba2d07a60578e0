"""The history of refreshes is bounded in time and in rows, for each stream table by itself."""

from __future__ import annotations

import psycopg

from applier.catalog.database import Database
from applier.catalog.history import History
from applier.catalog.install import install_catalog

ROWS = """
INSERT INTO pgtrickle.pgt_refresh_history
       (pgt_id, start_time, end_time, action, refresh_reason, rows_inserted, rows_deleted, tick_watermark_lsn, status)
SELECT s.pgt_id, now() - interval '1 day' * (g / 100), now(), 'DIFFERENTIAL', '', 0, 0, '0/0', 'COMPLETED'
FROM pgtrickle.pgt_stream_tables s, generate_series(1, CASE s.pgt_name WHEN 'busy' THEN 1000 ELSE 30 END) g
"""


def test_old_rows_and_too_many_rows_are_deleted(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        install_catalog(db)
        db.execute("CREATE TABLE source (id int PRIMARY KEY)")
        for name in ("busy", "quiet"):
            db.execute("SELECT pgtrickle.create_stream_table(%s, 'SELECT id FROM source')", (name,))
        db.execute(ROWS)
        last = db.execute("SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history").fetchone()
        history = History(Database(database))
        assert history.prune(days=7, rows=100) == 900
        assert history.prune(days=7, rows=100) == 0
        counts = db.execute(
            "SELECT s.pgt_name, count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_stream_tables s"
            " USING (pgt_id) GROUP BY 1 ORDER BY 1"
        ).fetchall()
        assert counts == [("busy", 100), ("quiet", 30)]
        assert db.execute("SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history").fetchone() == last


def test_the_last_refreshes_are_read_oldest_first_and_only_those_that_were_measured(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        install_catalog(db)
        db.execute("CREATE TABLE source (id int PRIMARY KEY)")
        db.execute("SELECT pgtrickle.create_stream_table('t', 'SELECT id FROM source')")
        for action, compute_ms, write_ms, status in (
            ("FULL", 900, 100, "COMPLETED"),
            ("DIFFERENTIAL", 20, 5, "COMPLETED"),
            ("DIFFERENTIAL", 99, 9, "FAILED"),
            ("SKIP", None, None, "COMPLETED"),
            ("DIFFERENTIAL", 30, 5, "COMPLETED"),
        ):
            db.execute(
                "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
                " rows_inserted, rows_deleted, tick_watermark_lsn, status, compute_ms, write_ms)"
                " SELECT pgt_id, now(), now(), %s, '', 0, 0, '0/0', %s, %s, %s FROM pgtrickle.pgt_stream_tables",
                (action, status, compute_ms, write_ms),
            )
        history = History(Database(database))
        found = [(one.action, one.took_ms) for one in history.read_recent(2)]
        assert found == [("DIFFERENTIAL", 25), ("DIFFERENTIAL", 35)]
        assert [(one.action, one.took_ms) for one in history.read_recent(9)] == [("FULL", 1000), *found]
