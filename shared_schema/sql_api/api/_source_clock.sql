-- How fresh stream tables are, by the clock of the sources' server, and whether the programs beat.
-- Views over tables alone: whoever may read pg_stat_stream_tables needs no other right.

-- As SILENT_AFTER_S of the programs.
CREATE OR REPLACE FUNCTION pgtrickle._silent_after() RETURNS interval
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT interval '4 s' $$;

-- One row. What the consumer wrote here counts, unless what the applier heard of it through the broker is newer:
-- the consumer may have no right to write here, or be in another database.
CREATE OR REPLACE VIEW pgtrickle._source_clock AS
SELECT s.now AS now,
       -- The source's clock at present.
       CASE WHEN s.is_direct THEN s.now
            ELSE s.now OPERATOR(pg_catalog.-) coalesce(a.clock_offset, pg_catalog.make_interval()) END AS source_now,
       CASE WHEN s.is_direct THEN c.frontier ELSE a.frontier END AS frontier,
       CASE WHEN s.is_direct THEN c.complete_until ELSE a.complete_until END AS complete_until,
       CASE WHEN s.is_direct THEN c.earlier_frontier ELSE a.earlier_frontier END AS earlier_frontier,
       CASE WHEN s.is_direct THEN c.earlier_complete_until ELSE a.earlier_complete_until END AS earlier_complete_until,
       CASE WHEN s.is_direct THEN c.beat_at ELSE a.heard_at END AS consumer_beat_at,
       CASE WHEN s.is_direct THEN c.problem ELSE a.consumer_problem END AS consumer_problem,
       a.beat_at AS applier_beat_at, a.problem AS applier_problem
FROM (
    SELECT coalesce(
               (SELECT u.value FROM pgtrickle.pgt_settings_in_use u
                WHERE u.program OPERATOR(pg_catalog.=) 'pg-trickle-applier' AND u.name OPERATOR(pg_catalog.=) 'slot'),
               (SELECT d.default_value FROM pgtrickle.pgt_setting_definitions d
                WHERE d.name OPERATOR(pg_catalog.=) 'slot')) AS slot,
           coalesce((SELECT u.value::pg_catalog.bool FROM pgtrickle.pgt_settings_in_use u
                     WHERE u.program OPERATOR(pg_catalog.=) 'pg-trickle-applier'
                       AND u.name OPERATOR(pg_catalog.=) 'sources_elsewhere'), false) AS elsewhere) w
LEFT JOIN pgtrickle.pgt_applier_beats a ON a.slot OPERATOR(pg_catalog.=) w.slot
LEFT JOIN pgtrickle.pgt_consumer_beats c ON c.slot OPERATOR(pg_catalog.=) w.slot AND NOT w.elsewhere
CROSS JOIN LATERAL (
    SELECT pg_catalog.clock_timestamp() AS now,
           c.slot IS NOT NULL AND (a.heard_at IS NULL OR c.beat_at OPERATOR(pg_catalog.>=)
               (a.heard_at OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => 4))) AS is_direct) s;

-- A moment in the future was read before the clock was set back: it says nothing.
CREATE OR REPLACE VIEW pgtrickle._freshness AS
SELECT f.pgt_id, f.frontier, f.data_timestamp, t.complete_until,
       CASE WHEN t.complete_until IS NOT NULL
            THEN greatest(k.source_now OPERATOR(pg_catalog.-) t.complete_until, pg_catalog.make_interval()) END AS staleness
FROM pgtrickle._source_clock k CROSS JOIN pgtrickle.pgt_frontiers f
CROSS JOIN LATERAL (
    SELECT pg_catalog.max(m.moment) AS complete_until
    FROM (VALUES
        (f.complete_until),
        (CASE WHEN f.frontier OPERATOR(pg_catalog.>=) k.frontier THEN k.complete_until
              WHEN f.frontier OPERATOR(pg_catalog.>=) k.earlier_frontier THEN k.earlier_complete_until END)) AS m(moment)
    WHERE m.moment OPERATOR(pg_catalog.<=) (k.source_now OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => 1))) t;

-- The functions that only look run with the caller's rights: readers of the status may read this too.
SELECT pgtrickle._grant_to_readers_of('pgtrickle.pgt_consumer_beats', 'pgtrickle._source_clock', 'pgtrickle._freshness');
