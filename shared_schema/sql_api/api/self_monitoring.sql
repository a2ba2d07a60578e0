-- Self-monitoring: stream tables over the refresh history, maintained like any other. A refresh of one of them that changes rows
-- is in the history too, started by SELF_MONITOR, and their queries leave these rows out: so none of them makes another one
-- necessary. A refresh that changes nothing writes no history.

CREATE OR REPLACE FUNCTION pgtrickle._self_monitoring() RETURNS TABLE (place integer, name text, description text, query text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    VALUES
    (1, 'df_efficiency', 'Per stream table and action: refreshes, their rows and times.', $query$
        SELECT h.pgt_id, h.action, count(*) AS refreshes, sum(h.rows_in) AS rows_in, sum(h.rows_inserted) AS rows_inserted,
               sum(h.rows_deleted) AS rows_deleted, round(avg((h.compute_ms + h.write_ms)::bigint), 1) AS mean_ms,
               max((h.compute_ms + h.write_ms)::bigint) AS max_ms
        FROM pgtrickle.pgt_refresh_history h
        WHERE h.initiated_by <> 'SELF_MONITOR' AND h.status = 'COMPLETED' AND h.action <> 'SKIP'
        GROUP BY h.pgt_id, h.action$query$),
    (2, 'df_anomaly', 'Refreshes that took a second or more, and over four times as long as ten or more of their kind on average.', $query$
        SELECT h.refresh_id, h.pgt_id, h.action, h.start_time, h.rows_in, (h.compute_ms + h.write_ms)::bigint AS took_ms,
               e.mean_ms
        FROM pgtrickle.pgt_refresh_history h
        JOIN pgtrickle.df_efficiency e ON e.pgt_id = h.pgt_id AND e.action = h.action
        WHERE h.initiated_by <> 'SELF_MONITOR' AND h.status = 'COMPLETED' AND (h.compute_ms + h.write_ms)::bigint >= 1000
          AND e.refreshes >= 10 AND (h.compute_ms + h.write_ms)::bigint > 4 * e.mean_ms$query$),
    (3, 'df_failures', 'Per stream table and error: how often refreshes failed, first and last.', $query$
        SELECT h.pgt_id, h.error_message, count(*) AS failures, min(h.start_time) AS first_at, max(h.start_time) AS last_at
        FROM pgtrickle.pgt_refresh_history h
        WHERE h.initiated_by <> 'SELF_MONITOR' AND h.status = 'FAILED'
        GROUP BY h.pgt_id, h.error_message$query$),
    (4, 'df_freshness', 'Per stream table: how old its rows were when refreshes replaced them.', $query$
        SELECT h.pgt_id, count(*) AS refreshes, round(avg(h.freshness_ms::bigint), 1) AS mean_ms,
               max(h.freshness_ms::bigint) AS max_ms, max(h.end_time) AS refreshed_at
        FROM pgtrickle.pgt_refresh_history h
        WHERE h.initiated_by <> 'SELF_MONITOR' AND h.status = 'COMPLETED' AND h.freshness_ms IS NOT NULL
        GROUP BY h.pgt_id$query$)
$$;

-- Only stream tables of schema pgtrickle may read its tables as sources: the refreshes of any other one are in the history, so
-- each would make the next one necessary, for ever.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_own_tables(schema_name text, reads jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own  text := (SELECT min(format('%I.%I', r ->> 'schema', r ->> 'name')) FROM jsonb_array_elements(reads) r
                  WHERE r ->> 'schema' = 'pgtrickle' AND r ->> 'type' <> 'UNCAPTURED');
BEGIN
    IF own IS NOT NULL AND schema_name <> 'pgtrickle' THEN
        RAISE EXCEPTION 'a stream table over % would refresh itself without end', own
            USING HINT = 'SELECT pgtrickle.setup_self_monitoring() makes stream tables over the history; read them with a view.',
                  ERRCODE = 'wrong_object_type';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.setup_self_monitoring() RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted  record;
    pub     text := pgtrickle._setting('publication');
BEGIN
    IF NOT has_schema_privilege('pgtrickle', 'CREATE') THEN
        RAISE EXCEPTION 'self-monitoring needs the right to create tables in schema pgtrickle'
            USING HINT = format('Call it as a member of %s, who owns the schema.',
                                (SELECT n.nspowner::regrole FROM pg_namespace n WHERE n.nspname = 'pgtrickle')),
                  ERRCODE = 'insufficient_privilege';
    ELSIF pgtrickle._sources_elsewhere() THEN
        RAISE EXCEPTION 'the refresh history is not in the stream: the sources are in another database'
            USING HINT = 'Read pgtrickle.pgt_refresh_history, refresh_efficiency() and refresh_timeline() instead.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF EXISTS (SELECT FROM pg_publication p WHERE p.pubname = pub AND p.puballtables) THEN
        RAISE EXCEPTION 'publication % has all tables, of which those of schema pgtrickle are never captured', quote_ident(pub)
            USING HINT = 'Self-monitoring needs a publication that lists its tables.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    FOR wanted IN SELECT m.*, s.pgt_id FROM pgtrickle._self_monitoring() m
                  LEFT JOIN pgtrickle.pgt_stream_tables s ON s.pgt_schema = 'pgtrickle' AND s.pgt_name = m.name
                  ORDER BY m.place LOOP
        name := 'pgtrickle.' || wanted.name;
        outcome := CASE WHEN wanted.pgt_id IS NULL THEN 'created' ELSE 'exists' END;
        IF wanted.pgt_id IS NULL THEN
            PERFORM pgtrickle.create_stream_table(name, wanted.query, '30s', search_path => 'pg_catalog');
            EXECUTE format('COMMENT ON TABLE %s IS %L', name, wanted.description);
            -- Readers of the history may read what is made of it.
            PERFORM pgtrickle._grant_to_readers_of('pgtrickle.pgt_refresh_history', name::regclass);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION pgtrickle.setup_self_monitoring IS
    'Make stream tables df_* over the refresh history in schema pgtrickle, which feed health_check(), the alert slow_refresh, df_threshold_advice and recommend_schedule(); returns what was made. Those that exist stay.';

CREATE OR REPLACE FUNCTION pgtrickle.teardown_self_monitoring() RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known  record;
    pub    text := pgtrickle._setting('publication');
BEGIN
    FOR known IN SELECT m.name AS table_name, s.pgt_id FROM pgtrickle._self_monitoring() m
                 JOIN pgtrickle.pgt_stream_tables s ON s.pgt_schema = 'pgtrickle' AND s.pgt_name = m.name
                 ORDER BY m.place DESC LOOP
        name := 'pgtrickle.' || known.table_name;
        outcome := 'dropped';
        PERFORM pgtrickle._drop_stream_table(name, false, 'pg_catalog');
        RETURN NEXT;
    END LOOP;
    -- The history is ours: unlike the sources of others, it leaves the stream with its last reader.
    IF NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                   WHERE d.source_relid = 'pgtrickle.pgt_refresh_history'::regclass AND d.source_type = 'TABLE')
       AND EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                   WHERE p.pubname = pub AND r.prrelid = 'pgtrickle.pgt_refresh_history'::regclass) THEN
        PERFORM pgtrickle._mark_own_ddl(true);
        EXECUTE format('ALTER PUBLICATION %I DROP TABLE pgtrickle.pgt_refresh_history', pub);
        ALTER TABLE pgtrickle.pgt_refresh_history REPLICA IDENTITY DEFAULT;
        PERFORM pgtrickle._mark_own_ddl(false);
    END IF;
END $$;
COMMENT ON FUNCTION pgtrickle.teardown_self_monitoring IS
    'Drop the stream tables of setup_self_monitoring() and take the refresh history out of the stream; returns what was dropped.';

CREATE OR REPLACE FUNCTION pgtrickle.self_monitoring_status()
RETURNS TABLE (name text, status text, schedule text, staleness interval, refreshes bigint, description text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'pgtrickle.' || m.name, coalesce(s.status, 'NOT SET UP'), s.schedule, f.staleness,
           (SELECT count(*) FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = s.pgt_id), m.description
    FROM pgtrickle._self_monitoring() m
    LEFT JOIN pgtrickle.pgt_stream_tables s ON s.pgt_schema = 'pgtrickle' AND s.pgt_name = m.name
    LEFT JOIN pgtrickle._freshness f USING (pgt_id)
    ORDER BY m.place
$$;
COMMENT ON FUNCTION pgtrickle.self_monitoring_status IS
    'Show the stream tables of setup_self_monitoring(): whether they are there, how stale they are, and how many of their refreshes the history has.';

-- The newest unusually slow refresh of each stream table. None without self-monitoring, or for who may not read it.
CREATE OR REPLACE FUNCTION pgtrickle._slow_refreshes(since interval)
RETURNS TABLE (pgt_id bigint, refresh_id bigint, start_time timestamptz, took_ms bigint, mean_ms numeric)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF has_table_privilege(to_regclass('pgtrickle.df_anomaly'), 'SELECT') THEN
        RETURN QUERY EXECUTE 'SELECT DISTINCT ON (a.pgt_id) a.pgt_id, a.refresh_id, a.start_time, a.took_ms, a.mean_ms'
            ' FROM pgtrickle.df_anomaly a WHERE a.start_time > clock_timestamp() - $1 ORDER BY a.pgt_id, a.refresh_id DESC'
            USING since;
    END IF;
END $$;
