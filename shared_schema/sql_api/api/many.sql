-- Several stream tables in one call: all of them or none. The error names the first one that is at fault.

CREATE OR REPLACE FUNCTION pgtrickle.pause_all() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    paused integer;
BEGIN
    -- Not a suspended one, which rests anyway and keeps its reason; nor one that is built to replace another.
    UPDATE pgtrickle.pgt_stream_tables s SET status = 'PAUSED'
    WHERE s.status IN ('ACTIVE', 'INITIALIZING') AND s.replaces IS NULL;
    GET DIAGNOSTICS paused = ROW_COUNT;
    RETURN paused;
END $$;
COMMENT ON FUNCTION pgtrickle.pause_all IS 'Pause every stream table that is in service, as pause_stream_table does; returns how many.';

CREATE OR REPLACE FUNCTION pgtrickle.resume_all() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st       pgtrickle.pgt_stream_tables;
    resumed  integer := 0;
BEGIN
    -- One whose fuse is blown waits for reset_fuse.
    FOR st IN SELECT * FROM pgtrickle.pgt_stream_tables s
              WHERE s.status = 'PAUSED' AND NOT pgtrickle._is_fuse_blown(s) ORDER BY s.pgt_id FOR NO KEY UPDATE LOOP
        PERFORM pgtrickle._resume_stream_table(format('%I.%I', st.pgt_schema, st.pgt_name), '');
        resumed := resumed + 1;
    END LOOP;
    RETURN resumed;
END $$;
COMMENT ON FUNCTION pgtrickle.resume_all IS
    'Resume every paused stream table, whoever paused it; returns how many. A suspended one has a reason and is resumed by name.';

-- The stream tables of a list, each once; the first that does not exist is named.
CREATE OR REPLACE FUNCTION pgtrickle._named(names text[], caller_path text) RETURNS SETOF pgtrickle.pgt_stream_tables
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name   text;
    st     pgtrickle.pgt_stream_tables;
    found  bigint[] := '{}';
BEGIN
    IF names IS NULL OR array_position(names, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a name in the list of stream tables is NULL'
            USING HINT = 'Give an array of names, as ARRAY[''name'', ''schema.name''].', ERRCODE = 'null_value_not_allowed';
    END IF;
    FOREACH name IN ARRAY names LOOP
        st := pgtrickle._stream_table(name, caller_path);
        IF NOT st.pgt_id = ANY (found) THEN
            found := found || st.pgt_id;
            RETURN NEXT st;
        END IF;
    END LOOP;
END $$;

-- Runs a call for one of several stream tables, with its name as $1, the options as $2 and the caller's search path as $3. An
-- error says that nothing was done, and because of which.
CREATE OR REPLACE FUNCTION pgtrickle._do_for_one(
    name text, outcome text, call text, options jsonb DEFAULT NULL, caller_path text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    message  text;
    detail   text;
    hint     text;
BEGIN
    EXECUTE call USING name, options, caller_path;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE EXCEPTION 'no stream table was %, because of %: %', outcome, name, message
        USING HINT = concat_ws(' ', nullif(detail, ''), nullif(hint, '')), ERRCODE = SQLSTATE;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.bulk_alter_stream_tables(
    names text[], options jsonb, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st       pgtrickle.pgt_stream_tables;
    known    jsonb;
    unknown  text;
    given    text;
    altered  integer := 0;
BEGIN
    -- Whatever alter_stream_table takes, except a query, which belongs to one stream table.
    SELECT jsonb_object_agg(a.name, format_type(a.type, NULL)) INTO known
    FROM pg_proc p, unnest(p.proargnames, p.proargtypes::oid[]) AS a (name, type)
    WHERE p.oid = 'pgtrickle.alter_stream_table'::regproc AND a.name NOT IN ('name', 'query', 'search_path');
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' OR options = '{}' THEN
        RAISE EXCEPTION 'options are a JSON object that is not empty'
            USING HINT = 'For example ''{"schedule": "5m"}''.', ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT string_agg(quote_literal(k), ', ' ORDER BY k) INTO unknown FROM jsonb_object_keys(options) k WHERE NOT known ? k;
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'the options say %, which is not known', unknown
            USING HINT = format('Known are %s; a query is altered by alter_stream_table.',
                                (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(known) k)),
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT string_agg(format('%I => ($2 ->> %L)::%s', k, k, known ->> k), ', ') INTO given FROM jsonb_object_keys(options) k;
    FOR st IN SELECT * FROM pgtrickle._named(names, search_path) LOOP
        PERFORM pgtrickle._do_for_one(format('%I.%I', st.pgt_schema, st.pgt_name), 'altered', format(
            'SELECT pgtrickle.alter_stream_table($1, %s, search_path => $3)', given), options, search_path);
        altered := altered + 1;
    END LOOP;
    RETURN altered;
END $$;
COMMENT ON FUNCTION pgtrickle.bulk_alter_stream_tables IS
    'Give several stream tables the same options, {"schedule": …, …} as alter_stream_table takes them: all of them or none; returns how many.';

CREATE OR REPLACE FUNCTION pgtrickle.bulk_drop_stream_tables(
    names text[], cascade boolean DEFAULT false,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    listed   bigint[] := ARRAY(SELECT n.pgt_id FROM pgtrickle._named(names, search_path) n);
    bad      record;
    st       record;
    dropped  integer := 0;
BEGIN
    -- Readers may be in the list themselves.
    SELECT s.pgt_relid, string_agg(r.pgt_relid::regclass::text, ', ' ORDER BY r.depth) AS readers INTO bad
    FROM unnest(listed) WITH ORDINALITY AS l (pgt_id, place) JOIN pgtrickle.pgt_stream_tables s USING (pgt_id),
         pgtrickle._readers_of(s.pgt_relid) r
    WHERE NOT r.pgt_id = ANY (listed) GROUP BY s.pgt_relid, l.place ORDER BY l.place LIMIT 1;
    IF bad.pgt_relid IS NOT NULL AND NOT cascade THEN
        RAISE EXCEPTION 'no stream table was dropped, because others read %', bad.pgt_relid::regclass
            USING DETAIL = format('It is read by %s.', bad.readers),
                  HINT = 'List them too, or say cascade => true.', ERRCODE = 'dependent_objects_still_exist';
    END IF;
    FOR st IN
        -- A reader has fewer readers than what it reads: it goes first.
        SELECT s.pgt_id, format('%I.%I', s.pgt_schema, s.pgt_name) AS name
        FROM pgtrickle.pgt_stream_tables s
        WHERE s.pgt_id = ANY (listed) OR s.pgt_id IN (
            SELECT r.pgt_id FROM pgtrickle.pgt_stream_tables l, pgtrickle._readers_of(l.pgt_relid) r WHERE l.pgt_id = ANY (listed))
        ORDER BY (SELECT count(*) FROM pgtrickle._readers_of(s.pgt_relid)), s.pgt_id
    LOOP
        dropped := dropped + 1;
        -- A canary has gone with its stream table.
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = st.pgt_id);
        PERFORM pgtrickle._do_for_one(st.name, 'dropped', format('SELECT pgtrickle._drop_one(%s)', st.pgt_id));
    END LOOP;
    RETURN dropped;
END $$;
COMMENT ON FUNCTION pgtrickle.bulk_drop_stream_tables IS
    'Drop several stream tables, with cascade also those that read them: all of them or none; returns how many.';
