-- Making stream tables in other ways than one by one, and getting their definitions back.

CREATE OR REPLACE FUNCTION pgtrickle._existing(name text, caller_path text) RETURNS pgtrickle.pgt_stream_tables
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target  record;
    st      pgtrickle.pgt_stream_tables;
BEGIN
    -- Where it would be made, not where a name of that kind would be found.
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

-- What is NULL stays.
CREATE OR REPLACE FUNCTION pgtrickle._set_options(
    name text, new_append_only boolean, new_full_policy text, new_auto_threshold double precision, caller_path text)
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
    ELSIF num_nulls(new_append_only, new_full_policy, new_auto_threshold) < 3 THEN
        UPDATE pgtrickle.pgt_stream_tables s
        SET append_only = coalesce(new_append_only, s.append_only),
            full_policy = coalesce(lower(new_full_policy), s.full_policy),
            auto_threshold = coalesce(new_auto_threshold, s.auto_threshold)
        WHERE s.pgt_id = st.pgt_id;
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
        PERFORM pgtrickle._create_stream_table(
            pg_catalog.jsonb_extract_path_text(wanted, 'name'), pg_catalog.jsonb_extract_path_text(wanted, 'query'),
            coalesce(pg_catalog.jsonb_extract_path_text(wanted, 'schedule'), '1s'),
            coalesce(pg_catalog.jsonb_extract_path_text(wanted, 'refresh_mode'), 'AUTO'), search_path);
        made := made OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(
            'name', pg_catalog.jsonb_extract_path_text(wanted, 'name'), 'status', 'created');
    END LOOP;
    RETURN made;
END $$;
COMMENT ON FUNCTION pgtrickle.bulk_create IS
    'Create several stream tables, [{"name", "query", "schedule", "refresh_mode"}, …] in order: all of them or none.';

CREATE OR REPLACE FUNCTION pgtrickle._spec(name text, caller_path text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    RETURN jsonb_build_object('name', format('%I.%I', st.pgt_schema, st.pgt_name), 'query', st.defining_query,
                              'schedule', st.schedule, 'refresh_mode', st.refresh_mode);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.stream_table_spec(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle._spec(name, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.stream_table_spec IS 'The definition as JSON, in the form that bulk_create takes.';

CREATE OR REPLACE FUNCTION pgtrickle.export_definition(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spec jsonb := pgtrickle._spec(name, search_path);
BEGIN
    RETURN pg_catalog.format('SELECT pgtrickle.create_stream_table(%L, %L, schedule => %L, refresh_mode => %L);',
        pg_catalog.jsonb_extract_path_text(spec, 'name'), pg_catalog.jsonb_extract_path_text(spec, 'query'),
        pg_catalog.jsonb_extract_path_text(spec, 'schedule'), pg_catalog.jsonb_extract_path_text(spec, 'refresh_mode'));
END $$;
COMMENT ON FUNCTION pgtrickle.export_definition IS 'The statement that makes the stream table.';
