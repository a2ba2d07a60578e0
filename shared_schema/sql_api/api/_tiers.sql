-- How often a stream table is refreshed: what its tier makes of its schedule.

-- The tier in use: one that the applier assigned counts for the SLA that it was assigned for, until schedule, SLA or tier
-- are altered. So does the stretch.
CREATE OR REPLACE VIEW pgtrickle._tiers AS
SELECT s.pgt_id,
       CASE WHEN NOT s.tier_by_hand AND t.assigned_for_ms OPERATOR(pg_catalog.=) s.freshness_deadline_ms
            THEN t.assigned_tier ELSE s.refresh_tier END AS tier,
       pg_catalog.make_interval(secs => s.freshness_deadline_ms OPERATOR(pg_catalog./) 1000.0::double precision) AS sla,
       coalesce(t.interval_stretch, 1) AS interval_stretch, t.assigned_tier, t.assigned_for_ms, s.pace_version
FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_runtime t
    ON t.pgt_id OPERATOR(pg_catalog.=) s.pgt_id AND t.pace_version OPERATOR(pg_catalog.=) s.pace_version;

-- sla_summary() and quick_health run with the caller's rights: readers of the status may read this too.
SELECT pgtrickle._grant_to_readers_of('pgtrickle.pgt_runtime', 'pgtrickle._tiers');
