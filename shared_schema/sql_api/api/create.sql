-- Creation is transactional: analyse the query with the caller's search path, create the empty table with exact types,
-- record what it reads, and request the capture of its sources. The table is filled after the commit.

CREATE OR REPLACE FUNCTION pgtrickle._resolve_name(name text, caller_path text, OUT schema_name text, OUT table_name text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parts text[] := parse_ident(name);
BEGIN
    CASE cardinality(parts)
        WHEN 1 THEN schema_name := (pgtrickle._schemas(caller_path))[1]; table_name := parts[1];
        WHEN 2 THEN schema_name := parts[1]; table_name := parts[2];
        ELSE RAISE EXCEPTION 'stream table name % has too many parts', name
            USING HINT = 'Write name or schema.name.', ERRCODE = 'invalid_name';
    END CASE;
    IF schema_name IS NULL THEN
        RAISE EXCEPTION 'no schema has been selected to create % in', name
            USING HINT = 'Write schema.name, or put a schema that exists into search_path.', ERRCODE = 'invalid_schema_name';
    END IF;
END $$;

-- Only one session defines stream tables at a time. Analysing a query takes a weak lock on its tables, admitting them a
-- strong one; two sessions that both hold the weak lock would wait for each other. Not an advisory lock: anybody may take
-- one.
CREATE OR REPLACE FUNCTION pgtrickle._lock_definitions() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE pgtrickle.pgt_definition_lock IN EXCLUSIVE MODE;
END $$;

-- The tables that a view reads, directly or through other views.
CREATE OR REPLACE FUNCTION pgtrickle._sources_of(view_oid oid) RETURNS TABLE (relid oid, relkind "char")
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE reads(relid, relkind) AS (
        SELECT c.oid, c.relkind FROM pg_class c WHERE c.oid = view_oid
        UNION
        SELECT c.oid, c.relkind
        FROM reads r
        JOIN pg_rewrite w ON w.ev_class = r.relid AND r.relkind = 'v'
        -- The analysed tree, not pg_depend: that does not list system tables. Blanks in names are escaped in the tree,
        -- so no name can look like this field.
        CROSS JOIN LATERAL regexp_matches(w.ev_action::text, ':relid ([0-9]+)', 'g') AS field
        JOIN pg_class c ON c.oid = field[1]::oid AND c.oid <> r.relid
    )
    SELECT relid, relkind FROM reads WHERE relkind <> 'v'
$$;

-- Whether the log identifies the old rows of a table: they are complete, or have a key by which they can be completed.
CREATE OR REPLACE FUNCTION pgtrickle._has_row_identity(relation oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- The stored value counts at once, even before the applier has reloaded it.
    SELECT c.relreplident = 'f' OR coalesce(
            (SELECT s.value FROM pgtrickle._stored_settings() s WHERE s.name = 'replica_identity'),
            pgtrickle._setting('replica_identity')) = 'keep' AND EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indimmediate
            AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident))
    FROM pg_class c WHERE c.oid = relation
$$;

-- All changes of a source must be in the log: it must be permanent, published, and have complete old rows.
CREATE OR REPLACE FUNCTION pgtrickle._admit_source(source oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rel       record;
    pub       text := pgtrickle._setting('publication');
    left_out  text;
BEGIN
    SELECT c.relkind, c.relpersistence, c.relrowsecurity, n.nspname, c.relname INTO rel
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source;
    IF rel.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is neither a table nor a view of tables', source::regclass
            USING HINT = 'Foreign tables, materialized views and sequences leave no rows in the log.',
                  ERRCODE = 'wrong_object_type';
    ELSIF rel.nspname IN ('pg_catalog', 'information_schema', 'pgtrickle')
        AND source <> 'pgtrickle.pgt_refresh_history'::regclass THEN
        RAISE EXCEPTION 'system table % cannot be captured', source::regclass
            USING HINT = 'Read tables of your own: changes of system tables are not in the log.',
                  ERRCODE = 'wrong_object_type';
    ELSIF rel.relpersistence <> 'p' THEN
        RAISE EXCEPTION 'table % is temporary or unlogged', source::regclass
            USING HINT = 'Only permanent tables are in the log: ALTER TABLE … SET LOGGED.', ERRCODE = 'wrong_object_type';
    ELSIF rel.relrowsecurity THEN
        RAISE EXCEPTION 'table % has row-level security', source::regclass
            USING HINT = 'A stream table is built without the reader''s policies, so such sources are refused.',
                  ERRCODE = 'feature_not_supported';
    ELSIF rel.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = source) THEN
        RAISE EXCEPTION 'table % has inheritance children', source::regclass
            USING HINT = 'Use declarative partitioning, or a view that unites the tables.',
                  ERRCODE = 'feature_not_supported';
    ELSIF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = source AND a.attgenerated = 'v' AND NOT a.attisdropped) THEN
        RAISE EXCEPTION 'table % has virtual generated columns', source::regclass
            USING HINT = 'PostgreSQL refuses UPDATE and DELETE of a published table that has some: make them STORED.',
                  ERRCODE = 'wrong_object_type';
    END IF;
    IF pgtrickle._sources_elsewhere() THEN
        -- This table only defines the columns; the consumer of the other database captures the table of the same name there.
        RETURN;
    END IF;
    -- What is altered here is our own doing.
    PERFORM pgtrickle._mark_own_ddl(true);
    PERFORM pgtrickle._admit_leaves(source);
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = pub) THEN
        EXECUTE format('CREATE PUBLICATION %I', pub);
    END IF;
    IF rel.relkind = 'p' AND EXISTS (SELECT FROM pg_publication p WHERE p.pubname = pub AND p.pubviaroot) THEN
        RAISE EXCEPTION 'publication % publishes partitioned tables via their root', quote_ident(pub)
            USING HINT = format('TRUNCATE, DETACH, ATTACH and DROP of a single partition would be lost: ALTER PUBLICATION %I SET (publish_via_partition_root = false).', pub),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- Since version 18 the server rejects UPDATE and DELETE of a table whose old rows would be incomplete without them.
    IF current_setting('server_version_num')::int >= 180000
       AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = source AND a.attgenerated = 's' AND NOT a.attisdropped)
       -- Readers notice that a publication was altered, so not without need.
       AND EXISTS (SELECT FROM pg_publication p WHERE p.pubname = pub AND to_jsonb(p) ->> 'pubgencols' <> 's') THEN
        EXECUTE format('ALTER PUBLICATION %I SET (publish_generated_columns = stored)', pub);
    END IF;
    IF NOT EXISTS (SELECT FROM pgtrickle._memberships(ARRAY[source]) m WHERE m.publication = pub) THEN
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', pub, source::regclass);
    END IF;
    PERFORM pgtrickle._mark_own_ddl(false);
    SELECT f.problem INTO left_out FROM pgtrickle._publication_facts(ARRAY[source]) f;
    IF left_out IS NOT NULL THEN
        RAISE EXCEPTION 'not all changes of table % would be in the stream: %', source::regclass, left_out
            USING HINT = CASE WHEN left_out LIKE '% streams only %'
                         THEN format('ALTER PUBLICATION %I SET (publish = ''insert, update, delete, truncate'').', pub)
                         WHEN left_out LIKE '% for partition %'
                         THEN format('ALTER PUBLICATION %I DROP TABLE the partition: it is published with %s.', pub, source::regclass)
                         ELSE format('ALTER PUBLICATION %I DROP TABLE %s: it is then added as a whole.', pub, source::regclass) END,
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM pgtrickle._note_source(source);
END $$;

-- Describes what a query reads, after adding each of these tables to the stream where that is possible:
-- [{"relid", "schema", "name", "type"}, …].
CREATE OR REPLACE FUNCTION pgtrickle._admit_relations(relids oid[], refresh_mode text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source  record;
    reads   jsonb := '[]';
BEGIN
    FOR source IN
        SELECT c.oid AS relid, n.nspname, c.relname,
               t.pgt_id IS NOT NULL AS is_stream_table, t.canary_of IS NOT NULL AS is_canary
        FROM unnest(relids) s(relid) JOIN pg_class c ON c.oid = s.relid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pgtrickle.pgt_stream_tables t ON t.pgt_relid = c.oid
    LOOP
        IF source.is_canary THEN
            RAISE EXCEPTION 'stream table % is a canary, which no other stream table can read', source.relid::regclass
                USING HINT = 'It is dropped when it is promoted or cancelled: read the stream table that it belongs to.',
                      ERRCODE = 'wrong_object_type';
        END IF;
        reads := reads || jsonb_build_object('relid', source.relid, 'schema', source.nspname, 'name', source.relname,
            'type', CASE WHEN source.is_stream_table THEN 'STREAM_TABLE'
                         WHEN pgtrickle._captures(source.relid, refresh_mode) THEN 'TABLE' ELSE 'UNCAPTURED' END);
    END LOOP;
    RETURN reads;
END $$;

-- The same for what a view reads.
CREATE OR REPLACE FUNCTION pgtrickle._admit_sources(view_oid oid, refresh_mode text) RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._admit_relations(ARRAY(SELECT s.relid FROM pgtrickle._sources_of(view_oid) s), refresh_mode)
$$;

CREATE OR REPLACE FUNCTION pgtrickle._set_dependencies(stream_table bigint, reads jsonb) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = stream_table;
    INSERT INTO pgtrickle.pgt_dependencies (pgt_id, source_relid, source_schema, source_name, source_type)
    SELECT stream_table, (r ->> 'relid')::oid, r ->> 'schema', r ->> 'name', r ->> 'type'
    FROM jsonb_array_elements(reads) r;
$$;

-- User-defined functions, also those of aggregates among them, each with a digest of its definition: so the applier notices
-- when one is replaced. Empty for functions of PostgreSQL itself.
CREATE OR REPLACE FUNCTION pgtrickle._function_digests(called oid[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((
        SELECT format('/* functions: %s */', string_agg(format('%s=%s', p.oid, md5(concat_ws(' ',
            p.prosrc, p.prosqlbody::text, p.provolatile, p.proisstrict, p.prolang,
            (SELECT concat_ws(' ', a.aggtransfn::oid, a.aggfinalfn::oid, a.aggfinalextra, a.aggtranstype, a.agginitval)
             FROM pg_aggregate a WHERE a.aggfnoid = p.oid)))), ' ' ORDER BY p.oid))
        FROM (SELECT c.oid FROM unnest(called) c(oid)
              UNION SELECT a.aggtransfn FROM unnest(called) c(oid) JOIN pg_aggregate a ON a.aggfnoid = c.oid
              UNION SELECT a.aggfinalfn FROM unnest(called) c(oid) JOIN pg_aggregate a ON a.aggfnoid = c.oid) f
        JOIN pg_proc p ON p.oid = f.oid
        WHERE p.oid >= 16384 HAVING count(*) > 0), '')
$$;

-- A stored query with the digests of its functions as they are now. One that was dropped keeps its digest, and is missed.
CREATE OR REPLACE FUNCTION pgtrickle._renew_digests(query text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN named.oids IS NULL
                     OR EXISTS (SELECT FROM unnest(named.oids) o WHERE NOT EXISTS (SELECT FROM pg_proc p WHERE p.oid = o))
                THEN query
                ELSE pgtrickle._function_digests(named.oids) || regexp_replace(query, '^/\* functions: [^*]*\*/', '') END
    FROM (SELECT array_agg(m[1]::oid) AS oids
          FROM regexp_matches(substring(query FROM '^/\* functions: ([^*]*)\*/'), '([0-9]+)=', 'g') m) named
$$;

-- A view's query with all names qualified, and all constants as sessions of the applier print and read them: these are
-- the settings of shared_schema/session_pins.py.
CREATE OR REPLACE FUNCTION pgtrickle._canonical(view_oid oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres'
SET timezone = 'UTC' SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C'
SET standard_conforming_strings = on SET transform_null_equals = off AS $$
    SELECT pgtrickle._function_digests(ARRAY(
        SELECT d.refobjid FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_proc'::regclass
        WHERE r.ev_class = view_oid)) || pg_get_viewdef(view_oid)
$$;

-- Creates a temporary view of the caller's query. PostgreSQL itself checks it: a cursor accepts only one statement, and
-- opening it requires the right to read everything that the query names. The query is not executed.
CREATE OR REPLACE FUNCTION pgtrickle._analyse(query text, caller_path text) RETURNS oid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    view_name  text := 'pgt_analysed_' || replace(gen_random_uuid()::text, '-', '');
    statement  text := format('CREATE TEMPORARY VIEW %I AS %s', view_name, query);
    probe      refcursor;
BEGIN
    IF query IS NULL THEN
        RAISE EXCEPTION 'a stream table needs a query'
            USING HINT = 'Give a SELECT as text.', ERRCODE = 'null_value_not_allowed';
    END IF;
    -- Until the search path is set back, only names of the query may be looked up.
    PERFORM set_config('search_path', caller_path, true);
    BEGIN
        OPEN probe FOR EXECUTE query;
    EXCEPTION WHEN invalid_cursor_definition THEN
        RAISE EXCEPTION 'the query is not one SELECT' USING HINT = 'Write one SELECT without more statements.',
            ERRCODE = 'syntax_error';
    END;
    CLOSE probe;
    EXECUTE statement;
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    RETURN format('pg_temp.%I', view_name)::regclass::oid;
END $$;

-- Whether a source is captured from now on. In FULL mode PostgreSQL reads the sources that cannot be captured.
CREATE OR REPLACE FUNCTION pgtrickle._captures(source oid, refresh_mode text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF upper(refresh_mode) = 'FULL' AND source = 'pgtrickle.pgt_refresh_history'::regclass THEN
        -- Only self-monitoring captures it.
        RAISE wrong_object_type;
    END IF;
    PERFORM pgtrickle._admit_source(source);
    RETURN true;
EXCEPTION WHEN wrong_object_type THEN
    IF upper(refresh_mode) <> 'FULL' THEN
        RAISE;
    END IF;
    RAISE NOTICE '% leaves no rows in the log: the stream table is recomputed on its schedule, whether or not it changed',
        source::regclass;
    RETURN false;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._create_stream_table(
    name text, query text, schedule text, refresh_mode text, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target     record;
    view_oid   oid;
    new_id     bigint;
    reads      jsonb;
BEGIN
    SELECT * INTO target FROM pgtrickle._resolve_name(name, caller_path);
    PERFORM pgtrickle._check_schedule(schedule);
    PERFORM pgtrickle._check_refresh_mode(refresh_mode);
    PERFORM pgtrickle._lock_definitions();
    view_oid := pgtrickle._analyse(query, caller_path);
    -- A query that is large in form is refused now, if it is to be; the others when they are planned, after the commit.
    IF upper(refresh_mode) NOT IN ('AUTO', 'FULL')
       AND (SELECT octet_length(r.ev_action::text) FROM pg_rewrite r WHERE r.ev_class = view_oid) > 100000 THEN
        PERFORM pgtrickle._refuse_unsupported(view_oid, query, upper(refresh_mode), 'allow');
    END IF;
    EXECUTE format('CREATE TABLE %I.%I AS TABLE %s WITH NO DATA',
                   target.schema_name, target.table_name, view_oid::regclass);
    INSERT INTO pgtrickle.pgt_stream_tables
        (pgt_relid, pgt_schema, pgt_name, original_query, defining_query, search_path, schedule, refresh_mode, status)
    VALUES (format('%I.%I', target.schema_name, target.table_name)::regclass, target.schema_name, target.table_name,
            query, pgtrickle._canonical(view_oid), caller_path, _create_stream_table.schedule,
            upper(_create_stream_table.refresh_mode), 'INITIALIZING')
    RETURNING pgt_id INTO new_id;
    PERFORM pgtrickle._guard(format('%I.%I', target.schema_name, target.table_name)::regclass);
    reads := pgtrickle._admit_sources(view_oid, refresh_mode);
    PERFORM pgtrickle._refuse_own_tables(target.schema_name, reads);
    PERFORM pgtrickle._set_dependencies(new_id, reads);
    EXECUTE format('DROP VIEW %s', view_oid::regclass);
    -- In the log directly after the change of the publication: the consumer captures the tables, the applier reads the
    -- catalog again.
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'capture ' || new_id);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.create_stream_table(
    name text, query text, schedule text DEFAULT '1s', refresh_mode text DEFAULT 'AUTO',
    append_only boolean DEFAULT NULL, full_policy text DEFAULT NULL, auto_threshold double precision DEFAULT NULL,
    auto_evolve boolean DEFAULT NULL, sla interval DEFAULT NULL,
    fuse text DEFAULT NULL, fuse_ceiling double precision DEFAULT NULL, fuse_sensitivity double precision DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._create_stream_table(name, query, schedule, refresh_mode, search_path);
    PERFORM pgtrickle._set_options(name, append_only, full_policy, auto_threshold, auto_evolve, search_path);
    PERFORM pgtrickle._set_sla(name, sla, NULL, search_path);
    PERFORM pgtrickle._set_fuse(name, fuse, fuse_ceiling, fuse_sensitivity, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.create_stream_table IS
    'Create a table that is kept equal to a query. Filled after commit; see pgtrickle.wait_for().';

-- The stream tables that read this one, directly (first) or through others.
CREATE OR REPLACE FUNCTION pgtrickle._readers_of(relation oid) RETURNS TABLE (pgt_id bigint, pgt_relid oid, depth integer)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE readers(pgt_id, pgt_relid, depth) AS (
        SELECT s.pgt_id, s.pgt_relid, 1
        FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
        WHERE d.source_relid = relation
        UNION
        SELECT s.pgt_id, s.pgt_relid, r.depth + 1
        FROM readers r JOIN pgtrickle.pgt_dependencies d ON d.source_relid = r.pgt_relid
        JOIN pgtrickle.pgt_stream_tables s ON s.pgt_id = d.pgt_id
    )
    SELECT r.pgt_id, r.pgt_relid, max(r.depth) FROM readers r GROUP BY 1, 2 ORDER BY 3, 1
$$;

-- The base tables of a stream table, also those that it reads through other stream tables.
CREATE OR REPLACE FUNCTION pgtrickle._base_sources(stream_table bigint)
RETURNS TABLE (source_relid oid, source_schema text, source_name text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE reads AS (
        SELECT d.* FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = stream_table
        UNION
        SELECT d.* FROM reads r JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = r.source_relid
        JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = s.pgt_id
    )
    SELECT DISTINCT r.source_relid, r.source_schema, r.source_name FROM reads r WHERE r.source_type = 'TABLE'
$$;

CREATE OR REPLACE FUNCTION pgtrickle._drop_one(stream_table bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
BEGIN
    -- Together with a replacement that is still being built, and its canary.
    PERFORM pgtrickle._drop_one(s.pgt_id) FROM pgtrickle.pgt_stream_tables s
    WHERE s.replaces = stream_table OR s.canary_of = stream_table;
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table;
    -- The table first, then its row, as the applier locks them when it writes.
    IF EXISTS (SELECT FROM pg_class WHERE oid = st.pgt_relid) THEN
        EXECUTE format('DROP TABLE IF EXISTS %s', st.pgt_relid::regclass);
    END IF;
    PERFORM pgtrickle._drop_publication(stream_table);
    -- One that was begun meanwhile goes too.
    PERFORM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table FOR UPDATE;
    PERFORM pgtrickle._drop_one(s.pgt_id) FROM pgtrickle.pgt_stream_tables s WHERE s.canary_of = stream_table;
    DELETE FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'drop ' || stream_table);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._drop_stream_table(name text, cascaded boolean, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st       pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
    readers  text;
BEGIN
    SELECT string_agg(r.pgt_relid::regclass::text, ', ' ORDER BY r.depth) INTO readers
    FROM pgtrickle._readers_of(st.pgt_relid) r;
    IF readers IS NOT NULL AND NOT cascaded THEN
        RAISE EXCEPTION 'cannot drop stream table % because others read it', name
            USING DETAIL = format('It is read by %s.', readers),
                  HINT = format('SELECT pgtrickle.drop_stream_table(%L, cascade => true) drops them too.', name),
                  ERRCODE = 'dependent_objects_still_exist';
    END IF;
    PERFORM pgtrickle._drop_one(r.pgt_id) FROM (
        SELECT * FROM pgtrickle._readers_of(st.pgt_relid) ORDER BY depth DESC) r;
    PERFORM pgtrickle._drop_one(st.pgt_id);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.drop_stream_table(
    name text, cascade boolean DEFAULT false,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._drop_stream_table(name, cascade, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.drop_stream_table IS
    'Drop a stream table, with cascade also those that read it. Its sources stay published.';
