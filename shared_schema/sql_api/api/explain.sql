-- Explains how stream tables are maintained, and whether a query can be. The applier makes the plans: it stores the plan
-- of each stream table, and plans other queries on request. Requests reach it through the log.

-- Sends a query to the applier and waits for its reply, inside a READ COMMITTED transaction. NULL if none comes in time.
CREATE OR REPLACE FUNCTION pgtrickle._send_request(query text, caller_path text, timeout interval) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    request   uuid := gen_random_uuid();
    content   text := 'ask ' || jsonb_build_object('question', request, 'query', query, 'search_path', caller_path)::text;
    give_up   timestamptz := clock_timestamp() + timeout;
    sent_at   timestamptz;
    reply     jsonb;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a % transaction cannot see the reply of the applier', current_setting('transaction_isolation')
            USING HINT = 'Call it outside a transaction or under READ COMMITTED.', ERRCODE = 'feature_not_supported';
    ELSIF pgtrickle._sources_elsewhere() THEN
        RAISE EXCEPTION 'the applier receives requests through the log of the sources, which is in another database'
            USING HINT = 'Use pg-trickle-applier explain --query.', ERRCODE = 'feature_not_supported';
    ELSIF NOT pgtrickle._is_running('pg-trickle-applier') THEN
        RAISE EXCEPTION 'no applier runs that could reply'
            USING HINT = 'Start pg-trickle-applier run, or use pg-trickle-applier explain --query.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    LOOP
        SELECT a.answer INTO reply FROM pgtrickle.pgt_answers a WHERE a.question = request;
        IF FOUND THEN
            RETURN reply;
        ELSIF clock_timestamp() >= give_up THEN
            RETURN NULL;
        END IF;
        IF sent_at IS NULL OR clock_timestamp() >= sent_at + interval '2 seconds' THEN
            PERFORM pgtrickle._emit(content);
            sent_at := clock_timestamp();
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.validate_query(
    query text, timeout interval DEFAULT '30 s',
    search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (check_name text, result text, severity text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer jsonb;
BEGIN
    -- If PostgreSQL itself rejects the query, the caller gets that error at once.
    EXECUTE format('DROP VIEW %s', pgtrickle._analyse(query, search_path)::regclass);
    answer := pgtrickle._send_request(query, search_path, timeout);
    IF answer IS NULL THEN
        RAISE EXCEPTION 'the applier did not reply within %', timeout
            USING HINT = 'Is pg-trickle-cdc running? The applier receives requests through it. See pgtrickle.health_check().',
                  ERRCODE = 'query_canceled';
    ELSIF NOT (answer ->> 'supported')::boolean THEN
        RETURN QUERY
        SELECT v.* FROM (VALUES
            ('supported', answer ->> 'problem', 'ERROR'),
            ('code', answer ->> 'code', 'ERROR'),
            ('place', 'line ' || (answer ->> 'line') || ', column ' || (answer ->> 'column'), 'INFO'),
            ('hint', answer ->> 'hint', 'INFO'),
            ('refresh_mode', CASE WHEN (answer ->> 'full_in_postgres')::boolean
                                  THEN 'FULL only, run by PostgreSQL itself' ELSE 'none' END, 'WARNING')
        ) v WHERE v.column2 <> '';
        RETURN;
    END IF;
    RETURN QUERY SELECT 'supported', 'yes', 'OK' UNION ALL SELECT 'refresh_mode', 'DIFFERENTIAL', 'OK'
    UNION ALL SELECT 'complexity', answer ->> 'complexity',
                     CASE answer ->> 'complexity' WHEN 'whole_input' THEN 'WARNING' ELSE 'OK' END
    UNION ALL SELECT 'row_key', CASE answer -> 'row_key' WHEN 'null' THEN 'none: equal rows are counted'
                                WHEN '[]' THEN 'one row'
                                ELSE (SELECT string_agg(k, ', ') FROM jsonb_array_elements_text(answer -> 'row_key') k) END,
                     'INFO'
    UNION ALL SELECT 'reads', r ->> 'table', 'INFO' FROM jsonb_array_elements(answer -> 'reads') r
    UNION ALL SELECT 'in_full', (f ->> 'node') || ': ' || (f ->> 'reason'), 'WARNING'
              FROM jsonb_array_elements(answer -> 'in_full') f
    UNION ALL SELECT 'suggestion', s, 'INFO' FROM jsonb_array_elements_text(answer -> 'suggestions') s;
END $$;
COMMENT ON FUNCTION pgtrickle.validate_query IS
    'Tell whether a query can be maintained incrementally and how; if not, why and where. Asks the running applier, creates nothing.';

-- Returns the stored plan with what the catalog has: options, status, costs of the last refreshes.
CREATE OR REPLACE FUNCTION pgtrickle.explain_json(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st     pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    known  jsonb := (SELECT p.plan FROM pgtrickle.pgt_plans p WHERE p.pgt_id = st.pgt_id);
    costs  jsonb;
BEGIN
    SELECT jsonb_build_object('refreshes', count(*), 'avg_ms', round(avg(h.ms)::numeric, 1),
                              'p95_ms', round(percentile_cont(0.95) WITHIN GROUP (ORDER BY h.ms)::numeric, 1),
                              'rows_changed', coalesce(sum(h.rows_inserted + h.rows_deleted), 0),
                              'avg_rows_in', round(avg(h.rows_in), 1),
                              'avg_rows_written', round(avg(h.rows_inserted + h.rows_deleted), 1))
    INTO costs
    FROM (SELECT r.*, date_part('epoch', r.end_time - r.start_time) * 1000 AS ms FROM pgtrickle.pgt_refresh_history r
          WHERE r.pgt_id = st.pgt_id ORDER BY r.refresh_id DESC LIMIT 100) h;
    RETURN jsonb_build_object(
        'name', format('%I.%I', st.pgt_schema, st.pgt_name), 'query', st.original_query, 'status', st.status,
        'refresh_mode', st.refresh_mode, 'schedule', st.schedule, 'error', st.last_error_message,
        'hint', st.last_error_hint, 'costs_of_last_100', costs,
        'runtime', (SELECT to_jsonb(r) - 'pgt_id' FROM pgtrickle.pgt_runtime r WHERE r.pgt_id = st.pgt_id),
        'thresholds', jsonb_build_object(
            'full_policy', st.full_policy,
            'max_change_ratio', coalesce(st.auto_threshold,
                                         pgtrickle._setting('differential_max_change_ratio')::double precision)),
        'last_refresh', (SELECT jsonb_build_object('action', r.action, 'reason', r.refresh_reason,
                                'detail', r.refresh_reason_detail, 'at', r.end_time, 'rows_in', r.rows_in,
                                'compute_ms', r.compute_ms, 'write_ms', r.write_ms,
                                'ms', date_part('epoch', r.end_time - r.start_time) * 1000,
                                'rows_inserted', r.rows_inserted, 'rows_deleted', r.rows_deleted)
                         FROM pgtrickle.pgt_refresh_history r WHERE r.pgt_id = st.pgt_id
                         ORDER BY r.refresh_id DESC LIMIT 1))
        || coalesce(known, '{}');
END $$;
COMMENT ON FUNCTION pgtrickle.explain_json IS
    'Show how a stream table is maintained, as JSON: plan, strategies, costs, suggestions.';

CREATE OR REPLACE FUNCTION pgtrickle.explain_stream_table(
    name text, format text DEFAULT 'text',
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e     jsonb := pgtrickle.explain_json(name, search_path);
    said  text;
BEGIN
    IF lower(explain_stream_table.format) = 'json' THEN
        RETURN jsonb_pretty(e);
    ELSIF lower(explain_stream_table.format) <> 'text' THEN
        RAISE EXCEPTION 'format % is not known', explain_stream_table.format
            USING HINT = 'Use text or json.', ERRCODE = 'invalid_parameter_value';
    END IF;
    said := pg_catalog.format(E'%s, %s, refresh mode %s, schedule %s\n', e ->> 'name', e ->> 'status',
                              e ->> 'refresh_mode', e ->> 'schedule');
    IF e ->> 'error' IS NOT NULL THEN
        said := said || pg_catalog.format(E'error: %s\nhint: %s\n', e ->> 'error', e ->> 'hint');
    END IF;
    said := said || E'\n' || coalesce(e ->> 'text', E'The applier has not planned it yet.\n');
    IF e ->> 'refresh_mode' = 'AUTO' THEN
        said := said || pg_catalog.format(
            E'recomputed in full when more than %s %% of the sources'' rows changed, full_policy %s\n',
            trim_scale((e #>> '{thresholds,max_change_ratio}')::numeric * 100), e #>> '{thresholds,full_policy}');
    END IF;
    IF e -> 'last_refresh' <> 'null' THEN
        said := said || pg_catalog.format(E'last refresh: %s (%s), %s%s rows inserted, %s deleted in %s ms%s\n',
            e #>> '{last_refresh,action}', e #>> '{last_refresh,reason}',
            (e #>> '{last_refresh,rows_in}') || ' change rows read, ', e #>> '{last_refresh,rows_inserted}',
            e #>> '{last_refresh,rows_deleted}', round((e #>> '{last_refresh,ms}')::numeric, 1),
            CASE WHEN e #>> '{last_refresh,compute_ms}' IS NOT NULL THEN
                pg_catalog.format(': %s ms to compute, %s ms to write', round((e #>> '{last_refresh,compute_ms}')::numeric, 1),
                                  round((e #>> '{last_refresh,write_ms}')::numeric, 1)) END);
        said := said || pg_catalog.format(E'last %s refreshes: %s ms on average, 95 %% within %s ms; each %s%s rows written\n',
            e #>> '{costs_of_last_100,refreshes}', e #>> '{costs_of_last_100,avg_ms}',
            e #>> '{costs_of_last_100,p95_ms}', (e #>> '{costs_of_last_100,avg_rows_in}') || ' change rows read and ',
            e #>> '{costs_of_last_100,avg_rows_written}');
    END IF;
    RETURN said || coalesce((SELECT string_agg('suggestion: ' || s || E'\n', '')
                             FROM jsonb_array_elements_text(e -> 'suggestions') s), '');
END $$;
COMMENT ON FUNCTION pgtrickle.explain_stream_table IS
    'Show how a stream table is maintained: plan, what is read and computed in full, costs, suggestions. Format text or json.';

CREATE OR REPLACE FUNCTION pgtrickle.explain_refresh_mode(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (configured_mode text, effective_mode text, downgrade_reason text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
BEGIN
    RETURN QUERY SELECT st.refresh_mode, r.effective_refresh_mode,
                        CASE WHEN r.effective_refresh_mode LIKE 'FULL%' AND st.refresh_mode <> 'FULL'
                             THEN concat_ws(': ', r.effective_reason, nullif(h.refresh_reason_detail, '')) END
    FROM (VALUES (1)) one LEFT JOIN pgtrickle.pgt_runtime r ON r.pgt_id = st.pgt_id
    LEFT JOIN LATERAL (
        SELECT x.refresh_reason_detail FROM pgtrickle.pgt_refresh_history x
        WHERE x.pgt_id = st.pgt_id AND x.refresh_reason = r.effective_reason ORDER BY x.refresh_id DESC LIMIT 1) h ON true;
END $$;
COMMENT ON FUNCTION pgtrickle.explain_refresh_mode IS
    'Show the configured refresh mode, the mode of the last refresh, and the reason if that was a full refresh.';

CREATE OR REPLACE FUNCTION pgtrickle.stream_table_lineage(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (output_col text, source_table text, source_col text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
BEGIN
    RETURN QUERY
    SELECT c ->> 'name', quote_ident(o ->> 0) || '.' || quote_ident(o ->> 1), o ->> 2
    FROM pgtrickle.pgt_plans p, jsonb_array_elements(p.plan -> 'columns') WITH ORDINALITY AS columns(c, n)
    LEFT JOIN LATERAL jsonb_array_elements(c -> 'made_of') o ON true
    WHERE p.pgt_id = st.pgt_id ORDER BY n, 2, 3;
END $$;
COMMENT ON FUNCTION pgtrickle.stream_table_lineage IS
    'Show from which source columns each column is computed; a column without any is a constant or a count.';
