-- Columns that are added to the sources of a query written with * are added to its stream table, in place and last.

-- The columns of a view that a table lacks: [{"name", "type", "typmod", "collation"}, …]; NULL unless the view has all columns
-- of the table, of the same types, and some more. With `in_order` the further ones must be the last.
CREATE OR REPLACE FUNCTION pgtrickle._added_columns(view_oid oid, relation oid, in_order boolean) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN pgtrickle._columns(relation) <@ pgtrickle._columns(view_oid)
                     AND (NOT in_order OR pgtrickle._columns(relation)
                          = (pgtrickle._columns(view_oid))[1:cardinality(pgtrickle._columns(relation))])
                THEN jsonb_agg(jsonb_build_object(
                         'name', a.attname, 'type', a.atttypid::regtype, 'typmod', a.atttypmod,
                         'collation', CASE WHEN a.attcollation <> t.typcollation THEN a.attcollation::regcollation END)
                     ORDER BY a.attnum) END
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = view_oid AND a.attnum > 0 AND NOT EXISTS (
        SELECT FROM pg_attribute o WHERE o.attrelid = relation AND o.attname = a.attname AND NOT o.attisdropped)
$$;

-- Such columns, each after `before`, as SQL. They come from a row of the catalog: nothing of it is SQL until it is quoted, or
-- printed by PostgreSQL as the type or collation that it names.
CREATE OR REPLACE FUNCTION pgtrickle._column_clauses(added jsonb, before text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format('%s %I %s%s', before, c.name, format_type(c.type::regtype, c.typmod),
                             ' COLLATE ' || c."collation"::regcollation), ', ' ORDER BY e.number)
    FROM jsonb_array_elements(added) WITH ORDINALITY AS e (item, number),
         jsonb_to_record(e.item) AS c (name text, type text, typmod integer, "collation" text)
$$;

-- Whether a stream table follows added columns.
CREATE OR REPLACE FUNCTION pgtrickle._evolves(st pgtrickle.pgt_stream_tables) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(st.auto_evolve, pgtrickle._setting('auto_evolve')::boolean, false)
        AND st.replaces IS NULL AND st.status IN ('INITIALIZING', 'ACTIVE') AND st.full_policy = 'allow'
        AND strpos(st.original_query, '*') > 0
        -- What such a word means is decided when the query is written; reading it again would decide anew.
        AND st.original_query !~* '''\s*(now|today|tomorrow|yesterday)\s*'''
        AND NOT EXISTS (SELECT FROM pgtrickle.pgt_alterations a WHERE a.pgt_id = st.pgt_id)
        -- PostgreSQL compares with rows that are committed, and so with columns that are.
        AND NOT EXISTS (SELECT FROM pgtrickle.pgt_plans p WHERE p.pgt_id = st.pgt_id
                        AND p.plan -> 'in_full' -> 0 ->> 'code' = 'run_by_postgres')
$$;

-- Reads the original query of a stream table once more, with the rights of its owner. When it returns further columns of the same
-- sources, a pending alteration adds them; returns what was seen, or NULL.
CREATE OR REPLACE FUNCTION pgtrickle._evolve_one(st pgtrickle.pgt_stream_tables) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    owner        oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid);
    view_oid     oid;
    added        jsonb;
    in_order     boolean;
    columns      text;
    sources      oid[];
    reads        jsonb;
    query        text;
    wrapped      text;
    seen         text;
BEGIN
    BEGIN
        view_oid := pgtrickle._analyse_as(owner, st.original_query, st.search_path);
        added := pgtrickle._added_columns(view_oid, st.pgt_relid, false);
        in_order := pgtrickle._added_columns(view_oid, st.pgt_relid, true) IS NOT NULL;
        sources := ARRAY(SELECT s.relid FROM pgtrickle._sources_of(view_oid) s ORDER BY 1);
        -- The table's columns in their order, then the further ones.
        SELECT string_agg(format('evolved.%I', a.attname), ', ' ORDER BY o.attnum NULLS LAST, a.attnum) INTO columns
        FROM pg_attribute a LEFT JOIN pg_attribute o ON o.attrelid = st.pgt_relid AND o.attname = a.attname
                                                     AND NOT o.attisdropped
        WHERE a.attrelid = view_oid AND a.attnum > 0;
        query := pgtrickle._canonical(view_oid);
        RAISE EXCEPTION USING ERRCODE = 'PGT00';
    EXCEPTION WHEN SQLSTATE 'PGT00' THEN
        NULL;
    END;
    IF added IS NULL OR query IS NULL OR sources
            <> ARRAY(SELECT d.source_relid FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = st.pgt_id ORDER BY 1) THEN
        RETURN NULL;
    END IF;
    IF NOT in_order THEN
        BEGIN
            view_oid := pgtrickle._analyse_as(owner, format('SELECT %s FROM (%s) AS evolved', columns, rtrim(regexp_replace(
                query, '^/\* functions: [^*]*\*/', ''), E' \n;')), 'pg_catalog');
            wrapped := pgtrickle._canonical(view_oid);
            RAISE EXCEPTION USING ERRCODE = 'PGT00';
        EXCEPTION WHEN SQLSTATE 'PGT00' THEN
            NULL;
        END;
        query := wrapped;
    END IF;
    reads := pgtrickle._admit_relations(sources, st.refresh_mode);
    seen := pgtrickle._column_clauses(added, 'added column');
    INSERT INTO pgtrickle.pgt_alterations
        (pgt_id, original_query, defining_query, search_path, dependencies, reason, detail, initiated_by, added_columns)
    VALUES (st.pgt_id, st.original_query, query, st.search_path, reads, 'AUTO_SCHEMA_EVOLUTION', seen, 'SCHEDULER', added);
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'capture ' || st.pgt_id);
    RETURN seen;
END $$;

-- Lets those of these stream tables evolve that should and can; the others keep their columns, as a view does. Why one cannot is
-- in health_check(), or a warning for who switches it on.
CREATE OR REPLACE FUNCTION pgtrickle._evolve(ids bigint[], by_hand boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st     pgtrickle.pgt_stream_tables;
    begun  bigint := 0;
BEGIN
    IF NOT by_hand THEN
        DELETE FROM pgtrickle.pgt_kept_columns k WHERE k.pgt_id = ANY (ids);
    END IF;
    FOR st IN SELECT s.* FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = ANY (ids) AND pgtrickle._evolves(s)
              ORDER BY s.pgt_id LOOP
        BEGIN
            begun := begun + (pgtrickle._evolve_one(st) IS NOT NULL)::int;
        EXCEPTION WHEN OTHERS THEN
            -- Two sides of a UNION with other columns, a column list that the owner may not read, a name that is there twice.
            IF by_hand THEN
                RAISE WARNING 'stream table % keeps its columns: %', st.pgt_relid::regclass, SQLERRM;
            ELSE
                RAISE LOG 'stream table % keeps its columns: %', st.pgt_relid::regclass, SQLERRM;
                -- Nothing, if it was just dropped.
                INSERT INTO pgtrickle.pgt_kept_columns (pgt_id, reason)
                SELECT s.pgt_id, SQLERRM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = st.pgt_id FOR KEY SHARE;
            END IF;
        END;
    END LOOP;
    RETURN begun;
END $$;
