-- A new query for an existing stream table. The old rows stay and are maintained until the applier replaces them by the
-- new ones in one transaction.
--
--   no-op       the same query
--   config      the same query, other options
--   compatible  the same columns, or these and further ones after them: changed in place
--   rebuild     other columns: a new table is built, then it replaces the old one

-- Objects that depend on the table and that its replacement would lose.
CREATE OR REPLACE FUNCTION pgtrickle._dependents(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(DISTINCT d.what, ', ' ORDER BY d.what) FROM (
        SELECT 'stream table ' || r.pgt_relid::regclass AS what FROM pgtrickle._readers_of(relation) r
        UNION ALL
        SELECT 'view ' || w.ev_class::regclass FROM pg_depend d JOIN pg_rewrite w ON w.oid = d.objid
        WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = relation
          AND w.ev_class <> relation
        UNION ALL
        SELECT format('trigger %I', t.tgname) FROM pg_trigger t
        WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgname <> 'pgt_refuse_dml'
        UNION ALL
        SELECT format('policy %I', p.polname) FROM pg_policy p WHERE p.polrelid = relation
        UNION ALL
        SELECT format('constraint %I of %s', k.conname, k.conrelid::regclass) FROM pg_constraint k
        WHERE (k.conrelid = relation AND k.contype <> 'n') OR k.confrelid = relation) d
$$;

CREATE OR REPLACE FUNCTION pgtrickle._columns(relation oid) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(format('%I %s %s', a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation)
                     ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
$$;

-- Copies grants, comment and indexes from one table to another, except indexes over columns that no longer exist.
CREATE OR REPLACE FUNCTION pgtrickle._copy_grants_and_indexes(new_table oid, old_table oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    granted  record;
    index    record;
    head     text;
BEGIN
    EXECUTE format('ALTER TABLE %s OWNER TO %s', new_table::regclass,
                   (SELECT c.relowner::regrole FROM pg_class c WHERE c.oid = old_table));
    FOR granted IN SELECT a.privilege_type, a.is_grantable,
                          CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role
                   FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = old_table AND a.grantee <> c.relowner LOOP
        EXECUTE format('GRANT %s ON %s TO %s%s', granted.privilege_type, new_table::regclass, granted.role,
                       CASE WHEN granted.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    IF obj_description(old_table, 'pg_class') IS NOT NULL THEN
        EXECUTE format('COMMENT ON TABLE %s IS %L', new_table::regclass, obj_description(old_table, 'pg_class'));
    END IF;
    FOR index IN SELECT i.indexrelid, i.indisunique, c.relname, pg_get_indexdef(i.indexrelid) AS definition
                 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                 WHERE i.indrelid = old_table AND i.indisvalid LOOP
        head := format('CREATE %sINDEX %I ON %s USING ', CASE WHEN index.indisunique THEN 'UNIQUE ' ELSE '' END,
                       index.relname, old_table::regclass);
        -- The index of the key belongs to the applier, which creates the one it needs.
        CONTINUE WHEN NOT starts_with(index.definition, head) OR index.indisunique;
        BEGIN
            EXECUTE format('CREATE INDEX %I ON %s USING %s', 'pgt_new_' || index.indexrelid, new_table::regclass,
                           substr(index.definition, length(head) + 1));
        EXCEPTION WHEN undefined_column OR undefined_function OR undefined_object OR datatype_mismatch THEN
            RAISE NOTICE 'index % is left out: %', index.relname, SQLERRM;
        END;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._alter_query(
    st pgtrickle.pgt_stream_tables, query text, caller_path text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    view_oid   oid;
    canonical  text;
    same       boolean;
    added      jsonb;
    reads      jsonb;
    others     text;
    answer     jsonb;
    shadow     text := 'pgt_new_' || st.pgt_id;
BEGIN
    -- A new alteration replaces one that is still pending. Before anything else is locked: the table that was being built
    -- for it may be being written, for long.
    PERFORM pgtrickle._drop_one(s.pgt_id) FROM pgtrickle.pgt_stream_tables s WHERE s.replaces = st.pgt_id;
    PERFORM pgtrickle._lock_definitions();
    view_oid := pgtrickle._analyse(query, caller_path);
    canonical := pgtrickle._canonical(view_oid);
    same := pgtrickle._columns(view_oid) = pgtrickle._columns(st.pgt_relid);
    PERFORM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = st.pgt_id FOR UPDATE;
    DELETE FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = st.pgt_id;
    PERFORM pgtrickle._drop_one(s.pgt_id) FROM pgtrickle.pgt_stream_tables s WHERE s.replaces = st.pgt_id;
    -- The same text may return other columns, when those of a source have other types.
    IF canonical = st.defining_query AND same THEN
        EXECUTE format('DROP VIEW %s', view_oid::regclass);
        RETURN 'no-op';
    END IF;
    PERFORM pgtrickle._refuse_blown(st, 'given a new query');
    PERFORM pgtrickle._refuse_cycle(st.pgt_relid, ARRAY(SELECT s.relid FROM pgtrickle._sources_of(view_oid) s));
    SELECT string_agg(r.pgt_relid::regclass::text, ', ') INTO others
    FROM pgtrickle._readers_of(st.pgt_relid) r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE s.status = 'PAUSED';
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'stream tables that read % are paused: %', st.pgt_relid::regclass, others
            USING HINT = 'They must change to the new query with it: resume or drop them first.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- Before anything is locked that the applier has to read.
    answer := pgtrickle._refuse_unsupported(view_oid, query, st.refresh_mode, st.full_policy);
    reads := pgtrickle._admit_sources(view_oid, st.refresh_mode);
    PERFORM pgtrickle._refuse_own_tables(st.pgt_schema, reads);
    -- Not when PostgreSQL runs the query: it compares with rows that are committed, and so with columns that are.
    IF st.refresh_mode <> 'FULL' AND coalesce((answer ->> 'supported')::boolean, true) THEN
        added := pgtrickle._added_columns(view_oid, st.pgt_relid, true);
    END IF;
    IF same OR added IS NOT NULL THEN
        INSERT INTO pgtrickle.pgt_alterations
            (pgt_id, original_query, defining_query, search_path, dependencies, added_columns)
        VALUES (st.pgt_id, query, canonical, caller_path, reads, added);
        EXECUTE format('DROP VIEW %s', view_oid::regclass);
        PERFORM pg_logical_emit_message(true, 'pg_trickle', 'capture ' || st.pgt_id);
        RETURN 'compatible';
    END IF;
    EXECUTE format('DROP VIEW %s', view_oid::regclass);
    others := pgtrickle._dependents(st.pgt_relid);
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'the columns of stream table % change, and other objects depend on it', st.pgt_relid::regclass
            USING DETAIL = format('There is %s.', others),
                  HINT = 'Drop them and create them again afterwards, or keep the columns.',
                  ERRCODE = 'dependent_objects_still_exist';
    END IF;
    PERFORM pgtrickle._create_stream_table(
        format('%I.%I', st.pgt_schema, shadow), query, st.schedule, st.refresh_mode, caller_path);
    UPDATE pgtrickle.pgt_stream_tables s
    SET replaces = st.pgt_id, full_policy = st.full_policy, auto_threshold = st.auto_threshold,
        auto_evolve = st.auto_evolve, fuse = st.fuse, fuse_ceiling = st.fuse_ceiling,
        fuse_sensitivity = st.fuse_sensitivity
    WHERE s.pgt_schema = st.pgt_schema AND s.pgt_name = shadow;
    PERFORM pgtrickle._copy_grants_and_indexes(format('%I.%I', st.pgt_schema, shadow)::regclass, st.pgt_relid);
    RETURN 'rebuild';
END $$;

DROP FUNCTION IF EXISTS pgtrickle._alter_stream_table(text, text, text, text);

CREATE OR REPLACE FUNCTION pgtrickle.alter_stream_table(
    name text, query text DEFAULT NULL, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL,
    append_only boolean DEFAULT NULL, full_policy text DEFAULT NULL, auto_threshold double precision DEFAULT NULL,
    auto_evolve boolean DEFAULT NULL, sla interval DEFAULT NULL, tier text DEFAULT NULL,
    fuse text DEFAULT NULL, fuse_ceiling double precision DEFAULT NULL, fuse_sensitivity double precision DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st     pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    owner  oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid);
    done   text := 'no-op';
BEGIN
    IF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of stream table %', name
            USING HINT = 'Call it as a member of the role that owns it.', ERRCODE = 'insufficient_privilege';
    ELSIF st.replaces IS NOT NULL THEN
        RAISE EXCEPTION '% is the new form of another stream table, still being built', name
            USING HINT = 'Alter that one.', ERRCODE = 'object_in_use';
    END IF;
    st.schedule := coalesce(schedule, st.schedule);
    st.refresh_mode := coalesce(refresh_mode, st.refresh_mode);
    PERFORM pgtrickle._check_schedule(st.schedule);
    st.refresh_mode := pgtrickle._check_refresh_mode(st.refresh_mode);
    UPDATE pgtrickle.pgt_stream_tables s
    SET schedule = st.schedule, refresh_mode = st.refresh_mode, pace_version = s.pace_version + 1
    WHERE s.pgt_id = st.pgt_id AND (s.schedule, s.refresh_mode) IS DISTINCT FROM (st.schedule, st.refresh_mode);
    IF FOUND OR num_nulls(append_only, full_policy, auto_threshold, auto_evolve, sla, tier) < 6
       OR num_nulls(fuse, fuse_ceiling, fuse_sensitivity) < 3 THEN
        done := 'config';
    END IF;
    PERFORM pgtrickle._set_options(name, append_only, full_policy, auto_threshold, auto_evolve, search_path);
    PERFORM pgtrickle._set_sla(name, sla, tier, search_path);
    PERFORM pgtrickle._set_fuse(name, fuse, fuse_ceiling, fuse_sensitivity, search_path);
    st.full_policy := coalesce(lower(full_policy), st.full_policy);
    IF auto_evolve AND query IS NULL THEN
        -- Columns that came before it was switched on.
        PERFORM pgtrickle._evolve(ARRAY[st.pgt_id], by_hand => true);
    END IF;
    IF query IS NOT NULL THEN
        done := coalesce(nullif(pgtrickle._alter_query(st, query, search_path), 'no-op'), done);
    END IF;
    RETURN done;
END $$;
COMMENT ON FUNCTION pgtrickle.alter_stream_table IS
    'Change the options or the query of a stream table; returns what that was: no-op, config, compatible or rebuild.';

CREATE OR REPLACE FUNCTION pgtrickle.create_or_replace_stream_table(
    name text, query text, schedule text DEFAULT '1s', refresh_mode text DEFAULT 'AUTO',
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._existing(name, search_path);
BEGIN
    IF st.pgt_id IS NULL THEN
        PERFORM pgtrickle._create_stream_table(name, query, schedule, refresh_mode, search_path);
        RETURN 'created';
    END IF;
    RETURN pgtrickle.alter_stream_table(
        format('%I.%I', st.pgt_schema, st.pgt_name), query, schedule, refresh_mode, search_path => search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.create_or_replace_stream_table IS
    'Create a stream table or make the one of that name so; returns created, no-op, config, compatible or rebuild.';

-- Makes the pending query the current one. The applier calls it in the transaction that writes the new rows. `request`: the
-- last request to compute the whole when that began.
--
-- A reader that is suspended has no part in it: it has to be computed as a whole. One that was suspended together with this
-- stream table is mended with it; one with a reason of its own waits until it is resumed.
CREATE OR REPLACE FUNCTION pgtrickle._adopt(stream_table bigint, request timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wish  pgtrickle.pgt_alterations;
    st    pgtrickle.pgt_stream_tables;
BEGIN
    DELETE FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = stream_table RETURNING * INTO wish;
    IF wish.pgt_id IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table;
    IF wish.added_columns IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s %s', st.pgt_relid::regclass,
                       pgtrickle._column_clauses(wish.added_columns, 'ADD COLUMN'));
    END IF;
    UPDATE pgtrickle.pgt_stream_tables s
    SET original_query = wish.original_query, defining_query = wish.defining_query, search_path = wish.search_path,
        analysed_at = CASE wish.reason WHEN 'AUTO_SCHEMA_EVOLUTION' THEN s.analysed_at ELSE wish.requested_at END,
        status = CASE WHEN s.status <> 'SUSPENDED' THEN s.status
                      WHEN EXISTS (SELECT FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = s.pgt_id) THEN 'ACTIVE'
                      ELSE 'INITIALIZING' END,
        last_error_at = NULL, last_error_code = NULL, last_error_message = NULL, last_error_hint = NULL
    WHERE s.pgt_id = stream_table;
    PERFORM pgtrickle._set_dependencies(stream_table, wish.dependencies);
    -- The rows of the new query are computed as a whole. A later request stays: what it is about may not be in these rows.
    DELETE FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = stream_table AND r.requested_at <= request;
    PERFORM pgtrickle._reinitialize_one(r.pgt_id, 'DEFINITION_CHANGED', format('%s has another query', st.pgt_relid::regclass),
                                        'SCHEDULER', st.status = 'SUSPENDED')
    FROM pgtrickle._readers_of(st.pgt_relid) r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE s.status = 'SUSPENDED';
END $$;

-- The same for a suspended stream table whose old query has no plan any more. Nobody can say what the other sinks have
-- missed: all of it is computed, and they get all rows.
CREATE OR REPLACE FUNCTION pgtrickle._adopt_and_repair(stream_table bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wish pgtrickle.pgt_alterations;
BEGIN
    SELECT * INTO wish FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = stream_table;
    PERFORM pgtrickle._adopt(stream_table, 'infinity');
    UPDATE pgtrickle.pgt_stream_tables s SET sinks_differ_since = clock_timestamp()
    WHERE s.pgt_id = stream_table AND EXISTS (SELECT FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = stream_table);
    PERFORM pgtrickle._request_reinitialize(stream_table, wish.reason, wish.detail);
END $$;

-- Replaces the old table by the new one, under its name. The applier calls it when both have the same frontier.
CREATE OR REPLACE FUNCTION pgtrickle._exchange(new_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    coming  pgtrickle.pgt_stream_tables;
    going   pgtrickle.pgt_stream_tables;
    index   record;
    names   jsonb;
BEGIN
    SELECT * INTO coming FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = new_id FOR UPDATE;
    SELECT * INTO going FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = coming.replaces FOR UPDATE;
    IF going.pgt_id IS NULL THEN
        -- Dropped or altered again in the meantime.
        RETURN;
    END IF;
    SELECT jsonb_object_agg(c.relname, o.relname) INTO names
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid AND c.relname ~ '^pgt_new_[0-9]+$'
    JOIN pg_class o ON o.oid = substr(c.relname, 9)::oid WHERE i.indrelid = coming.pgt_relid;
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = going.pgt_relid AND t.tgname = 'pgt_refuse_dml'
               AND t.tgenabled = 'D') THEN
        EXECUTE format('ALTER TABLE %s DISABLE TRIGGER pgt_refuse_dml', coming.pgt_relid::regclass);
    END IF;
    PERFORM pgtrickle._drop_publication(going.pgt_id);
    EXECUTE format('DROP TABLE %s', going.pgt_relid::regclass);
    EXECUTE format('ALTER TABLE %s RENAME TO %I', coming.pgt_relid::regclass, going.pgt_name);
    FOR index IN SELECT * FROM jsonb_each_text(names) LOOP
        EXECUTE format('ALTER INDEX %I.%I RENAME TO %I', coming.pgt_schema, index.key, index.value);
    END LOOP;
    -- PostgreSQL named the index of the key after the table.
    FOR index IN SELECT c.relname, (going.pgt_name || substr(c.relname, length(coming.pgt_name) + 1))::name AS wanted
                 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                 WHERE i.indrelid = coming.pgt_relid AND starts_with(c.relname, coming.pgt_name || '_') LOOP
        CONTINUE WHEN to_regclass(format('%I.%I', coming.pgt_schema, index.wanted)) IS NOT NULL;
        EXECUTE format('ALTER INDEX %I.%I RENAME TO %I', coming.pgt_schema, index.relname, index.wanted);
    END LOOP;
    UPDATE pgtrickle.pgt_refresh_history h SET pgt_id = new_id, of_replaced = true WHERE h.pgt_id = going.pgt_id;
    -- What was asked for after the new one was begun may not be in its rows.
    UPDATE pgtrickle.pgt_reinitializations r SET pgt_id = new_id
    WHERE r.pgt_id = going.pgt_id AND r.requested_at > coming.created_at
      AND NOT EXISTS (SELECT FROM pgtrickle.pgt_reinitializations n WHERE n.pgt_id = new_id);
    UPDATE pgtrickle.pgt_stream_tables s SET replaces = NULL, canary_of = going.canary_of WHERE s.pgt_id = new_id;
    UPDATE pgtrickle.pgt_stream_tables s SET canary_of = new_id WHERE s.canary_of = going.pgt_id;
    DELETE FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = going.pgt_id;
    UPDATE pgtrickle.pgt_stream_tables s
    SET pgt_name = going.pgt_name, created_at = going.created_at, schedule = going.schedule,
        refresh_mode = going.refresh_mode, full_policy = going.full_policy, auto_threshold = going.auto_threshold,
        append_only = going.append_only, visibility = going.visibility, auto_evolve = going.auto_evolve,
        freshness_deadline_ms = going.freshness_deadline_ms, refresh_tier = going.refresh_tier,
        tier_by_hand = going.tier_by_hand,
        fuse = going.fuse, fuse_ceiling = going.fuse_ceiling, fuse_sensitivity = going.fuse_sensitivity,
        sinks_differ_since = CASE WHEN EXISTS (
            SELECT FROM pg_trigger t WHERE t.tgrelid = s.pgt_relid AND t.tgname = 'pgt_refuse_dml' AND t.tgenabled = 'D')
            THEN now() END,
        status = CASE going.status WHEN 'PAUSED' THEN 'PAUSED' ELSE s.status END,
        downstream_publication_name = going.downstream_publication_name
    WHERE s.pgt_id = new_id;
    PERFORM pgtrickle._ensure_publication(new_id);
END $$;

-- Keeps the old query and returns its stream table. The applier calls it with the reason, and sends the alert.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_alteration(stream_table bigint, code text, message text, hint text)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept bigint := (SELECT coalesce(s.replaces, s.pgt_id) FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table);
BEGIN
    DELETE FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = kept;
    PERFORM pgtrickle._drop_one(s.pgt_id) FROM pgtrickle.pgt_stream_tables s WHERE s.replaces = kept;
    UPDATE pgtrickle.pgt_stream_tables s
    SET last_error_at = now(), last_error_code = code, last_error_message = 'its new query was refused: ' || message,
        last_error_hint = hint
    WHERE s.pgt_id = kept;
    RETURN kept;
END $$;
