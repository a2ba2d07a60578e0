-- Other ways to create stream tables, and the export of definitions.

CREATE OR REPLACE FUNCTION pgtrickle._existing(name text, caller_path text) RETURNS pgtrickle.pgt_stream_tables
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target  record;
    st      pgtrickle.pgt_stream_tables;
BEGIN
    -- The schema where it would be created, not the schema where such a name is found.
    SELECT * INTO target FROM pgtrickle._resolve_name(name, caller_path);
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s
    WHERE s.pgt_schema = target.schema_name AND s.pgt_name = target.table_name;
    RETURN st;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._check_refresh_mode(refresh_mode text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF refresh_mode IS NULL OR upper(refresh_mode) IN ('AUTO', 'DIFFERENTIAL', 'FULL', 'IMMEDIATE') THEN
        RETURN upper(refresh_mode);
    END IF;
    RAISE EXCEPTION 'refresh mode % is not available', refresh_mode
        USING HINT = 'Use AUTO, DIFFERENTIAL, FULL or IMMEDIATE.', ERRCODE = 'invalid_parameter_value';
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.create_stream_table_if_not_exists(
    name text, query text, schedule text DEFAULT '1s', refresh_mode text DEFAULT 'AUTO',
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st          pgtrickle.pgt_stream_tables := pgtrickle._existing(name, search_path);
BEGIN
    IF st.pgt_id IS NOT NULL THEN
        RAISE NOTICE 'stream table % exists already, skipping', name;
        RETURN false;
    END IF;
    PERFORM pgtrickle._create_stream_table(name, query, schedule, refresh_mode, search_path);
    RETURN true;
END $$;
COMMENT ON FUNCTION pgtrickle.create_stream_table_if_not_exists IS
    'Create a stream table unless there is one of that name; return whether it was created.';

-- NULL leaves an option unchanged.
CREATE OR REPLACE FUNCTION pgtrickle._set_options(
    name text, new_append_only boolean, new_full_policy text, new_auto_threshold double precision,
    new_auto_evolve boolean, caller_path text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    IF lower(new_full_policy) NOT IN ('allow', 'error') THEN
        RAISE EXCEPTION 'full_policy % is not known', quote_literal(new_full_policy)
            USING HINT = 'Use allow or error.', ERRCODE = 'invalid_parameter_value';
    ELSIF NOT new_auto_threshold BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'auto_threshold % is out of bounds', new_auto_threshold
            USING HINT = 'It is a share of the sources'' rows: from 0 to 1.', ERRCODE = 'invalid_parameter_value';
    ELSIF num_nulls(new_append_only, new_full_policy, new_auto_threshold, new_auto_evolve) < 4 THEN
        UPDATE pgtrickle.pgt_stream_tables s
        SET append_only = coalesce(new_append_only, s.append_only),
            full_policy = coalesce(lower(new_full_policy), s.full_policy),
            auto_threshold = coalesce(new_auto_threshold, s.auto_threshold),
            auto_evolve = coalesce(new_auto_evolve, s.auto_evolve)
        WHERE s.pgt_id = st.pgt_id;
    END IF;
END $$;

-- All keys of a definition as JSON. A missing or NULL key means the default of create_stream_table.
CREATE OR REPLACE FUNCTION pgtrickle._create_as(wanted jsonb, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name     text := wanted ->> 'name';
    path     text := coalesce(wanted ->> 'search_path', caller_path);
    unknown  text;
BEGIN
    SELECT string_agg(quote_literal(k), ', ') INTO unknown FROM jsonb_object_keys(wanted) k
    WHERE k NOT IN ('name', 'query', 'search_path', 'schedule', 'refresh_mode', 'append_only', 'full_policy',
                    'auto_threshold', 'auto_evolve', 'sla', 'tier', 'visibility', 'direct_dml', 'publication', 'fuse',
                    'fuse_ceiling', 'fuse_sensitivity');
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'the definition of % says %, which is not known', coalesce(name, 'a stream table'), unknown
            USING HINT = 'SELECT pgtrickle.stream_table_spec(name) shows all that can be said.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pgtrickle._create_stream_table(name, wanted ->> 'query', coalesce(wanted ->> 'schedule', '1s'),
                                           coalesce(wanted ->> 'refresh_mode', 'AUTO'), path);
    PERFORM pgtrickle._set_options(name, (wanted ->> 'append_only')::boolean, wanted ->> 'full_policy',
                                   (wanted ->> 'auto_threshold')::double precision, (wanted ->> 'auto_evolve')::boolean,
                                   path);
    PERFORM pgtrickle._set_sla(name, (wanted ->> 'sla')::interval, wanted ->> 'tier', path);
    PERFORM pgtrickle._set_fuse(name, wanted ->> 'fuse', (wanted ->> 'fuse_ceiling')::double precision,
                                (wanted ->> 'fuse_sensitivity')::double precision, path);
    PERFORM pgtrickle.set_visibility(name, coalesce(wanted ->> 'visibility', 'transactional'), path);
    IF (wanted ->> 'direct_dml')::boolean THEN
        PERFORM pgtrickle.allow_direct_dml(name, true, path);
    END IF;
    IF wanted ->> 'publication' IS NOT NULL THEN
        PERFORM pgtrickle.stream_table_to_publication(name, wanted ->> 'publication', path);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.bulk_create(
    definitions jsonb, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted      jsonb;
    made        jsonb := '[]';
BEGIN
    FOR wanted IN SELECT e FROM pg_catalog.jsonb_array_elements(definitions) e LOOP
        PERFORM pgtrickle._create_as(wanted, search_path);
        made := made OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(
            'name', pg_catalog.jsonb_extract_path_text(wanted, 'name'), 'status', 'created');
    END LOOP;
    RETURN made;
END $$;
COMMENT ON FUNCTION pgtrickle.bulk_create IS
    'Create several stream tables, [{"name", "query", …}, …] in order: all of them or none. Each may say what stream_table_spec shows.';

-- The stored query needs only pg_catalog on the search path. Floats are printed in full, whatever the caller has set.
CREATE OR REPLACE FUNCTION pgtrickle._spec(name text, caller_path text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    RETURN jsonb_build_object(
        'name', format('%I.%I', st.pgt_schema, st.pgt_name),
        -- Without the comment that lists function digests: create_stream_table writes a new one.
        'query', regexp_replace(st.defining_query, '^/\* functions: [^*]*\*/', ''),
        'search_path', 'pg_catalog', 'schedule', st.schedule, 'refresh_mode', st.refresh_mode,
        'append_only', st.append_only, 'full_policy', st.full_policy, 'auto_threshold', st.auto_threshold,
        'auto_evolve', st.auto_evolve, 'sla', st.freshness_deadline_ms || ' ms',
        'tier', CASE WHEN st.tier_by_hand THEN st.refresh_tier END, 'visibility', st.visibility,
        'direct_dml', EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = st.pgt_relid AND t.tgname = 'pgt_refuse_dml'
                              AND t.tgenabled = 'D'),
        'publication', st.downstream_publication_name,
        'fuse', st.fuse, 'fuse_ceiling', st.fuse_ceiling, 'fuse_sensitivity', st.fuse_sensitivity);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.stream_table_spec(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle._spec(name, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.stream_table_spec IS
    'The definition with every option as JSON, in the form that bulk_create takes.';

CREATE OR REPLACE FUNCTION pgtrickle.export_definition(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s jsonb := pgtrickle._spec(name, search_path);
BEGIN
    RETURN format('SELECT pgtrickle.create_stream_table(%L, %L, schedule => %L, refresh_mode => %L, append_only => %L,'
                  ' full_policy => %L, auto_threshold => %L, auto_evolve => %L, sla => %L, fuse => %L, fuse_ceiling => %L,'
                  ' fuse_sensitivity => %L, search_path => %L);',
                  s ->> 'name', s ->> 'query', s ->> 'schedule', s ->> 'refresh_mode', s ->> 'append_only',
                  s ->> 'full_policy', s ->> 'auto_threshold', s ->> 'auto_evolve', s ->> 'sla', s ->> 'fuse',
                  s ->> 'fuse_ceiling', s ->> 'fuse_sensitivity', s ->> 'search_path')
        || CASE WHEN s ->> 'tier' IS NOT NULL
           THEN format(E'\nSELECT pgtrickle.alter_stream_table(%L, tier => %L);', s ->> 'name', s ->> 'tier') ELSE '' END
        || CASE WHEN s ->> 'visibility' <> 'transactional'
           THEN format(E'\nSELECT pgtrickle.set_visibility(%L, %L);', s ->> 'name', s ->> 'visibility') ELSE '' END
        || CASE WHEN (s ->> 'direct_dml')::boolean
           THEN format(E'\nSELECT pgtrickle.allow_direct_dml(%L);', s ->> 'name') ELSE '' END
        || CASE WHEN s ->> 'publication' IS NOT NULL
           THEN format(E'\nSELECT pgtrickle.stream_table_to_publication(%L, %L);', s ->> 'name', s ->> 'publication')
           ELSE '' END;
END $$;
COMMENT ON FUNCTION pgtrickle.export_definition IS
    'The statements that make the stream table with every option. What is PostgreSQL''s own (rights, indexes, comments) is for pg_dump.';
