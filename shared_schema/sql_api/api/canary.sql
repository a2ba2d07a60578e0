-- A dry run of a new query: a canary is maintained beside the stream table, on the same schedule and with the same options,
-- and is seen by nobody else: no topic, no Delta table, no grants. What differs is compared at one frontier.

-- The canary of a stream table, if it has one. Not what is built to replace it.
CREATE OR REPLACE FUNCTION pgtrickle._find_canary(stream_table bigint) RETURNS SETOF pgtrickle.pgt_stream_tables
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM pgtrickle.pgt_stream_tables s WHERE s.canary_of = stream_table AND s.replaces IS NULL
$$;

-- Returns the canary of a stream table, which must have one.
CREATE OR REPLACE FUNCTION pgtrickle._canary_of(st pgtrickle.pgt_stream_tables) RETURNS pgtrickle.pgt_stream_tables
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    canary pgtrickle.pgt_stream_tables;
BEGIN
    SELECT * INTO canary FROM pgtrickle._find_canary(st.pgt_id);
    IF canary.pgt_id IS NULL THEN
        RAISE EXCEPTION 'stream table % has no canary', st.pgt_relid::regclass
            USING HINT = format('SELECT pgtrickle.canary_begin(%L, new_query => …) begins one.', st.pgt_relid::regclass),
                  ERRCODE = 'undefined_object';
    END IF;
    RETURN canary;
END $$;

-- Why the rows of a stream table are not, or not for long, those of its stored query at its frontier; NULL when they are.
CREATE OR REPLACE FUNCTION pgtrickle._not_of_its_query(st pgtrickle.pgt_stream_tables) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN st.status = 'SUSPENDED' THEN format('%s is suspended: %s', st.pgt_relid::regclass, st.last_error_message)
        WHEN st.partial_until IS NOT NULL THEN format('%s is being written', st.pgt_relid::regclass)
        WHEN EXISTS (SELECT FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = st.pgt_id)
          OR EXISTS (SELECT FROM pgtrickle.pgt_stream_tables n WHERE n.replaces = st.pgt_id)
            THEN format('a new query of %s is pending', st.pgt_relid::regclass)
        WHEN EXISTS (SELECT FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = st.pgt_id)
            THEN format('%s is to be computed as a whole', st.pgt_relid::regclass)
        WHEN st.fuse_skipped_at IS NOT NULL
            THEN format('changes of %s were skipped: SELECT pgtrickle.reinitialize_stream_table(%1$L)', st.pgt_relid::regclass) END
$$;

CREATE OR REPLACE FUNCTION pgtrickle.canary_begin(
    name text, new_query text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st        pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    owner     oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid);
    wanted    text := st.pgt_name || '__canary';
    new_name  text := format('%I.%I', st.pgt_schema, wanted);
    new_id    bigint;
BEGIN
    -- It is not dropped before its canary is there.
    PERFORM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = st.pgt_id FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stream table % was dropped', name
            USING HINT = 'SELECT * FROM pgtrickle.pgt_status() lists those that exist.', ERRCODE = 'undefined_table';
    ELSIF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of stream table %', name
            USING HINT = 'Call it as a member of the role that owns it.', ERRCODE = 'insufficient_privilege';
    ELSIF st.canary_of IS NOT NULL OR st.replaces IS NOT NULL THEN
        RAISE EXCEPTION '% is itself the trial of a new query', name
            USING HINT = 'Begin the canary of the stream table that it belongs to.', ERRCODE = 'object_in_use';
    ELSIF EXISTS (SELECT FROM pgtrickle._find_canary(st.pgt_id)) THEN
        RAISE EXCEPTION 'stream table % has a canary already', name
            USING HINT = format('SELECT pgtrickle.canary_promote(%L) or pgtrickle.canary_cancel(%1$L) ends it.', name),
                  ERRCODE = 'duplicate_object';
    ELSIF st.status NOT IN ('ACTIVE', 'INITIALIZING') THEN
        RAISE EXCEPTION 'stream table % is %: there is nothing to compare a canary with', name, lower(st.status)
            USING HINT = format('SELECT pgtrickle.resume_stream_table(%L), or alter its query at once.', name),
                  ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF wanted::name::text <> wanted THEN
        RAISE EXCEPTION 'the name %.%__canary is too long', st.pgt_schema, st.pgt_name
            USING HINT = 'A name has at most 63 bytes: rename the stream table by creating it again.', ERRCODE = 'name_too_long';
    END IF;
    -- All options, by the form in which definitions are exported; not what others would see or write.
    PERFORM pgtrickle._create_as(
        (pgtrickle._spec(format('%I.%I', st.pgt_schema, st.pgt_name), '') - '{visibility,direct_dml,publication}'::text[])
        || jsonb_build_object('name', new_name, 'query', new_query, 'search_path', search_path), search_path);
    UPDATE pgtrickle.pgt_stream_tables s SET canary_of = st.pgt_id
    WHERE s.pgt_relid = new_name::regclass RETURNING s.pgt_id INTO new_id;
    PERFORM pgtrickle._refuse_cycle(st.pgt_relid, ARRAY(
        SELECT d.source_relid FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = new_id));
    EXECUTE format('ALTER TABLE %s OWNER TO %s', new_name, owner::regrole);
    RETURN new_name;
END $$;
COMMENT ON FUNCTION pgtrickle.canary_begin IS
    'Maintain a new query as <name>__canary beside the stream table, with its options, in PostgreSQL alone; returns that name.';

-- In one snapshot, that of the calling statement: frontiers and rows belong together.
CREATE OR REPLACE FUNCTION pgtrickle.canary_diff(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (row_source text, diff_row jsonb)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    st       pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    canary   pgtrickle.pgt_stream_tables := pgtrickle._canary_of(st);
    one      pg_lsn := (SELECT f.frontier FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = st.pgt_id);
    other    pg_lsn := (SELECT f.frontier FROM pgtrickle.pgt_frontiers f WHERE f.pgt_id = canary.pgt_id);
    problem  text;
    shared   text;
BEGIN
    SELECT min(pgtrickle._not_of_its_query(s)) INTO problem
    FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id IN (st.pgt_id, canary.pgt_id);
    IF problem IS NULL AND one IS DISTINCT FROM other THEN
        problem := format('%s stands at %s, %s at %s', st.pgt_relid::regclass, coalesce(one::text, 'no frontier yet'),
                          canary.pgt_relid::regclass, coalesce(other::text, 'no frontier yet'));
    ELSIF problem IS NULL AND one IS NULL THEN
        problem := 'neither is filled yet';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'stream table % and its canary cannot be compared at one frontier: %', name, problem
            USING HINT = format('SELECT pgtrickle.wait_for(%L) brings both to one frontier; canary_status() shows them.',
                                canary.pgt_relid::regclass),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- Columns of the same name are compared, as text: what a reader sees. Others only one of them has. A column may be called t.
    SELECT string_agg(format('t.%I', a.attname), ', ' ORDER BY a.attnum) INTO shared
    FROM pg_attribute a JOIN pg_attribute b ON b.attrelid = canary.pgt_relid AND b.attname = a.attname
        AND b.attnum > 0 AND NOT b.attisdropped
    WHERE a.attrelid = st.pgt_relid AND a.attnum > 0 AND NOT a.attisdropped;
    RETURN QUERY EXECUTE format($q$
        WITH current_rows AS (
            SELECT k.v, row_number() OVER (PARTITION BY k.v) AS copy, to_jsonb(t.*) AS shown
            FROM %1$s t CROSS JOIN LATERAL (SELECT ROW(%3$s)::text COLLATE "C" AS v) k
        ), canary_rows AS (
            SELECT k.v, row_number() OVER (PARTITION BY k.v) AS copy, to_jsonb(t.*) AS shown
            FROM %2$s t CROSS JOIN LATERAL (SELECT ROW(%3$s)::text COLLATE "C" AS v) k
        )
        SELECT CASE WHEN n.v IS NULL THEN 'current' ELSE 'canary' END, coalesce(c.shown, n.shown)
        FROM current_rows c FULL JOIN canary_rows n ON n.v = c.v AND n.copy = c.copy
        WHERE c.v IS NULL OR n.v IS NULL ORDER BY coalesce(c.v, n.v), 1 DESC $q$,
        st.pgt_relid::regclass, canary.pgt_relid::regclass, coalesce(shared, ''));
END $$;
COMMENT ON FUNCTION pgtrickle.canary_diff IS
    'The rows that only one of them has, current or canary, both at the same frontier; refused while they are not. Compares the columns that both have.';

CREATE OR REPLACE FUNCTION pgtrickle.canary_promote(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st      pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    canary  pgtrickle.pgt_stream_tables := pgtrickle._canary_of(st);
    problem text := coalesce(pgtrickle._not_of_its_query(canary),
                             CASE WHEN canary.status <> 'ACTIVE' THEN 'it is ' || lower(canary.status) END);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'the canary of stream table % cannot be promoted: %', name, problem
            USING HINT = format('Wait for it (SELECT pgtrickle.wait_for(%L)), or SELECT pgtrickle.canary_cancel(%L).',
                                canary.pgt_relid::regclass, name),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- First, before anything is locked: it may be being written.
    PERFORM pgtrickle._drop_one(canary.pgt_id);
    RETURN pgtrickle.alter_stream_table(format('%I.%I', st.pgt_schema, st.pgt_name), query => canary.original_query,
                                        search_path => canary.search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.canary_promote IS
    'Give the stream table the query of its canary, as alter_stream_table does, and drop the canary; returns no-op, compatible or rebuild.';

CREATE OR REPLACE FUNCTION pgtrickle.canary_cancel(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._drop_one((pgtrickle._canary_of(pgtrickle._stream_table(name, search_path))).pgt_id);
END $$;
COMMENT ON FUNCTION pgtrickle.canary_cancel IS 'Drop the canary of a stream table, which stays as it is.';

CREATE OR REPLACE FUNCTION pgtrickle.canary_status()
RETURNS TABLE (name text, canary text, status text, since timestamptz, frontier pg_lsn, canary_frontier pg_lsn,
               is_comparable boolean, new_query text, last_error_message text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', s.pgt_schema, s.pgt_name), format('%I.%I', c.pgt_schema, c.pgt_name), c.status, c.created_at,
           f.frontier, g.frontier,
           f.frontier IS NOT NULL AND f.frontier IS NOT DISTINCT FROM g.frontier
           AND pgtrickle._not_of_its_query(s) IS NULL AND pgtrickle._not_of_its_query(c) IS NULL, c.original_query,
           c.last_error_message
    FROM pgtrickle.pgt_stream_tables s CROSS JOIN LATERAL pgtrickle._find_canary(s.pgt_id) c
    LEFT JOIN pgtrickle.pgt_frontiers f ON f.pgt_id = s.pgt_id LEFT JOIN pgtrickle.pgt_frontiers g ON g.pgt_id = c.pgt_id
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.canary_status IS 'List the canaries, with both frontiers and whether they can be compared now.';
