-- Health checks: what works, and what is wrong. Whether a program beats is decided when somebody asks, by this server's
-- clock, so that the answer is right even if no program is left.

-- How long ago a beat was, in whole seconds; NULL if it is recent. One in the future is from before the clock was set back.
CREATE OR REPLACE FUNCTION pgtrickle._silence(beat_at timestamptz, now timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN now - beat_at > pgtrickle._silent_after() OR beat_at - now > interval '1 s'
                THEN abs(round(date_part('epoch', now - beat_at)))::bigint END
$$;

-- Why the consumer publishes nothing; NULL if it does, or if it never reported.
CREATE OR REPLACE FUNCTION pgtrickle._consumer_problem() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN pgtrickle._silence(k.consumer_beat_at, k.now) IS NOT NULL
                THEN format('pg-trickle-cdc has not been heard of for %s s: is it running, and does the broker answer?',
                            pgtrickle._silence(k.consumer_beat_at, k.now))
                ELSE 'pg-trickle-cdc: ' || k.consumer_problem END
    FROM pgtrickle._source_clock k
$$;

-- Why the applier does nothing; NULL if it works, or if it never reported.
CREATE OR REPLACE FUNCTION pgtrickle._applier_problem() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN pgtrickle._silence(k.applier_beat_at, k.now) IS NOT NULL
                THEN format('pg-trickle-applier has not been heard of for %s s: it hangs, or its machine or network does',
                            pgtrickle._silence(k.applier_beat_at, k.now))
                ELSE 'pg-trickle-applier: ' || k.applier_problem END
    FROM pgtrickle._source_clock k
$$;

CREATE OR REPLACE FUNCTION pgtrickle._identity_word(relreplident "char") RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE relreplident WHEN 'f' THEN 'full' WHEN 'd' THEN 'default' WHEN 'i' THEN 'index' WHEN 'n' THEN 'nothing' END
$$;

-- Whether a stream table is far behind its schedule. A frozen one has none.
CREATE OR REPLACE FUNCTION pgtrickle._is_stale(status text, tier text, staleness interval, next_refresh_at timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT status = 'ACTIVE' AND tier <> 'frozen' AND staleness > interval '30 s'
       AND clock_timestamp() > coalesce(next_refresh_at, '-infinity') + interval '30 s'
$$;

-- How stale a stream table may be: its SLA, else until 30 s after its next refresh is due. NULL where nothing refreshes it on purpose.
CREATE OR REPLACE FUNCTION pgtrickle._allowed_staleness(
    status text, tier text, sla interval, staleness interval, next_refresh_at timestamptz) RETURNS interval
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN status <> 'PAUSED' AND tier <> 'frozen'
                THEN coalesce(sla, greatest(staleness + (next_refresh_at - clock_timestamp()), interval '0') + interval '30 s') END
$$;

-- How bad the lag of the slot is, by the settings that the programs use for their alerts.
CREATE OR REPLACE FUNCTION pgtrickle._slot_lag_severity(lag_bytes numeric) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN lag_bytes > pgtrickle._setting('slot_lag_critical_threshold_mb')::numeric * 1048576 THEN 'ERROR'
                WHEN lag_bytes > pgtrickle._setting('slot_lag_warning_threshold_mb')::numeric * 1048576 THEN 'WARNING'
                ELSE 'OK' END
$$;

-- The leaf partitions of a source in one line: how many there are, how many have no complete old rows in the log, how many
-- the publication leaves out, and their replica identity. No row for a table without partitions.
CREATE OR REPLACE FUNCTION pgtrickle._leaves_of(root oid)
RETURNS TABLE (leaves bigint, incomplete bigint, unpublished bigint, identity text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH published AS MATERIALIZED (
        SELECT to_regclass(format('%I.%I', t.schemaname, t.tablename))::oid AS relid FROM pg_publication_tables t
        WHERE t.pubname = pgtrickle._setting('publication')
    )
    SELECT count(l.oid), count(l.oid) FILTER (WHERE NOT pgtrickle._has_row_identity(l.oid)),
           count(l.oid) FILTER (WHERE NOT EXISTS (SELECT FROM published p WHERE p.relid IN (l.oid, r.oid))),
           CASE WHEN count(DISTINCT l.relreplident) = 1 THEN pgtrickle._identity_word(min(l.relreplident::text)::"char")
                WHEN count(l.oid) > 0 THEN 'mixed' END
    FROM pg_class r
    LEFT JOIN LATERAL jsonb_object_keys(pgtrickle._partition_tree(r.oid)) k ON true
    LEFT JOIN pg_class l ON l.oid = k::oid
    WHERE r.oid = root AND r.relkind = 'p' GROUP BY r.oid
$$;

CREATE OR REPLACE FUNCTION pgtrickle.wal_source_status()
RETURNS TABLE (source text, publication text, replica_identity text, slot text, slot_active boolean, lag_bytes numeric,
               blocked_reason text, cdc_mode text, last_error text, last_error_at timestamptz, attempts integer,
               attempted_at timestamptz[], leaves bigint, leaves_incomplete bigint, leaves_unpublished bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH sources AS (
        SELECT DISTINCT d.source_relid, d.source_schema, d.source_name
        FROM pgtrickle.pgt_dependencies d WHERE d.source_type = 'TABLE' AND NOT pgtrickle._sources_elsewhere()
    )
    SELECT format('%I.%I', s.source_schema, s.source_name),
           (SELECT string_agg(p, ', ' ORDER BY p) FROM pgtrickle._publications_of(s.source_relid) p),
           coalesce(l.identity, pgtrickle._identity_word(c.relreplident)),
           r.slot_name, r.active, pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn),
           CASE
               WHEN c.oid IS NULL THEN 'the table was dropped'
               WHEN c.relkind = 'r' AND NOT pgtrickle._has_row_identity(c.oid) THEN 'old rows are not complete in the log: ALTER TABLE … REPLICA IDENTITY FULL'
               WHEN EXISTS (SELECT FROM pgtrickle._incomplete_leaves() l WHERE l.root = c.oid)
                   THEN format('old rows of later partitions are not complete in the log: SELECT pgtrickle.admit_partitions(%L)', c.oid::regclass)
               WHEN pgtrickle._setting('publication') NOT IN (SELECT p::text FROM pgtrickle._publications_of(s.source_relid) p)
                   THEN 'the table is not in publication ' || pgtrickle._setting('publication')
               WHEN p.reason IS NOT NULL THEN 'its changes cannot be published: ' || p.reason
               WHEN r.slot_name IS NULL THEN 'there is no replication slot ' || pgtrickle._setting('slot') || ': is pg-trickle-cdc running?'
               WHEN r.wal_status = 'lost' THEN 'the slot is invalid: the server removed log that it needs'
               WHEN NOT r.active THEN 'no program reads the slot: is pg-trickle-cdc running?'
               ELSE pgtrickle._consumer_problem()
           END,
           -- What the consumer reported: its mode, and the sessions on its slot that failed, also before it was started, the newest first.
           pgtrickle._setting('mode'), b.last_error, b.last_error_at, coalesce(b.attempts, 0), b.attempted_at,
           l.leaves, l.incomplete, l.unpublished
    FROM sources s
    LEFT JOIN pg_class c ON c.oid = s.source_relid
    LEFT JOIN pgtrickle.pgt_stopped_sources p USING (source_schema, source_name)
    LEFT JOIN LATERAL pgtrickle._leaves_of(c.oid) l ON true
    LEFT JOIN pg_replication_slots r ON r.slot_name = pgtrickle._setting('slot') AND r.database = current_database()
    LEFT JOIN pgtrickle.pgt_consumer_beats b ON b.slot = pgtrickle._setting('slot')
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.wal_source_status IS
    'Show how each source reaches the stream, what prevents it, the last error of the consumer and when sessions failed (attempts counts them all, attempted_at has the last five), also before it was started anew. A partitioned source is one line with its leaf partitions counted. Sources in another database are not listed.';

CREATE OR REPLACE FUNCTION pgtrickle.health_check() RETURNS TABLE (check_name text, severity text, detail text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot     record;
    found    text;
    lag      numeric;
BEGIN
    RETURN QUERY SELECT 'applier_running', CASE WHEN held AND problem IS NULL THEN 'OK' ELSE 'ERROR' END,
        CASE WHEN held THEN coalesce(problem, 'an applier maintains the stream tables')
             ELSE 'no applier runs: start pg-trickle-applier run' END
    FROM (SELECT pgtrickle._is_running('pg-trickle-applier'), pgtrickle._applier_problem()) AS applier(held, problem);

    RETURN QUERY SELECT 'consumer_running',
        CASE WHEN k.consumer_beat_at IS NULL THEN 'WARNING' WHEN problem IS NULL THEN 'OK' ELSE 'ERROR' END,
        CASE WHEN k.consumer_beat_at IS NULL
             THEN 'no beat of pg-trickle-cdc has arrived: start pg-trickle-cdc run, or GRANT SELECT, INSERT, UPDATE ON pgtrickle.pgt_consumer_beats to its role'
             ELSE coalesce(problem, 'the consumer reads the log') END
    FROM pgtrickle._source_clock k, pgtrickle._consumer_problem() AS problem;

    SELECT r.* INTO slot FROM pg_replication_slots r
    WHERE r.slot_name = pgtrickle._setting('slot') AND r.database = current_database();
    lag := pg_wal_lsn_diff(pg_current_wal_lsn(), slot.confirmed_flush_lsn);
    RETURN QUERY SELECT 'slot_lag',
        CASE WHEN pgtrickle._sources_elsewhere() THEN 'OK'
             WHEN slot.slot_name IS NULL OR NOT slot.active THEN 'ERROR'
             ELSE pgtrickle._slot_lag_severity(lag) END,
        CASE WHEN pgtrickle._sources_elsewhere() THEN 'the log of the sources is in another database: run the check there'
             WHEN slot.slot_name IS NULL THEN 'there is no replication slot ' || pgtrickle._setting('slot')
             WHEN NOT slot.active THEN 'no program reads slot ' || slot.slot_name || ': start pg-trickle-cdc run'
             ELSE pg_size_pretty(lag) || ' of log not yet acknowledged' END;

    SELECT string_agg(concat_ws(': ', format('%I.%I', s.pgt_schema, s.pgt_name), s.last_error_message), '; ') INTO found
    FROM pgtrickle.pgt_stream_tables s WHERE s.status = 'SUSPENDED' AND s.replaces IS NULL;
    RETURN QUERY SELECT 'error_tables', CASE WHEN found IS NULL THEN 'OK' ELSE 'ERROR' END,
        coalesce(found, 'no stream table is suspended');

    SELECT string_agg(format('%I.%I: %s', s.pgt_schema, s.pgt_name, k.reason), '; ' ORDER BY s.pgt_id) INTO found
    FROM pgtrickle.pgt_kept_columns k JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE coalesce(s.auto_evolve, pgtrickle._setting('auto_evolve')::boolean, false);
    RETURN QUERY SELECT 'evolution', CASE WHEN found IS NULL THEN 'OK' ELSE 'WARNING' END,
        coalesce('keeps its columns, although its sources have new ones: ' || found,
                 'no stream table with auto_evolve lacks a column that was added');

    SELECT string_agg(format('%I.%I: %s', s.pgt_schema, s.pgt_name, f.problem), '; ' ORDER BY s.pgt_id) INTO found
    FROM pgtrickle.pgt_stream_tables s CROSS JOIN LATERAL pgtrickle._fuse_findings(s.pgt_id) f;
    RETURN QUERY SELECT 'fuses', CASE WHEN found IS NULL THEN 'OK' ELSE 'WARNING' END,
        coalesce(found, 'no fuse keeps a stream table from being equal to its query');

    SELECT string_agg(format('%I.%I', s.pgt_schema, s.pgt_name), ', ') INTO found
    FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle._freshness f USING (pgt_id)
    LEFT JOIN pgtrickle.pgt_runtime t USING (pgt_id)
    LEFT JOIN pgtrickle._tiers i USING (pgt_id)
    WHERE s.replaces IS NULL AND pgtrickle._is_stale(s.status, i.tier, f.staleness, t.next_refresh_at)
      -- What is held on purpose is in the line of the gates.
      AND NOT EXISTS (SELECT FROM pgtrickle._held_by(s.pgt_id));
    RETURN QUERY SELECT 'stale_tables', CASE WHEN found IS NULL THEN 'OK' ELSE 'WARNING' END,
        coalesce('far behind their schedule: ' || found, 'every stream table is fresh');

    -- Where self-monitoring is set up.
    SELECT string_agg(format('%I.%I: %s ms at %s, on average %s ms', s.pgt_schema, s.pgt_name, a.took_ms, a.start_time, a.mean_ms),
                      '; ' ORDER BY s.pgt_id) INTO found
    FROM pgtrickle._slow_refreshes(interval '1 hour') a JOIN pgtrickle.pgt_stream_tables s USING (pgt_id);
    RETURN QUERY SELECT 'slow_refreshes', CASE WHEN found IS NULL THEN 'OK' ELSE 'WARNING' END,
        coalesce('refreshes that took unusually long: ' || found, 'no refresh of the last hour took unusually long')
    WHERE to_regclass('pgtrickle.df_anomaly') IS NOT NULL;

    SELECT string_agg(w.source || ': ' || w.blocked_reason, '; ') INTO found
    FROM pgtrickle.wal_source_status() w WHERE w.blocked_reason IS NOT NULL;
    RETURN QUERY SELECT 'sources', CASE WHEN found IS NULL THEN 'OK' ELSE 'ERROR' END,
        coalesce(found, 'every source is in the stream');

    RETURN QUERY SELECT 'gates', g.severity, g.detail FROM pgtrickle._gate_health() g;

    RETURN QUERY SELECT 'source_ddl', CASE WHEN d.finding IS NULL THEN 'OK' ELSE 'INFO' END,
        coalesce(d.finding, 'DDL on what stream tables read is in the log at its position')
    FROM (SELECT CASE
        WHEN pgtrickle._sources_elsewhere() THEN 'the sources are in another database: the consumer compares their tables once a second'
        WHEN NOT pg_has_role((SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'pgtrickle'), 'pg_read_all_stats', 'USAGE')
            THEN 'the owner of schema pgtrickle may not see what other sessions do; only locks tell of DDL that is being '
                 'committed: GRANT pg_read_all_stats to it'
        WHEN (SELECT count(*) FROM pg_event_trigger t WHERE t.evtname IN ('pgtrickle_ddl_end', 'pgtrickle_drop')
              AND t.evtenabled <> 'D') < 2
            THEN 'there are no event triggers: DDL is noticed by comparison, and new partitions need SELECT '
                 'pgtrickle.admit_partitions(…); a superuser may run pg-trickle-applier install to create them' END) AS d(finding);

    RETURN QUERY SELECT 'standby', 'OK',
        CASE WHEN count(*) = 0 THEN 'no applier stands by: a second pg-trickle-applier run would'
             ELSE format('%s %s by', count(*), CASE count(*) WHEN 1 THEN 'applier stands' ELSE 'appliers stand' END) END
        || coalesce((SELECT format('; the present one took over at %s: %s', o.taken_at, o.reason)
                     FROM pgtrickle.pgt_ownership o WHERE o.slot = pgtrickle._setting('slot')), '')
    FROM pgtrickle.pgt_applier_instances i
    WHERE i.slot = pgtrickle._setting('slot') AND i.role = 'standby' AND pgtrickle._silence(i.beat_at, clock_timestamp()) IS NULL;
END $$;
COMMENT ON FUNCTION pgtrickle.health_check IS 'Return one line per check: severity OK, WARNING or ERROR, and what to do.';

CREATE OR REPLACE FUNCTION pgtrickle._staleness(name text, caller_path text) RETURNS interval
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    RETURN (SELECT f.staleness FROM pgtrickle._freshness f WHERE f.pgt_id = st.pgt_id);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.get_staleness(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS double precision
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pg_catalog.date_part('epoch', pgtrickle._staleness(name, search_path));
END $$;
COMMENT ON FUNCTION pgtrickle.get_staleness IS 'Return how long the oldest source commit that the stream table may lack has been waiting, in seconds; NULL before it is filled.';

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
    'Refresh the stream table and wait for it if it is staler than max_age; return whether it was.';

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
    FROM pgtrickle.pgt_stream_tables s
    LEFT JOIN pgtrickle.pgt_refresh_history h ON h.pgt_id = s.pgt_id AND h.action NOT IN ('NO_DATA', 'SKIP')
    GROUP BY s.pgt_id ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.refresh_efficiency IS 'Show how often each stream table changed, how many rows, and how long it took.';
