-- Repair in place: the whole result is computed once more, and only the rows that differ are written, in every sink.

-- Requests that the applier computes a stream table as a whole at its next frontier, and in the same way every stream table
-- that reads it. Until that is done its frontier stays where it is.
CREATE OR REPLACE FUNCTION pgtrickle._request_reinitialize(pgt_id bigint, reason text, detail text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st      pgtrickle.pgt_stream_tables;
    reader  record;
BEGIN
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = _request_reinitialize.pgt_id;
    IF st.pgt_id IS NULL THEN
        RETURN;
    END IF;
    PERFORM pgtrickle._reinitialize_one(st.pgt_id, reason, detail, 'SCHEDULER', true);
    FOR reader IN SELECT r.pgt_id, s.status FROM pgtrickle._readers_of(st.pgt_relid) r
                  JOIN pgtrickle.pgt_stream_tables s ON s.pgt_id = r.pgt_id LOOP
        -- A reader that is suspended for a reason of its own stays so; the request waits until it is resumed.
        PERFORM pgtrickle._reinitialize_one(
            reader.pgt_id, reason, format('it reads %s: %s', st.pgt_relid::regclass, detail), 'SCHEDULER',
            reader.status <> 'SUSPENDED' OR st.status = 'SUSPENDED');
    END LOOP;
END $$;

-- Records the request for one stream table. A request that is not `active` waits until the stream table is resumed.
CREATE OR REPLACE FUNCTION pgtrickle._reinitialize_one(
    stream_table bigint, new_reason text, new_detail text, initiator text, active boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The whole is computed, so the functions may be those of now.
    UPDATE pgtrickle.pgt_stream_tables s SET defining_query = pgtrickle._renew_digests(s.defining_query)
    WHERE s.pgt_id = stream_table AND s.defining_query IS DISTINCT FROM pgtrickle._renew_digests(s.defining_query);
    INSERT INTO pgtrickle.pgt_reinitializations AS r (pgt_id, reason, detail, initiated_by, refused_at)
    VALUES (stream_table, new_reason, new_detail, initiator, CASE WHEN NOT active THEN now() END)
    ON CONFLICT ON CONSTRAINT pgt_reinitializations_pkey DO UPDATE
    SET reason = excluded.reason, initiated_by = excluded.initiated_by,
        -- Not when this session began to wait for the other one: what was asked for since then is later.
        requested_at = clock_timestamp(),
        detail = CASE WHEN r.detail IS NOT DISTINCT FROM excluded.detail OR length(r.detail) > 500 THEN excluded.detail
                      ELSE concat_ws('; ', r.detail, excluded.detail) END,
        refused_at = CASE WHEN NOT active THEN r.refused_at END;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'reinitialize ' || stream_table);
END $$;

-- Ends a request, and the suspension with it. The applier calls it in the transaction that writes the rows. A stream table
-- that was paused meanwhile stays paused. One that was suspended meanwhile, for its topic or its Delta table, stays suspended
-- and its request refused: resuming repeats it.
CREATE OR REPLACE FUNCTION pgtrickle._note_reinitialized(stream_table bigint, request timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A later request stays: what it is about may not be in these rows.
    DELETE FROM pgtrickle.pgt_reinitializations r
    WHERE r.pgt_id = stream_table AND r.requested_at <= request AND r.refused_at IS NULL;
    IF FOUND THEN
        UPDATE pgtrickle.pgt_stream_tables s
        SET status = CASE WHEN s.status = 'PAUSED' THEN s.status ELSE 'ACTIVE' END, last_error_at = NULL, last_error_code = NULL, last_error_message = NULL,
            last_error_hint = NULL,
            sinks_differ_since = CASE WHEN EXISTS (
                SELECT FROM pg_trigger t WHERE t.tgrelid = s.pgt_relid AND t.tgname = 'pgt_refuse_dml'
                AND t.tgenabled = 'D') THEN s.sinks_differ_since END
        WHERE s.pgt_id = stream_table;
    END IF;
END $$;

-- Whether PostgreSQL's rows may differ from those of the other sinks: others than the applier wrote to one of them, or a
-- progressive refresh was interrupted.
CREATE OR REPLACE FUNCTION pgtrickle._sinks_differ(st pgtrickle.pgt_stream_tables) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT st.partial_until IS NOT NULL OR st.sinks_differ_since IS NOT NULL
        OR coalesce(st.last_error_code, '') IN ('TargetDiverged', 'SinkAhead')
        OR EXISTS (SELECT FROM pg_trigger t
                   WHERE t.tgrelid = st.pgt_relid AND NOT t.tgisinternal AND t.tgname <> 'pgt_refuse_dml')
$$;

-- Analyses the stored query once more, with the rights of its owner and under the settings with which it was printed; admits
-- what it reads now and stores both. Raises an error when it can no longer be the query of this table.
CREATE OR REPLACE FUNCTION pgtrickle._analyse_again(st pgtrickle.pgt_stream_tables) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres'
SET timezone = 'UTC' SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C'
SET standard_conforming_strings = on SET transform_null_equals = off AS $$
DECLARE
    owner      oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid);
    view_oid   oid;
    columns    text[];
    sources    oid[];
    canonical  text;
    problem    text;
BEGIN
    BEGIN
        view_oid := pgtrickle._analyse_as(
            owner, regexp_replace(st.defining_query, '^/\* functions: [^*]*\*/', ''), 'pg_catalog');
        columns := pgtrickle._columns(view_oid);
        sources := ARRAY(SELECT s.relid FROM pgtrickle._sources_of(view_oid) s);
        canonical := pgtrickle._canonical(view_oid);
        RAISE EXCEPTION USING ERRCODE = 'PGT00';
    EXCEPTION
        WHEN SQLSTATE 'PGT00' THEN
            NULL;
        WHEN syntax_error_or_access_rule_violation THEN
            GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT;
            RAISE EXCEPTION 'the query of stream table % can no longer be run: %', st.pgt_relid::regclass, problem
                USING HINT = format('Put back what it reads, or give it a new query: SELECT pgtrickle.alter_stream_table(%L, query => …).',
                                    st.pgt_relid::regclass),
                      ERRCODE = SQLSTATE;
    END;
    IF columns IS DISTINCT FROM pgtrickle._columns(st.pgt_relid) THEN
        RAISE EXCEPTION 'the query of stream table % returns other columns now', st.pgt_relid::regclass
            USING DETAIL = format('It returns (%s); the table has (%s).', array_to_string(columns, ', '),
                                  array_to_string(pgtrickle._columns(st.pgt_relid), ', ')),
                  HINT = format('SELECT pgtrickle.alter_stream_table(%L, query => %L) builds it with these columns.',
                                st.pgt_relid::regclass, st.original_query),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM pgtrickle._set_dependencies(st.pgt_id, pgtrickle._admit_relations(sources, st.refresh_mode));
    UPDATE pgtrickle.pgt_stream_tables s SET defining_query = canonical
    WHERE s.pgt_id = st.pgt_id AND s.defining_query <> canonical;
END $$;

-- Whether the rows of a stream table's sources that were published before its suspension cannot be relied on.
CREATE OR REPLACE FUNCTION pgtrickle._needs_new_copies(error_code text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(error_code IN ('SourceChanged', 'PublicationChanged'), false)
$$;

-- Whether the topics, and so the traces, hold changes that the server does not have: no computation from them is right.
CREATE OR REPLACE FUNCTION pgtrickle._needs_resync(error_code text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(error_code IN ('ServerRestored', 'SinkAhead'), false)
$$;

CREATE OR REPLACE FUNCTION pgtrickle._reinitialize(st pgtrickle.pgt_stream_tables) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source  record;
    copied  text[] := '{}';
BEGIN
    IF NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid), 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of stream table %', st.pgt_relid::regclass
            USING HINT = 'Call it as a member of the role that owns it.', ERRCODE = 'insufficient_privilege';
    ELSIF st.replaces IS NOT NULL THEN
        RAISE EXCEPTION '% is the new form of another stream table, still being built', st.pgt_relid::regclass
            USING HINT = 'Reinitialize that one.', ERRCODE = 'object_in_use';
    ELSIF st.status = 'SUSPENDED' AND pgtrickle._needs_resync(st.last_error_code) AND NOT pgtrickle._sources_elsewhere() THEN
        RAISE EXCEPTION 'stream table % cannot be computed: %', st.pgt_relid::regclass, st.last_error_message
            USING HINT = st.last_error_hint, ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM pgtrickle._lock_definitions();
    PERFORM pgtrickle._analyse_again(st);
    IF st.status = 'SUSPENDED' AND pgtrickle._needs_new_copies(st.last_error_code) AND NOT pgtrickle._sources_elsewhere() THEN
        FOR source IN SELECT b.source_relid,
                             format('%I.%I (%s)', b.source_schema, b.source_name,
                                    pg_size_pretty(coalesce(t.bytes, pg_table_size(b.source_relid)))) AS shown
                      FROM pgtrickle._base_sources(st.pgt_id) b
                      CROSS JOIN LATERAL (SELECT sum(pg_table_size(p.relid)) AS bytes
                                          FROM pg_partition_tree(b.source_relid) p WHERE p.isleaf) t LOOP
            PERFORM pgtrickle._request_recapture(source.source_relid);
            copied := copied || source.shown;
        END LOOP;
    END IF;
    PERFORM pgtrickle._reinitialize_one(st.pgt_id, 'REINITIALIZE', concat_ws('', 'requested by ', session_user,
        ' while ' || st.last_error_message), 'MANUAL', true);
    RETURN format('%s is computed as a whole, and rows that differ are written', st.pgt_relid::regclass)
        || CASE WHEN cardinality(copied) > 0
           THEN format('; before that, the consumer copies %s again', array_to_string(copied, ', ')) ELSE '' END
        || CASE WHEN st.status = 'PAUSED' THEN '; it is paused, so that begins with resume_stream_table' ELSE '' END;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.reinitialize_stream_table(
    name text, cascade boolean DEFAULT false,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st      pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    reader  pgtrickle.pgt_stream_tables;
BEGIN
    PERFORM pgtrickle._refuse_blown(st, 'computed as a whole');
    RETURN NEXT pgtrickle._reinitialize(st);
    IF cascade THEN
        FOR reader IN SELECT s.* FROM pgtrickle._readers_of(st.pgt_relid) r
                      JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) ORDER BY r.depth, s.pgt_id LOOP
            PERFORM pgtrickle._refuse_blown(reader, 'computed as a whole');
            RETURN NEXT pgtrickle._reinitialize(reader);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION pgtrickle.reinitialize_stream_table IS
    'Compute a stream table as a whole and write the rows that differ, in place, also when it is suspended; with cascade also those that read it. Returns what will be done.';

-- `pg-trickle-cdc resync` calls it before it drops the slot: every source is published and copied again, then every stream table
-- is computed as a whole. `restored`: the other sinks hold rows of a history that the database no longer has.
-- The consumer's role owns nothing here: it is granted this one function, which publishes and requests as the owner does. It
-- runs no text of users.
CREATE OR REPLACE FUNCTION pgtrickle.note_resync(cause text, restored boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    source  record;
    st      pgtrickle.pgt_stream_tables;
BEGIN
    PERFORM pgtrickle._lock_definitions();
    FOR source IN SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependencies d
                  JOIN pg_class c ON c.oid = d.source_relid WHERE d.source_type = 'TABLE' ORDER BY 1 LOOP
        BEGIN
            PERFORM pgtrickle._admit_source(source.source_relid);
        EXCEPTION WHEN wrong_object_type OR feature_not_supported OR insufficient_privilege THEN
            -- The stream tables that read it say so themselves.
            RAISE WARNING 'source % is not published: %', source.source_relid::regclass, SQLERRM;
        END;
        PERFORM pgtrickle._request_recapture(source.source_relid);
    END LOOP;
    IF restored THEN
        UPDATE pgtrickle.pgt_stream_tables s SET sinks_differ_since = now() WHERE s.sinks_differ_since IS NULL;
        -- A position of the history that is gone says nothing of the new one.
        UPDATE pgtrickle.pgt_stream_tables s SET fuse_passes_until = NULL WHERE s.fuse_passes_until IS NOT NULL;
        -- Beyond every number that was used in the history that is gone.
        UPDATE pgtrickle.pgt_recaptures r SET epoch = greatest(r.epoch, date_part('epoch', clock_timestamp())::bigint);
    END IF;
    FOR st IN SELECT * FROM pgtrickle.pgt_stream_tables s WHERE s.replaces IS NULL ORDER BY s.pgt_id LOOP
        PERFORM pgtrickle._reinitialize_one(st.pgt_id, 'REINITIALIZE', 'the sources were copied again: ' || cause, 'MANUAL',
                                            true);
    END LOOP;
    RETURN (SELECT count(*) FROM pgtrickle.pgt_stream_tables s WHERE s.replaces IS NULL);
END $$;
REVOKE ALL ON FUNCTION pgtrickle.note_resync(text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.note_resync IS
    'Publish and copy every source again, and compute every stream table as a whole; called by pg-trickle-cdc resync. Returns how many.';
