-- The health of everything in one row, for a monitor that asks one question. The status is the worst line of health_check().

CREATE OR REPLACE VIEW pgtrickle.quick_health AS
SELECT c.status,
       n.total, n.active, n.initializing, n.suspended, n.stale, n.paused,
       l.bytes AS slot_lag_bytes, p.applier_alive, p.consumer_alive,
       n.worst_staleness, n.stalest, n.unequal
FROM (
    SELECT pg_catalog.count(*) AS total,
           pg_catalog.count(*) FILTER (WHERE s.status OPERATOR(pg_catalog.=) 'ACTIVE') AS active,
           pg_catalog.count(*) FILTER (WHERE s.status OPERATOR(pg_catalog.=) 'INITIALIZING') AS initializing,
           pg_catalog.count(*) FILTER (WHERE s.status OPERATOR(pg_catalog.=) 'SUSPENDED') AS suspended,
           pg_catalog.count(*) FILTER (WHERE s.status OPERATOR(pg_catalog.=) 'PAUSED') AS paused,
           pg_catalog.count(*) FILTER (WHERE pgtrickle._is_stale(s.status, i.tier, f.staleness, t.next_refresh_at)
               AND NOT EXISTS (SELECT FROM pgtrickle._held_by(s.pgt_id))) AS stale,
           -- Their fuse skipped changes, or that of what they read.
           pg_catalog.count(*) FILTER (WHERE u.is_unequal) AS unequal,
           pg_catalog.max(f.staleness) FILTER (WHERE s.status OPERATOR(pg_catalog.=) 'ACTIVE') AS worst_staleness,
           (pg_catalog.array_agg(pg_catalog.format('%I.%I', s.pgt_schema, s.pgt_name) ORDER BY f.staleness DESC)
               FILTER (WHERE s.status OPERATOR(pg_catalog.=) 'ACTIVE' AND f.staleness IS NOT NULL))[1] AS stalest
    FROM pgtrickle.pgt_stream_tables s
    LEFT JOIN pgtrickle._freshness f USING (pgt_id)
    LEFT JOIN pgtrickle.pgt_runtime t USING (pgt_id)
    LEFT JOIN pgtrickle._tiers i USING (pgt_id)
    LEFT JOIN pgtrickle._fuse_states u USING (pgt_id)
    WHERE s.replaces IS NULL) n
CROSS JOIN (
    SELECT pgtrickle._is_running('pg-trickle-applier') AND pgtrickle._applier_problem() IS NULL AS applier_alive,
           k.consumer_beat_at IS NOT NULL AND pgtrickle._consumer_problem() IS NULL AS consumer_alive
    FROM pgtrickle._source_clock k) p
-- No slot here is neither good nor bad: the sources may be in another database, and then consumer_alive says the rest.
CROSS JOIN LATERAL (
    SELECT (SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), r.confirmed_flush_lsn)
            FROM pg_catalog.pg_replication_slots r
            WHERE r.slot_name OPERATOR(pg_catalog.=) pgtrickle._setting('slot')
              AND r.database OPERATOR(pg_catalog.=) pg_catalog.current_database()) AS bytes) l
CROSS JOIN (
    SELECT CASE WHEN pg_catalog.bool_or(h.severity OPERATOR(pg_catalog.=) 'ERROR') THEN 'ERROR'
                WHEN pg_catalog.bool_or(h.severity OPERATOR(pg_catalog.=) 'WARNING') THEN 'WARNING'
                ELSE 'OK' END AS status
    FROM pgtrickle.health_check() h) c;
COMMENT ON VIEW pgtrickle.quick_health IS
    'One row: OK, WARNING or ERROR as the worst line of health_check(), how many stream tables are in which state or not equal to their query, the lag of the slot, whether both programs work, and the worst staleness.';

-- Readers of the status may read this too.
SELECT pgtrickle._grant_to_readers_of('pgtrickle.pgt_consumer_beats', 'pgtrickle.quick_health');
