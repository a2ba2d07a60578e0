-- Waits for a stream table without committing. A non-transactional message in the log wakes the consumer, and each
-- statement of a volatile function sees what other sessions have committed in the meantime.

CREATE OR REPLACE FUNCTION pgtrickle._emit(content text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('server_version_num')::int >= 170000 THEN
        -- Flush at once: the walsender only sends what is on disk.
        EXECUTE $q$SELECT pg_logical_emit_message(false, 'pg_trickle', $1, true)$q$ USING content;
    ELSE
        PERFORM pg_logical_emit_message(false, 'pg_trickle', content);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._wait_for(name text, lsn pg_lsn, timeout interval, caller_path text) RETURNS pg_lsn
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Read before the wake-up message is written: the frontier passes that message, and therefore this position too.
    target   pg_lsn := coalesce(lsn, pg_current_wal_insert_lsn());
    st       pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
    now_at   record;
    give_up  timestamptz := clock_timestamp() + timeout;
    woken    timestamptz;
    held     record;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a % transaction cannot see a stream table advance', current_setting('transaction_isolation')
            USING HINT = 'Call it outside a transaction or under READ COMMITTED.', ERRCODE = 'feature_not_supported';
    END IF;
    IF lsn IS NULL AND pgtrickle._sources_elsewhere() THEN
        RAISE EXCEPTION 'the sources of % are in another database; its log position is not known here', name
            USING HINT = 'Run SELECT pg_current_wal_insert_lsn() there, then wait_for(name, lsn => …) here.',
                  ERRCODE = 'feature_not_supported';
    END IF;
    -- Other sessions see this lock before we commit. The applier then refreshes the stream table, whatever its schedule is,
    -- and its canary with it: both come to one frontier.
    PERFORM pg_advisory_xact_lock_shared(pgtrickle._request_lock_class(), coalesce(st.canary_of, st.pgt_id)::int);
    LOOP
        -- Look it up by name: a rebuilt table with other columns may replace it while we wait.
        SELECT s.pgt_id, f.frontier, s.status, s.last_error_message, s.last_error_hint,
               EXISTS (SELECT FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = s.pgt_id)
               OR EXISTS (SELECT FROM pgtrickle.pgt_reinitializations r
                          WHERE r.pgt_id = s.pgt_id AND r.refused_at IS NULL)
               OR EXISTS (SELECT FROM pgtrickle.pgt_stream_tables n WHERE n.replaces = s.pgt_id) AS altering,
               s.fuse_blown_at IS NOT NULL AS is_blown INTO now_at
        FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)
        WHERE s.pgt_schema = st.pgt_schema AND s.pgt_name = st.pgt_name;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'stream table % was dropped', name
                USING HINT = 'SELECT * FROM pgtrickle.pgt_status() lists those that exist.', ERRCODE = 'undefined_table';
        ELSIF now_at.is_blown THEN
            -- Also what is pending waits for that decision.
            PERFORM pgtrickle._refuse_blown(s, 'refreshed') FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = now_at.pgt_id;
        ELSIF now_at.status = 'SUSPENDED' AND NOT now_at.altering THEN
            RAISE EXCEPTION 'stream table % is suspended: %', name, now_at.last_error_message
                USING HINT = coalesce(now_at.last_error_hint, ''), ERRCODE = 'object_not_in_prerequisite_state';
        ELSIF now_at.frontier >= target AND NOT now_at.altering THEN
            RETURN now_at.frontier;
        END IF;
        -- One that is held does not get there, however long somebody waits.
        SELECT * INTO held FROM pgtrickle._held_by(now_at.pgt_id) h WHERE h.held_lsn < target LIMIT 1;
        IF held.reason IS NOT NULL THEN
            RAISE EXCEPTION 'stream table % is held: %', name, held.reason
                USING DETAIL = format('Its frontier is %s, and it does not pass %s.',
                                      coalesce(now_at.frontier::text, 'not set yet'),
                                      greatest(held.held_lsn, now_at.frontier)),
                      HINT = held.remedy, ERRCODE = 'object_not_in_prerequisite_state';
        ELSIF clock_timestamp() >= give_up THEN
            RAISE EXCEPTION 'stream table % did not reach % within %', name, target, timeout
                USING DETAIL = format('Its frontier is %s.', coalesce(now_at.frontier::text, 'not set yet')),
                      HINT = 'Are pg-trickle-cdc and pg-trickle-applier running? See pgtrickle.pgt_status().',
                      ERRCODE = 'query_canceled';
        END IF;
        IF now_at.pgt_id <> st.pgt_id THEN
            st.pgt_id := now_at.pgt_id;
            PERFORM pg_advisory_xact_lock_shared(pgtrickle._request_lock_class(), coalesce(st.canary_of, st.pgt_id)::int);
        END IF;
        -- Repeat it every second: a consumer that was still starting did not see the first message.
        IF woken IS NULL OR clock_timestamp() >= woken + interval '1 second' THEN
            PERFORM pgtrickle._emit('wake');
            woken := clock_timestamp();
        END IF;
        PERFORM pg_sleep(0.005);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.wait_for(
    name text, lsn pg_lsn DEFAULT NULL, timeout interval DEFAULT '60 s',
    search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS pg_lsn LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle._wait_for(name, lsn, timeout, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.wait_for IS
    'Return the stream table''s frontier once it includes everything committed before lsn (default: before this call).';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_stream_table(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._wait_for(name, NULL, pg_catalog.make_interval(mins => 10), search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.refresh_stream_table IS 'Wait until the stream table includes everything committed before this call.';
