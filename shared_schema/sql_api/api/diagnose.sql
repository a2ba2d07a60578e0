-- What is wrong with a stream table, whether the cause is still there, and the call that mends it.

-- Checks now whether something keeps a stream table from being maintained; no row when nothing does. `checked` tells whether
-- the stored error is one that can be checked at all. Everything that it tries runs with the rights of the
-- owner, and is undone.
CREATE OR REPLACE FUNCTION pgtrickle._present_cause(
    st pgtrickle.pgt_stream_tables, OUT checked boolean, OUT problem text, OUT remedy text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    owner     oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid);
    query     text := rtrim(regexp_replace(st.defining_query, '^/\* functions: [^*]*\*/', ''), E' \n;');
    view_oid  oid;
    analysed  jsonb;
    answer    jsonb;
    call      text;
    cost      text;
BEGIN
    checked := coalesce(st.last_error_code, '') NOT IN (
        'BadSchedule', 'CalculationError', 'ContractError', 'FillCrashed', 'FullForbidden', 'MalformedTree',
        'PlanningCrashed', 'PublishingFailed', 'RefreshFailed', 'StreamLost', 'TargetError', 'TargetFull', 'UnexpectedFailure');
    IF st.status = 'SUSPENDED' AND pgtrickle._needs_resync(st.last_error_code) AND NOT pgtrickle._sources_elsewhere()
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = st.pgt_id AND r.refused_at IS NULL) THEN
        -- Only a resync ends it, and that requests every stream table.
        problem := st.last_error_message;
        RETURN;
    END IF;
    IF pgtrickle._is_fuse_blown(st) THEN
        checked := true;
        problem := st.fuse_blown_detail;
        remedy := (pgtrickle._remedy('FuseBlown', st)).remedy;
        RETURN;
    END IF;
    SELECT format('changes of %I.%I are not captured: %s', p.source_schema, p.source_name, p.reason) INTO problem
    FROM pgtrickle.pgt_stopped_sources p JOIN pgtrickle._base_sources(st.pgt_id) b USING (source_schema, source_name)
    ORDER BY 1 LIMIT 1;
    IF problem IS NOT NULL THEN
        checked := true;
        remedy := (pgtrickle._remedy('SourceStopped', st)).remedy;
        RETURN;
    END IF;
    IF NOT pg_has_role(owner, 'USAGE') THEN
        -- Somebody else's rights say nothing about the query of the owner.
        checked := false;
        RETURN;
    END IF;
    BEGIN
        PERFORM pgtrickle._analyse_again(st);
        RAISE EXCEPTION USING ERRCODE = 'PGT00';
    EXCEPTION
        WHEN SQLSTATE 'PGT00' THEN
            NULL;
        WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, remedy = PG_EXCEPTION_HINT;
            checked := true;
            RETURN;
    END;
    IF st.last_error_code = 'TargetLocked' THEN
        SELECT format('session %s holds a lock on it (%s)', l.pid, l.mode),
               format('End that transaction, or SELECT pg_terminate_backend(%s).', l.pid) INTO problem, remedy
        FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
        WHERE l.relation = st.pgt_relid AND l.granted AND l.pid <> pg_backend_pid()
          AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        ORDER BY l.pid LIMIT 1;
    ELSIF st.last_error_code = 'CalculationError' THEN
        -- Only a cheap query is run to see whether it still fails. It may not write: a deferred trigger would run as the caller.
        BEGIN
            call := pgtrickle._confine(owner);
            PERFORM set_config('transaction_read_only', 'on', true);
            EXECUTE call INTO cost USING 'EXPLAIN (FORMAT JSON) ' || query, NULL::text, true;
            -- A text may leave another one behind. A second call is safe: in a read-only transaction the function is the same.
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            IF (cost::json -> 0 -> 'Plan' ->> 'Total Cost')::float8 < 100000 THEN
                EXECUTE call USING format('SELECT count(result) FROM (%s) AS result', query), NULL::text, true;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'PGT00';
        EXCEPTION
            WHEN SQLSTATE 'PGT00' THEN
                NULL;
            WHEN data_exception OR program_limit_exceeded OR cardinality_violation THEN
                GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT;
                problem := 'the query still fails on the rows: ' || problem;
                checked := true;
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT;
                problem := 'the query cannot be run: ' || problem;
                checked := true;
        END;
    END IF;
    IF problem IS NOT NULL OR pgtrickle._sources_elsewhere() OR st.last_error_code IN ('PlanningCrashed', 'FillCrashed')
       OR current_setting('transaction_isolation') <> 'read committed'
       OR NOT (pgtrickle._is_running('pg-trickle-applier') AND pgtrickle._is_running('pg-trickle-cdc')) THEN
        RETURN;
    END IF;
    -- The same rule as in _alter_query: may the applier maintain it, or PostgreSQL run it?
    BEGIN
        view_oid := pgtrickle._analyse_as(owner, query, 'pg_catalog');
        analysed := pgtrickle._analysed(view_oid, query);
        RAISE EXCEPTION USING ERRCODE = 'PGT00';
    EXCEPTION WHEN SQLSTATE 'PGT00' THEN
        NULL;
    END;
    answer := pgtrickle._send_request(analysed, interval '10 s');
    IF NOT (answer ->> 'supported')::boolean AND answer ->> 'code' !~ '^[0-9A-Z]{5}$'
       AND NOT ((answer ->> 'full_in_postgres')::boolean
                AND (st.refresh_mode = 'FULL' OR st.refresh_mode = 'AUTO' AND st.full_policy = 'allow'
                     AND answer ->> 'code' NOT IN ('volatile_function', 'current_time', 'session_dependent'))) THEN
        problem := answer ->> 'problem';
        remedy := answer ->> 'hint';
        checked := true;
    END IF;
END $$;

-- What kind of error a class is, and what mends it. Every class that can suspend a stream table is here; `unknown` is one of
-- another version.
CREATE OR REPLACE FUNCTION pgtrickle._remedy(error_class text, st pgtrickle.pgt_stream_tables, OUT kind text, OUT remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT known.kind, format(known.remedy, format('%I.%I', st.pgt_schema, st.pgt_name))
    FROM (VALUES
        (1, 'CalculationError', 'user', 'Correct the rows, or guard the expression (CASE, NULLIF) with alter_stream_table; then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'RefreshFailed', 'user', 'Remove the cause that the message names; then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'TargetError', 'user', 'Remove what rejects the rows (a constraint, a trigger, a missing right); then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'TargetLocked', 'performance', 'End the session that holds the lock; then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'TargetFull', 'infrastructure', 'Make room on the disk: it is tried again by itself. After a suspension, SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'TargetDiverged', 'correctness', 'SELECT pgtrickle.reinitialize_stream_table(%L) writes the rows that differ.'),
        (1, 'SinkAhead', 'correctness', 'Stop pg-trickle-cdc, run pg-trickle-cdc resync --restored, start it. Each stream table is then repaired in place.'),
        (1, 'ServerRestored', 'correctness', 'Stop pg-trickle-cdc, run pg-trickle-cdc resync --restored, start it. Each stream table is then repaired in place.'),
        (1, 'CannotRepair', 'correctness', 'SELECT pgtrickle.reinitialize_stream_table(%L) computes it as a whole.'),
        (1, 'HistoryGone', 'correctness', 'SELECT pgtrickle.reinitialize_stream_table(%L) computes it as a whole.'),
        (1, 'FuseBlown', 'user', 'SELECT pgtrickle.reset_fuse(%L, ''apply'') lets the changes through once, ''reinitialize'' instead computes the whole, ''skip_changes'' goes on without them.'),
        (1, 'FullForbidden', 'user', 'SELECT pgtrickle.reinitialize_stream_table(%L) is one full refresh that you ask for.'),
        (1, 'SourceChanged', 'schema', 'Put the source back, or accept it as it is: SELECT pgtrickle.reinitialize_stream_table(%L) copies the sources again and writes the rows that differ.'),
        (1, 'PublicationChanged', 'schema', 'Put the table back into the publication, whole and with all actions; SELECT pgtrickle.resume_stream_table(%L) adds one that is missing and copies it again.'),
        (1, 'SourceStopped', 'infrastructure', 'Remove the cause (raise message.max.bytes on the broker and in PG_TRICKLE_KAFKA_OPTIONS, shorten the row or the name), restart pg-trickle-cdc, which copies the table again; then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'SourcesElsewhere', 'schema', 'Create %s in the database of its sources, or write its query so that it can be maintained.'),
        (1, 'UnsupportedColumn', 'schema', 'Give the column a type that can be captured, or leave it out: SELECT pgtrickle.alter_stream_table(%L, query => …).'),
        (1, 'StreamLost', 'infrastructure', 'Stop pg-trickle-cdc, run pg-trickle-cdc resync, start it. Each stream table is then repaired in place.'),
        (1, 'ContractError', 'infrastructure', 'A record on the topics cannot be read: stop pg-trickle-cdc, run pg-trickle-cdc resync, start it. Each stream table is then repaired in place.'),
        (1, 'PublishingFailed', 'infrastructure', 'Remove what keeps its topic from being written (message.max.bytes of the broker, the length of the name, a missing right); then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'DefinitionError', 'user', 'Give it a query that can be maintained: SELECT pgtrickle.alter_stream_table(%L, query => …).'),
        (1, 'Refused', 'user', 'Give it a query that can be maintained: SELECT pgtrickle.alter_stream_table(%L, query => …).'),
        (1, 'UnsuitableArguments', 'user', 'Give it a query that can be maintained: SELECT pgtrickle.alter_stream_table(%L, query => …).'),
        (1, 'QueryTooLarge', 'user', 'Split the query, or raise max_plan_nodes: SELECT pgtrickle.alter_stream_table(%L, query => …).'),
        (1, 'PlanningCrashed', 'performance', 'Make the query smaller with alter_stream_table, or give the applier more memory; then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'FillCrashed', 'performance', 'Make the query smaller with alter_stream_table, or give the applier more memory; then SELECT pgtrickle.resume_stream_table(%L).'),
        (1, 'BadSchedule', 'user', 'SELECT pgtrickle.alter_stream_table(%L, schedule => …), then resume_stream_table.'),
        (1, 'MalformedTree', 'defect', 'Report it with the version of PostgreSQL and the query; another form of the query may do: SELECT pgtrickle.alter_stream_table(%L, query => …).'),
        (1, 'UnexpectedFailure', 'defect', 'Report it with the stack in the log of the applier; SELECT pgtrickle.resume_stream_table(%L) tries again, as a whole.'),
        (2, error_class, 'unknown', 'SELECT pgtrickle.reinitialize_stream_table(%L) computes it as a whole.')
    ) AS known(place, class, kind, remedy)
    WHERE known.class = error_class ORDER BY known.place LIMIT 1
$$;

CREATE OR REPLACE FUNCTION pgtrickle.diagnose_errors(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (event_time timestamptz, error_type text, error_class text, error_message text, still_there boolean,
               remediation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st     pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    cause  record;
    known  record;
BEGIN
    SELECT * INTO cause FROM pgtrickle._present_cause(st);
    SELECT * INTO known FROM pgtrickle._remedy(coalesce(st.last_error_code, 'SourceChanged'), st);
    IF st.last_error_message IS NOT NULL THEN
        RETURN QUERY SELECT st.last_error_at, known.kind, st.last_error_code, st.last_error_message,
            CASE WHEN cause.problem IS NOT NULL THEN true WHEN cause.checked THEN false END,
            coalesce(nullif(cause.remedy, ''), known.remedy);
    END IF;
    IF cause.problem IS NOT NULL AND cause.problem IS DISTINCT FROM st.last_error_message THEN
        RETURN QUERY SELECT clock_timestamp(), known.kind, 'PresentCause', cause.problem, true,
            coalesce(nullif(cause.remedy, ''), known.remedy);
    END IF;
    RETURN QUERY
    SELECT clock_timestamp(), 'infrastructure', 'SourceBlocked', format('source %s: %s', w.source, w.blocked_reason), true,
           CASE WHEN w.slot IS NULL OR w.blocked_reason LIKE '%slot is invalid%'
                THEN 'Start pg-trickle-cdc; if it refuses because the slot is lost, run pg-trickle-cdc resync.'
                WHEN w.blocked_reason LIKE '%not in publication%'
                THEN format('SELECT pgtrickle.reinitialize_stream_table(%L) publishes it again and copies it.',
                            format('%I.%I', st.pgt_schema, st.pgt_name))
                ELSE w.blocked_reason END
    FROM pgtrickle.wal_source_status() w
    JOIN pgtrickle._base_sources(st.pgt_id) b ON format('%I.%I', b.source_schema, b.source_name) = w.source
    WHERE w.blocked_reason IS NOT NULL;
    RETURN QUERY
    SELECT f.since, 'user', f.class, f.problem, true, f.remedy FROM pgtrickle._fuse_findings(st.pgt_id) f;
    -- Earlier failures of refreshes; what became of them is not known.
    RETURN QUERY
    SELECT h.end_time, 'user', h.refresh_reason, h.error_message, NULL::boolean,
           'It was tried again; nothing is to be done unless it is the present error too.'
    FROM pgtrickle.pgt_refresh_history h
    WHERE h.pgt_id = st.pgt_id AND h.status = 'FAILED' AND h.error_message IS DISTINCT FROM st.last_error_message
    ORDER BY h.refresh_id DESC LIMIT 5;
END $$;
COMMENT ON FUNCTION pgtrickle.diagnose_errors IS
    'Show what is wrong with a stream table, since when, whether the cause is still there, and the call that mends it.';
