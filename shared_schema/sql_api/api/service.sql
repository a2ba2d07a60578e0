-- Pauses and resumes stream tables, and requests new copies of sources.

CREATE OR REPLACE FUNCTION pgtrickle._request_recapture(source oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO pgtrickle.pgt_recaptures AS r (source_relid, epoch) VALUES (source, 1)
    ON CONFLICT (source_relid) DO UPDATE SET epoch = r.epoch + 1, requested_at = now();
    -- This message follows the request in the log, so the consumer sees the request at once.
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'capture');
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._pause_stream_table(name text, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    IF st.status = 'SUSPENDED' THEN
        RAISE EXCEPTION 'stream table % is suspended: %', name, st.last_error_message
            USING HINT = coalesce(st.last_error_hint, ''), ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE pgtrickle.pgt_stream_tables s SET status = 'PAUSED' WHERE s.pgt_id = st.pgt_id;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.pause_stream_table(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._pause_stream_table(name, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.pause_stream_table IS
    'Stop refreshing the stream table until resume_stream_table. Its rows stay as of its frontier.';

CREATE OR REPLACE FUNCTION pgtrickle._resume_stream_table(name text, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st     pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
    cause  record;
BEGIN
    IF st.status NOT IN ('PAUSED', 'SUSPENDED') THEN
        RETURN;
    ELSIF st.status = 'SUSPENDED' OR pgtrickle._is_fuse_blown(st) THEN
        SELECT * INTO cause FROM pgtrickle._present_cause(st);
        IF cause.problem IS NOT NULL THEN
            RAISE EXCEPTION 'stream table % cannot be resumed: %', name, cause.problem
                USING HINT = coalesce(nullif(cause.remedy, ''), (pgtrickle._remedy(st.last_error_code, st)).remedy, ''),
                      ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    END IF;
    UPDATE pgtrickle.pgt_reinitializations r SET refused_at = NULL WHERE r.pgt_id = st.pgt_id;
    -- After an error of the rows it goes on from its frontier. After any other, its rows may not be those of its query.
    IF st.status = 'SUSPENDED' AND coalesce(st.last_error_code, '') NOT IN (
            'CalculationError', 'RefreshFailed', 'TargetError', 'TargetFull', 'TargetLocked', 'BadSchedule') THEN
        PERFORM pgtrickle._reinitialize(st);
    END IF;
    -- One that is computed as a whole is in service again when its rows are written.
    UPDATE pgtrickle.pgt_stream_tables s
    SET status = CASE WHEN EXISTS (SELECT FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = s.pgt_id)
                      THEN 'ACTIVE' ELSE 'INITIALIZING' END,
        last_error_at = NULL, last_error_code = NULL, last_error_message = NULL, last_error_hint = NULL
    WHERE s.pgt_id = st.pgt_id AND (s.status = 'PAUSED' OR NOT EXISTS (
        SELECT FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = s.pgt_id));
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'resume ' || st.pgt_id);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.resume_stream_table(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._resume_stream_table(name, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.resume_stream_table IS
    'Put a paused or suspended stream table back into service; refused while the cause of a suspension is there. No change is lost.';
