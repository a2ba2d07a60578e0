-- Explains how stream tables are maintained, and whether a query can be. The applier makes the plans: it stores the plan
-- of each stream table, and plans other queries on request. Requests reach it through the log.

-- Puts a question into the log, signed with who asks and when: the applier answers no other. Whoever may use the schema
-- may ask. The role is the one of the session, whatever functions called this one.
CREATE OR REPLACE FUNCTION pgtrickle._ask(question uuid, content jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    body    text := (content || jsonb_build_object('question', question, 'at', date_part('epoch', clock_timestamp()),
        'asker', CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END))::text;
    -- The topic takes records up to a megabyte, and a character may have four bytes.
    size    constant integer := 200000;
    pieces  integer := (length(body) + size - 1) / size;
    mark    uuid := gen_random_uuid();
BEGIN
    IF pieces > 20 THEN
        RAISE EXCEPTION 'the query is too large to be sent to the applier'
            USING HINT = 'Use pg-trickle-applier explain --query.', ERRCODE = 'program_limit_exceeded';
    ELSIF pieces = 1 THEN
        PERFORM pgtrickle._emit_signed('ask', body, false);
    ELSE
        PERFORM pgtrickle._emit_signed('ask_part', format('%s %s %s %s', mark, i, pieces, substr(body, i * size + 1, size)), false)
        FROM generate_series(0, pieces - 1) i;
    END IF;
END $$;

-- The columns of relations as this transaction sees them, in one number. The applier compares it with what it sees: a tree
-- names columns by their numbers.
CREATE OR REPLACE FUNCTION pgtrickle._shape(relations oid[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT md5(coalesce(string_agg(concat_ws(' ', a.attrelid, a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod,
                                             a.attnotnull, a.attisdropped), E'\n' ORDER BY a.attrelid, a.attnum), ''))
    FROM pg_attribute a WHERE a.attrelid = ANY (relations) AND a.attnum > 0
$$;

-- A query as PostgreSQL analysed it in this session: the applier plans it without running any of it.
CREATE OR REPLACE FUNCTION pgtrickle._analysed(view_oid oid, query text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object(
        'query', query, 'view', view_oid::int8, 'tree', r.ev_action::text,
        'shape', pgtrickle._shape(ARRAY(SELECT m[1]::oid FROM regexp_matches(r.ev_action::text, ':relid ([0-9]+)', 'g') m
                                        WHERE m[1]::oid <> view_oid)),
        -- The statement of _analyse is this and the query.
        'text_at', octet_length(format('CREATE TEMPORARY VIEW %I AS ', c.relname)),
        'columns', (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attname, a.atttypid::int8, a.atttypmod,
                                    format_type(a.atttypid, a.atttypmod)) ORDER BY a.attnum), '[]')
                    FROM pg_attribute a WHERE a.attrelid = view_oid AND a.attnum > 0))
    FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid WHERE c.oid = view_oid
$$;

-- Sends an analysed query to the applier and waits for its reply, inside a READ COMMITTED transaction. NULL if none comes
-- in time.
CREATE OR REPLACE FUNCTION pgtrickle._send_request(analysed jsonb, timeout interval) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    request   uuid := gen_random_uuid();
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
            PERFORM pgtrickle._ask(request, analysed);
            sent_at := clock_timestamp();
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;

-- Asks the running applier whether it can maintain an analysed query, or PostgreSQL may run it; raises the refusal. Returns the
-- reply; NULL where none can be had.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_unsupported(
    view_oid oid, query text, refresh_mode text, full_policy text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer jsonb;
BEGIN
    IF NOT pgtrickle._is_running('pg-trickle-applier') OR current_setting('transaction_isolation') <> 'read committed'
       OR pgtrickle._sources_elsewhere() THEN
        RETURN NULL;
    END IF;
    answer := pgtrickle._send_request(pgtrickle._analysed(view_oid, query), interval '10 s');
    -- A five-letter code comes from PostgreSQL: objects created in this transaction are invisible to the applier until
    -- the commit. Whether PostgreSQL may run the query itself is decided by the same rule as in the applier.
    IF NOT (answer ->> 'supported')::boolean AND answer ->> 'code' !~ '^[0-9A-Z]{5}$'
       AND NOT ((answer ->> 'full_in_postgres')::boolean
                AND (refresh_mode = 'FULL' OR refresh_mode = 'AUTO' AND full_policy = 'allow'
                     AND answer ->> 'code' NOT IN ('volatile_function', 'current_time', 'session_dependent'))) THEN
        RAISE EXCEPTION '%', answer ->> 'problem'
            USING HINT = answer ->> 'hint', ERRCODE = 'feature_not_supported';
    END IF;
    RETURN answer;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.validate_query(
    query text, timeout interval DEFAULT '30 s',
    search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (check_name text, result text, severity text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer    jsonb;
    -- If PostgreSQL itself rejects the query, the caller gets that error at once.
    view_oid  oid := pgtrickle._analyse(query, search_path);
    analysed  jsonb := pgtrickle._analysed(view_oid, query);
BEGIN
    EXECUTE format('DROP VIEW %s', view_oid::regclass);
    answer := pgtrickle._send_request(analysed, timeout);
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
          WHERE r.pgt_id = st.pgt_id AND r.action NOT IN ('NO_DATA', 'SKIP') ORDER BY r.refresh_id DESC LIMIT 100) h;
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
                         FROM pgtrickle.pgt_refresh_history r WHERE r.pgt_id = st.pgt_id AND r.action <> 'SKIP'
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
