-- Health checks: what works, and what is wrong.

CREATE OR REPLACE FUNCTION pgtrickle.wal_source_status()
RETURNS TABLE (source text, publication text, replica_identity text, slot text, slot_active boolean, lag_bytes numeric,
               blocked_reason text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH sources AS (
        SELECT DISTINCT d.source_relid, d.source_schema, d.source_name
        FROM pgtrickle.pgt_dependencies d WHERE d.source_type = 'TABLE' AND NOT pgtrickle._sources_elsewhere()
    )
    SELECT format('%I.%I', s.source_schema, s.source_name),
           (SELECT string_agg(p.pubname, ', ' ORDER BY p.pubname) FROM pg_publication_tables p
            WHERE p.schemaname = s.source_schema AND p.tablename = s.source_name),
           CASE c.relreplident WHEN 'f' THEN 'full' WHEN 'd' THEN 'default' WHEN 'i' THEN 'index' WHEN 'n' THEN 'nothing' END,
           r.slot_name, r.active, pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn),
           CASE
               WHEN c.oid IS NULL THEN 'the table was dropped'
               WHEN c.relkind = 'r' AND NOT pgtrickle._has_row_identity(c.oid) THEN 'old rows are not complete in the log: ALTER TABLE … REPLICA IDENTITY FULL'
               WHEN NOT EXISTS (SELECT FROM pg_publication_tables p WHERE p.pubname = pgtrickle._setting('publication')
                                AND p.schemaname = s.source_schema AND p.tablename = s.source_name)
                   THEN 'the table is not in publication ' || pgtrickle._setting('publication')
               WHEN r.slot_name IS NULL THEN 'there is no replication slot ' || pgtrickle._setting('slot') || ': is pg-trickle-cdc running?'
               WHEN r.wal_status = 'lost' THEN 'the slot is invalid: the server removed log that it needs'
               WHEN NOT r.active THEN 'no program reads the slot: is pg-trickle-cdc running?'
           END
    FROM sources s
    LEFT JOIN pg_class c ON c.oid = s.source_relid
    LEFT JOIN pg_replication_slots r ON r.slot_name = pgtrickle._setting('slot') AND r.database = current_database()
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.wal_source_status IS 'Show how each source reaches the stream, and what prevents it. Sources in another database are not listed.';

CREATE OR REPLACE FUNCTION pgtrickle.health_check() RETURNS TABLE (check_name text, severity text, detail text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot     record;
    found    text;
    lag      numeric;
BEGIN
    RETURN QUERY SELECT 'applier_running', CASE WHEN held THEN 'OK' ELSE 'ERROR' END,
        CASE WHEN held THEN 'an applier maintains the stream tables' ELSE 'no applier runs: start pg-trickle-applier run' END
    FROM (SELECT pgtrickle._is_running('pg-trickle-applier')) AS applier(held);

    SELECT r.* INTO slot FROM pg_replication_slots r
    WHERE r.slot_name = pgtrickle._setting('slot') AND r.database = current_database();
    lag := pg_wal_lsn_diff(pg_current_wal_lsn(), slot.confirmed_flush_lsn);
    RETURN QUERY SELECT 'slot_lag',
        CASE WHEN pgtrickle._sources_elsewhere() THEN 'OK'
             WHEN slot.slot_name IS NULL OR NOT slot.active OR lag > 1024 * 1048576 THEN 'ERROR'
             WHEN lag > 100 * 1048576 THEN 'WARNING' ELSE 'OK' END,
        CASE WHEN pgtrickle._sources_elsewhere() THEN 'the log of the sources is in another database: run the check there'
             WHEN slot.slot_name IS NULL THEN 'there is no replication slot ' || pgtrickle._setting('slot')
             WHEN NOT slot.active THEN 'no program reads slot ' || slot.slot_name || ': start pg-trickle-cdc run'
             ELSE pg_size_pretty(lag) || ' of log not yet acknowledged' END;

    SELECT string_agg(format('%I.%I', s.pgt_schema, s.pgt_name) || ': ' || s.last_error_message, '; ') INTO found
    FROM pgtrickle.pgt_stream_tables s WHERE s.status = 'SUSPENDED';
    RETURN QUERY SELECT 'error_tables', CASE WHEN found IS NULL THEN 'OK' ELSE 'ERROR' END,
        coalesce(found, 'no stream table is suspended');

    SELECT string_agg(format('%I.%I', s.pgt_schema, s.pgt_name), ', ') INTO found
    FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle.pgt_frontiers f USING (pgt_id)
    LEFT JOIN pgtrickle.pgt_runtime t USING (pgt_id)
    WHERE s.status = 'ACTIVE'
      AND clock_timestamp() > greatest(coalesce(t.next_refresh_at, f.data_timestamp), f.data_timestamp) + interval '30 s';
    RETURN QUERY SELECT 'stale_tables', CASE WHEN found IS NULL THEN 'OK' ELSE 'WARNING' END,
        coalesce('far behind their schedule: ' || found, 'every stream table is fresh');

    SELECT string_agg(w.source || ': ' || w.blocked_reason, '; ') INTO found
    FROM pgtrickle.wal_source_status() w WHERE w.blocked_reason IS NOT NULL;
    RETURN QUERY SELECT 'sources', CASE WHEN found IS NULL THEN 'OK' ELSE 'ERROR' END,
        coalesce(found, 'every source is in the stream');
END $$;
COMMENT ON FUNCTION pgtrickle.health_check IS 'Return one line per check: severity OK, WARNING or ERROR, and what to do.';

CREATE OR REPLACE FUNCTION pgtrickle._staleness(name text, caller_path text) RETURNS interval
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    RETURN (SELECT clock_timestamp() - f.data_timestamp FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = st.pgt_id);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.get_staleness(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS double precision
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pg_catalog.date_part('epoch', pgtrickle._staleness(name, search_path));
END $$;
COMMENT ON FUNCTION pgtrickle.get_staleness IS 'Return the age of the stream table''s rows in seconds; NULL before it is filled.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_if_stale(
    name text, max_age interval DEFAULT '5 minutes',
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
BEGIN
    IF pgtrickle._staleness(name, search_path) OPERATOR(pg_catalog.<=) max_age THEN
        RETURN false;
    END IF;
    PERFORM pgtrickle._wait_for(name, NULL, pg_catalog.make_interval(mins => 10), search_path);
    RETURN true;
END $$;
COMMENT ON FUNCTION pgtrickle.refresh_if_stale IS
    'Refresh the stream table and wait for it if its rows are older than max_age; return whether they were.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_timeline(n integer DEFAULT 50)
RETURNS TABLE (start_time timestamptz, name text, action text, rows_inserted bigint, rows_deleted bigint,
               duration_ms double precision, tick_watermark_lsn pg_lsn, status text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.start_time, format('%I.%I', s.pgt_schema, s.pgt_name), h.action, h.rows_inserted, h.rows_deleted,
           date_part('epoch', h.end_time - h.start_time) * 1000, h.tick_watermark_lsn, h.status
    FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    ORDER BY h.refresh_id DESC LIMIT n
$$;
COMMENT ON FUNCTION pgtrickle.refresh_timeline IS 'List the newest refreshes of all stream tables.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_efficiency()
RETURNS TABLE (name text, refreshes bigint, rows_changed numeric, avg_ms double precision, p95_ms double precision,
               rows_per_refresh numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', s.pgt_schema, s.pgt_name), count(h.refresh_id),
           coalesce(sum(h.rows_inserted + h.rows_deleted), 0),
           avg(date_part('epoch', h.end_time - h.start_time) * 1000),
           percentile_cont(0.95) WITHIN GROUP (ORDER BY date_part('epoch', h.end_time - h.start_time) * 1000),
           round(avg(h.rows_inserted + h.rows_deleted), 1)
    FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_refresh_history h USING (pgt_id)
    GROUP BY s.pgt_id ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.refresh_efficiency IS 'Show how often each stream table changed, how many rows, and how long it took.';
