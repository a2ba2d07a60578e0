-- Decide about changes that a fuse stopped, and show the fuses.

CREATE OR REPLACE FUNCTION pgtrickle._reset_fuse(st pgtrickle.pgt_stream_tables, action text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- By which later changes find their rows among those that are not what they should be.
    has_key  boolean := EXISTS (SELECT FROM pgtrickle.pgt_plans p
                                WHERE p.pgt_id = st.pgt_id AND jsonb_typeof(p.plan -> 'row_key') = 'array');
    readers  text;
    figure   text;
    whole    text;
    said     text;
BEGIN
    IF NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid), 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of stream table %', st.pgt_relid::regclass
            USING HINT = 'Call it as a member of the role that owns it.', ERRCODE = 'insufficient_privilege';
    ELSIF action IS NULL OR lower(action) NOT IN ('apply', 'reinitialize', 'skip_changes') THEN
        RAISE EXCEPTION 'action % is not known', coalesce(quote_literal(action), 'NULL')
            USING HINT = 'Use apply, reinitialize or skip_changes.', ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Two sessions decide once.
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = st.pgt_id FOR NO KEY UPDATE;
    -- Asked for while the fuse was blown: it has waited for this decision.
    SELECT format('it is to be computed as a whole (%s)', concat_ws(': ', r.reason, r.detail)) INTO whole
    FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = st.pgt_id AND r.refused_at IS NULL;
    IF NOT pgtrickle._is_fuse_blown(st) THEN
        RAISE EXCEPTION 'the fuse of stream table % is not blown', st.pgt_relid::regclass
            USING HINT = 'SELECT * FROM pgtrickle.fuse_status() shows all fuses.', ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF lower(action) = 'skip_changes' AND (
            st.refresh_mode = 'FULL' OR NOT has_key OR whole IS NOT NULL OR st.partial_until IS NOT NULL) THEN
        RAISE EXCEPTION 'changes of stream table % cannot be skipped: %', st.pgt_relid::regclass,
            CASE WHEN whole IS NOT NULL THEN whole
                 WHEN st.partial_until IS NOT NULL THEN 'it is half written'
                 WHEN st.refresh_mode = 'FULL' THEN 'its next refresh computes the whole' ELSE 'its rows have no key' END
            USING HINT = 'Use apply or reinitialize.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- What nobody can count any more is applied by computing the whole.
    IF whole IS NOT NULL OR lower(action) = 'reinitialize' OR lower(action) = 'apply' AND st.fuse_blown_changes IS NULL THEN
        said := coalesce(st.pgt_relid::regclass || ': ' || whole, pgtrickle._reinitialize(st));
        UPDATE pgtrickle.pgt_stream_tables s SET fuse_blown_at = NULL, fuse_blown_detail = NULL WHERE s.pgt_id = st.pgt_id;
        PERFORM pg_logical_emit_message(true, 'pg_trickle', 'resume ' || st.pgt_id);
        RETURN said;
    END IF;
    -- One that is out of service for another reason stays so.
    UPDATE pgtrickle.pgt_stream_tables s
    SET fuse_blown_at = NULL, fuse_blown_detail = NULL,
        fuse_passes_until = CASE lower(action) WHEN 'apply' THEN s.fuse_blown_until ELSE s.fuse_passes_until END,
        fuse_skips_until = CASE lower(action) WHEN 'skip_changes' THEN s.fuse_blown_until END
    WHERE s.pgt_id = st.pgt_id;
    UPDATE pgtrickle.pgt_stream_tables s
    SET status = 'ACTIVE', last_error_at = NULL, last_error_code = NULL, last_error_message = NULL, last_error_hint = NULL
    WHERE s.pgt_id = st.pgt_id AND s.status = 'SUSPENDED' AND s.last_error_code = 'FuseBlown';
    IF FOUND THEN
        UPDATE pgtrickle.pgt_reinitializations r SET refused_at = NULL WHERE r.pgt_id = st.pgt_id;
    ELSE
        said := format('; it is %s: resume_stream_table puts it back into service', lower(st.status));
    END IF;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'resume ' || st.pgt_id);
    figure := coalesce(st.fuse_blown_changes::text, 'an unknown number of');
    IF lower(action) = 'apply' THEN
        RETURN format('%s change rows up to %s are let through once', figure, st.fuse_blown_until) || coalesce(said, '');
    END IF;
    SELECT string_agg(format('%I.%I', s.pgt_schema, s.pgt_name), ', ' ORDER BY r.depth, s.pgt_id) INTO readers
    FROM pgtrickle._readers_of(st.pgt_relid) r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id);
    RETURN format('%s change rows up to %s are skipped: %s is not equal to its query until it is reinitialized',
                  figure, st.fuse_blown_until, st.pgt_relid::regclass) || coalesce(said, '')
        || coalesce(format('; the changes are not skipped in what reads it: %s', readers), '');
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.reset_fuse(
    name text, action text DEFAULT 'apply', search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle._reset_fuse(pgtrickle._stream_table(name, search_path), action);
END $$;
COMMENT ON FUNCTION pgtrickle.reset_fuse IS
    'Decide about the changes that a blown fuse stopped: apply lets them through once, reinitialize computes the whole, skip_changes goes on without them (not equal until reinitialized). Returns what will be done.';

CREATE OR REPLACE FUNCTION pgtrickle.fuse_status()
RETURNS TABLE (name text, fuse text, ceiling double precision, sensitivity double precision, state text,
               blown_at timestamptz, from_lsn pg_lsn, until_lsn pg_lsn, changes bigint, row_limit bigint, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', s.pgt_schema, s.pgt_name), coalesce(s.fuse, 'default'), nullif(d.ceiling, 0), s.fuse_sensitivity,
           coalesce(u.state, CASE WHEN s.fuse IS DISTINCT FROM 'off'
                                   AND (s.fuse = 'auto' OR s.fuse_sensitivity IS NOT NULL OR d.ceiling > 0)
                                  THEN 'intact' ELSE 'off' END),
           b.blown_at, b.from_lsn, b.until_lsn, b.changes, b.row_limit, b.detail
    FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle._fuse_states u USING (pgt_id)
    CROSS JOIN LATERAL (SELECT coalesce(s.fuse_ceiling, pgtrickle._setting('fuse_default_ceiling')::double precision, 0)) AS d(ceiling)
    LEFT JOIN LATERAL (
        SELECT s.fuse_blown_at, f.frontier, s.fuse_blown_until, s.fuse_blown_changes, s.fuse_blown_limit, s.fuse_blown_detail
        FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = s.pgt_id AND u.is_blown
    ) AS b(blown_at, from_lsn, until_lsn, changes, row_limit, detail) ON true
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.fuse_status IS
    'Show the fuse of every stream table: its limits, whether it is blown, and the range and figures that blew it.';
