-- The status of stream tables and how fresh they are.

CREATE OR REPLACE VIEW pgtrickle.pg_stat_stream_tables AS
SELECT s.pgt_schema, s.pgt_name, s.status, s.refresh_mode, s.schedule,
       f.pgt_id IS NOT NULL AS is_populated,
       f.frontier, f.data_timestamp, n.staleness,
       h.refreshes, h.rows_inserted, h.rows_deleted, s.last_error_at, s.last_error_message,
       s.visibility, s.downstream_publication_name AS publication,
       -- The progress of a long write.
       w.rows_done AS writing_rows_done, w.rows_total AS writing_rows_total,
       w.rows_done OPERATOR(pg_catalog./) nullif(w.seconds, 0) AS writing_rows_per_s,
       pg_catalog.make_interval(secs => w.seconds OPERATOR(pg_catalog.*)
           (w.rows_total OPERATOR(pg_catalog.-) w.rows_done) OPERATOR(pg_catalog./) nullif(w.rows_done, 0)) AS writing_eta,
       -- What was executed last, and why.
       t.effective_refresh_mode, t.effective_reason, coalesce(t.consecutive_errors, 0) AS consecutive_errors,
       t.next_refresh_at, s.full_policy, s.append_only, n.complete_until,
       i.tier, i.sla, i.interval_stretch,
       -- What its fuse, or the fuse of a stream table that it reads, did; NULL when nothing.
       u.state AS fuse_state
FROM pgtrickle.pgt_stream_tables s
LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)
LEFT JOIN pgtrickle._freshness n USING (pgt_id)
LEFT JOIN pgtrickle.pgt_runtime t USING (pgt_id)
LEFT JOIN pgtrickle._tiers i USING (pgt_id)
LEFT JOIN pgtrickle._fuse_states u USING (pgt_id)
LEFT JOIN LATERAL (
    SELECT pg_catalog.count(*) AS refreshes, pg_catalog.sum(r.rows_inserted) AS rows_inserted,
           pg_catalog.sum(r.rows_deleted) AS rows_deleted
    FROM pgtrickle.pgt_refresh_history r
    WHERE r.pgt_id OPERATOR(pg_catalog.=) s.pgt_id AND r.action OPERATOR(pg_catalog.<>) 'SKIP') h ON true
LEFT JOIN LATERAL (
    SELECT p.rows_done, p.rows_total,
           pg_catalog.date_part('epoch', p.updated_at OPERATOR(pg_catalog.-) p.started_at) AS seconds
    FROM pgtrickle.pgt_writes p WHERE p.pgt_id OPERATOR(pg_catalog.=) s.pgt_id) w ON true;
COMMENT ON VIEW pgtrickle.pg_stat_stream_tables IS
    'One row per stream table: its status, frontier, staleness, tier and schedule, how it was refreshed last and why, the rows of its refreshes, its last error, and the progress of a long write.';
SELECT pgtrickle._grant_to_readers_of('pgtrickle.pgt_stream_tables', 'pgtrickle.pg_stat_stream_tables');

CREATE OR REPLACE FUNCTION pgtrickle.pgt_status()
RETURNS TABLE (name text, status text, refresh_mode text, is_populated boolean, schedule text,
               frontier pg_lsn, data_timestamp timestamptz, staleness interval, last_error_message text,
               effective_refresh_mode text, consecutive_errors integer, next_refresh_at timestamptz, tier text,
               fuse_state text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', v.pgt_schema, v.pgt_name), v.status, v.refresh_mode, v.is_populated, v.schedule,
           v.frontier, v.data_timestamp, v.staleness, v.last_error_message,
           v.effective_refresh_mode, v.consecutive_errors, v.next_refresh_at, v.tier, v.fuse_state
    FROM pgtrickle.pg_stat_stream_tables v ORDER BY 1
$$;

CREATE OR REPLACE FUNCTION pgtrickle._get_refresh_history(name text, n integer, caller_path text)
RETURNS SETOF pgtrickle.pgt_refresh_history
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    RETURN QUERY SELECT h.* FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = st.pgt_id
                 ORDER BY h.refresh_id DESC LIMIT n;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.get_refresh_history(
    name text, n integer DEFAULT 20, search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS SETOF pgtrickle.pgt_refresh_history LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM pgtrickle._get_refresh_history(name, n, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.get_refresh_history IS 'List the newest refreshes of one stream table.';
COMMENT ON FUNCTION pgtrickle.pgt_status IS 'List every stream table with its status, its frontier and how stale it is.';
