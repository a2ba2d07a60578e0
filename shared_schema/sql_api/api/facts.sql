-- The facts of the catalog that stream tables rest on. shared_schema/dependency_facts.py reads them.

-- The publications of the stream that contain these tables, each with what it leaves out. One row per membership.
CREATE OR REPLACE FUNCTION pgtrickle._memberships(relations oid[])
RETURNS TABLE (relid oid, publication text, entry text, publishes text, row_filter boolean, column_list boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names  text[] := ARRAY(SELECT btrim(n) FROM unnest(string_to_array(pgtrickle._setting('publications'), ',')) n);
BEGIN
    RETURN QUERY
    WITH streamed AS (
        SELECT p.oid, p.pubname::text AS name, p.puballtables,
               concat_ws(', ', CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
                         CASE WHEN p.pubdelete THEN 'delete' END, CASE WHEN p.pubtruncate THEN 'truncate' END) AS actions
        FROM pg_publication p WHERE p.pubname = ANY (names)
    ), published AS (
        SELECT u.oid AS relid, u.oid AS listed FROM unnest(relations) AS u (oid)
        UNION
        SELECT c.oid, a.relid::oid FROM pg_class c, pg_partition_ancestors(c.oid) a
        WHERE c.oid = ANY (relations) AND c.relispartition
    )
    -- Row filters and column lists exist since version 15.
    SELECT l.relid, s.name, r.oid::text, s.actions, to_jsonb(r) ->> 'prqual' IS NOT NULL,
           to_jsonb(r) ->> 'prattrs' IS NOT NULL
    FROM published l JOIN pg_publication_rel r ON r.prrelid = l.listed JOIN streamed s ON s.oid = r.prpubid
    UNION ALL
    SELECT u.oid, s.name, 'all' || s.oid, s.actions, false, false FROM streamed s, unnest(relations) AS u (oid)
    WHERE s.puballtables;
    IF current_setting('server_version_num')::int >= 150000 THEN
        RETURN QUERY EXECUTE $q$
            SELECT c.oid, p.pubname::text, 'schema' || n.oid,
                   concat_ws(', ', CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
                             CASE WHEN p.pubdelete THEN 'delete' END, CASE WHEN p.pubtruncate THEN 'truncate' END),
                   false, false
            FROM pg_publication_namespace n JOIN pg_publication p ON p.oid = n.pnpubid
            JOIN pg_class c ON c.relnamespace = n.pnnspid
            WHERE p.pubname = ANY ($1) AND c.oid = ANY ($2) $q$ USING names, relations;
    END IF;
END $$;

-- Per partitioned table, what the publications leave out of single leaf partitions. A leaf has its own row filter and column
-- list where leaves are published by themselves, whatever its root has.
CREATE OR REPLACE FUNCTION pgtrickle._leaf_problems(relations oid[]) RETURNS TABLE (relid oid, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tree(root, relid) AS (
        SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY (relations) AND c.relkind = 'p'
      UNION
        SELECT t.root, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
    ), restricted AS MATERIALIZED (
        SELECT t.root, t.relid, p.pubname::text AS publication,
               CASE WHEN to_jsonb(r) ->> 'prqual' IS NOT NULL THEN 'row filter' ELSE 'column list' END AS has
        FROM tree t JOIN pg_publication_rel r ON r.prrelid = t.relid AND t.relid <> t.root
        JOIN pg_publication p ON p.oid = r.prpubid
        WHERE to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL
    ), memberships AS MATERIALIZED (
        SELECT m.relid, m.publication
        FROM pgtrickle._memberships(ARRAY(SELECT DISTINCT r.root FROM restricted r)) m
    )
    SELECT r.root, min(format('publication %s has a %s for partition %s', r.publication, r.has, r.relid::regclass))
    FROM restricted r
    WHERE r.publication IN (SELECT btrim(n) FROM unnest(string_to_array(pgtrickle._setting('publications'), ',')) n)
      -- Another publication may have all of it.
      AND NOT EXISTS (SELECT FROM memberships m WHERE m.relid = r.root AND NOT EXISTS (
                          SELECT FROM restricted o WHERE o.relid = r.relid AND o.publication = m.publication))
    GROUP BY r.root
$$;

-- Per table its memberships, and why the publications do not stream every change of it; NULL where they do.
CREATE OR REPLACE FUNCTION pgtrickle._publication_facts(relations oid[])
RETURNS TABLE (relid oid, memberships jsonb, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT u.oid, coalesce(jsonb_agg(m.entry ORDER BY m.entry) FILTER (WHERE m.entry IS NOT NULL), '[]'),
        CASE
            WHEN count(m.entry) = 0 THEN format('it is not in publication %s', (SELECT pgtrickle._setting('publications')))
            WHEN bool_or(p.pubviaroot AND c.relkind = 'p')
                THEN format('publication %s publishes it via the root',
                            min(m.publication) FILTER (WHERE p.pubviaroot))
            WHEN bool_and(m.row_filter) THEN format('publication %s has a row filter for it', min(m.publication))
            WHEN bool_and(m.column_list) THEN format('publication %s has a column list for it', min(m.publication))
            WHEN NOT string_to_array(string_agg(m.publishes, ', '), ', ') @> '{insert,update,delete,truncate}'
                THEN format('publication %s streams only %s', min(m.publication),
                            coalesce(nullif(min(m.publishes), ''), 'nothing'))
            ELSE min(l.problem) END
    FROM unnest(relations) AS u (oid)
    LEFT JOIN pg_class c ON c.oid = u.oid
    LEFT JOIN pgtrickle._memberships(relations) m ON m.relid = u.oid
    LEFT JOIN pg_publication p ON p.pubname = m.publication
    LEFT JOIN pgtrickle._leaf_problems(relations) l ON l.relid = u.oid
    GROUP BY u.oid
$$;

-- These types and all that they are made of: bases of domains, elements of arrays, columns of composite types and subtypes of
-- ranges, at any depth. Only types of users; PostgreSQL's own never contain one of them.
CREATE OR REPLACE FUNCTION pgtrickle._type_parts(types oid[]) RETURNS SETOF oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE parts(type) AS (
        SELECT u.oid FROM unnest(types) AS u (oid) WHERE u.oid >= 16384
      UNION
        SELECT x.oid FROM parts p JOIN pg_type t ON t.oid = p.type CROSS JOIN LATERAL (
            SELECT t.typbasetype UNION ALL SELECT t.typelem
            UNION ALL SELECT a.atttypid FROM pg_attribute a
                      WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.typtype = 'r' AND r.rngtypid = t.oid
            UNION ALL SELECT r.rngtypid FROM pg_range r WHERE t.typtype = 'm' AND r.rngmultitypid = t.oid) AS x (oid)
        WHERE x.oid >= 16384
    )
    SELECT p.type FROM parts p
$$;

-- The facts of relations: tables, views and stream tables. A relation that does not exist has no row.
CREATE OR REPLACE FUNCTION pgtrickle._relation_facts(relations oid[]) RETURNS TABLE (relid oid, fact jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH captured AS MATERIALIZED (
        SELECT f.* FROM pgtrickle._publication_facts(ARRAY(
            SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependencies d
            WHERE d.source_relid = ANY (relations) AND d.source_type = 'TABLE'
              AND (SELECT NOT pgtrickle._sources_elsewhere()))) f
    )
    SELECT c.oid, jsonb_build_object(
        'schema', n.nspname, 'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence,
        'row_security', c.relrowsecurity, 'is_partition', c.relispartition,
        'has_children', c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
        'replica_identity', c.relreplident, 'storage', c.relfilenode::int8,
        -- ALTER TABLE that writes all rows makes another one; VACUUM FULL, CLUSTER and TRUNCATE keep it.
        'toast', c.reltoastrelid::int8,
        'rule', (SELECT md5(string_agg(w.ev_action::text, '' ORDER BY w.rulename)) FROM pg_rewrite w
                 WHERE w.ev_class = c.oid AND c.relkind = 'v'),
        'options', coalesce(array_to_string(c.reloptions, ','), ''),
        'keys', (SELECT string_agg(format('%s %s', k.contype, k.conkey), ',' ORDER BY k.oid) FROM pg_constraint k
                 WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u')),
        'leaves', CASE WHEN c.relkind = 'p' THEN coalesce((
            -- Not pg_partition_tree(): it waits for whoever has locked a partition.
            WITH RECURSIVE tree(relid, joined) AS (
                SELECT h.inhrelid, h.xmin::text FROM pg_inherits h WHERE h.inhparent = c.oid AND NOT h.inhdetachpending
                UNION
                SELECT h.inhrelid, h.xmin::text FROM tree t JOIN pg_inherits h ON h.inhparent = t.relid AND NOT h.inhdetachpending
            )
            SELECT jsonb_object_agg(l.oid::text, jsonb_build_array(
                l.relfilenode::int8, l.relreplident, l.relkind, l.relpersistence,
                md5(concat(l.relpartbound::text, t.joined)),
                -- When its own expressions of generated columns were written: they may differ from those of the root.
                coalesce((SELECT string_agg(format('%s %s %s', f.adnum, f.oid, f.xmin), ',' ORDER BY f.adnum)
                          FROM pg_attrdef f JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
                          WHERE f.adrelid = l.oid AND a.attgenerated <> ''), ''), l.reltoastrelid::int8))
            FROM tree t JOIN pg_class l ON l.oid = t.relid), '{}') END,
        'publication_problem', m.problem, 'memberships', m.memberships,
        'enums', CASE WHEN u.types <> '{}' THEN coalesce((
            SELECT jsonb_object_agg(x.oid::text, x.enumlabel)
            FROM pgtrickle._type_parts(u.types) p JOIN pg_enum x ON x.enumtypid = p), '{}') ELSE '{}' END,
        'composites', CASE WHEN u.types <> '{}' THEN coalesce((
            SELECT jsonb_object_agg(t.oid::text, (
                SELECT jsonb_agg(jsonb_build_array(a.attnum, a.atttypid::int8, a.atttypmod) ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped))
            FROM pgtrickle._type_parts(u.types) p JOIN pg_type t ON t.oid = p AND t.typtype = 'c'), '{}') ELSE '{}' END,
        'columns', coalesce((
            SELECT jsonb_agg(jsonb_build_array(
                a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attcollation::int8,
                -- Version 18 has NOT NULL constraints that old rows need not meet.
                a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'n'
                                             AND NOT k.convalidated AND a.attnum = ANY (k.conkey)),
                CASE WHEN a.attgenerated <> '' THEN (
                    SELECT md5(f.adbin::text) FROM pg_attrdef f WHERE f.adrelid = c.oid AND f.adnum = a.attnum) END,
                -- When the catalog's row of the column was written. VACUUM FULL and CLUSTER leave it alone, unless the
                -- column was added with a default that old rows do not hold yet; then its default is left alone.
                a.xmin::text,
                (SELECT format('%s %s', f.oid, f.xmin) FROM pg_attrdef f WHERE f.adrelid = c.oid AND f.adnum = a.attnum),
                a.atthasmissing)
                ORDER BY a.attnum)
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '[]'))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN captured m ON m.relid = c.oid
    CROSS JOIN LATERAL (
        SELECT ARRAY(SELECT DISTINCT a.atttypid FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                     AND NOT a.attisdropped AND a.atttypid >= 16384)) AS u (types)
    WHERE c.oid = ANY (relations)
$$;

-- The facts of types and of all that they are made of: labels of enums, base of domains, columns of composite types.
CREATE OR REPLACE FUNCTION pgtrickle._type_facts(types oid[]) RETURNS TABLE (type oid, fact jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.oid, jsonb_build_object(
        'schema', n.nspname, 'name', t.typname, 'kind', t.typtype, 'base', t.typbasetype::int8, 'typmod', t.typtypmod,
        'labels', (SELECT jsonb_agg(jsonb_build_array(e.oid::int8, e.enumlabel) ORDER BY e.enumsortorder)
                   FROM pg_enum e WHERE e.enumtypid = t.oid),
        'columns', (SELECT jsonb_agg(jsonb_build_array(a.attname, a.atttypid::int8, a.atttypmod) ORDER BY a.attnum)
                    FROM pg_attribute a WHERE a.attrelid = t.typrelid AND t.typtype = 'c' AND a.attnum > 0
                    AND NOT a.attisdropped),
        'relation', t.typrelid::int8,
        'parts', (SELECT jsonb_agg(p::int8 ORDER BY p) FROM pgtrickle._type_parts(ARRAY[t.oid]) p))
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE types <> '{}' AND t.oid IN (SELECT pgtrickle._type_parts(types))
$$;

-- The facts of functions: a digest of what each does, as in pgtrickle._canonical().
CREATE OR REPLACE FUNCTION pgtrickle._function_facts(functions oid[]) RETURNS TABLE (function oid, fact jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.oid, jsonb_build_object(
        'schema', n.nspname, 'name', p.proname,
        'digest', md5(concat_ws(' ', p.prosrc, p.prosqlbody::text, p.provolatile, p.proisstrict, p.prolang, p.prosecdef,
            p.proconfig, p.probin,
            (SELECT concat_ws(' ', a.aggtransfn::oid, a.aggfinalfn::oid, a.aggfinalextra, a.aggtranstype, a.agginitval)
             FROM pg_aggregate a WHERE a.aggfnoid = p.oid))))
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = ANY (functions)
$$;

-- Notes what a table is like before its first copy, so that a change between both is seen.
CREATE OR REPLACE FUNCTION pgtrickle._note_source(source oid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgtrickle.pgt_source_facts (source_relid, fact)
    SELECT f.relid, f.fact FROM pgtrickle._relation_facts(ARRAY[source]) f ON CONFLICT (source_relid) DO NOTHING
$$;

-- Requests a copy of a table, and lets its readers wait for it.
CREATE OR REPLACE FUNCTION pgtrickle._await_recapture(source oid) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM pgtrickle._request_recapture(source);
    SELECT r.epoch INTO number FROM pgtrickle.pgt_recaptures r WHERE r.source_relid = source;
    UPDATE pgtrickle.pgt_source_facts f SET awaits = number, problem = NULL WHERE f.source_relid = source;
    RETURN number;
END $$;

-- Stores the facts that a plan was made with, and the objects in them; nothing if the stream table was just dropped.
CREATE OR REPLACE FUNCTION pgtrickle._store_facts(stream_table bigint, facts jsonb, objects oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO pgtrickle.pgt_dependency_facts AS f (pgt_id, facts, stored_in)
    VALUES (stream_table, _store_facts.facts, pg_current_snapshot())
    ON CONFLICT (pgt_id) DO UPDATE SET facts = excluded.facts, written_at = now(), stored_in = excluded.stored_in;
    DELETE FROM pgtrickle.pgt_dependency_objects o WHERE o.pgt_id = stream_table AND o.object_id <> ALL (objects);
    INSERT INTO pgtrickle.pgt_dependency_objects (object_id, pgt_id) SELECT unnest(objects), stream_table
    ON CONFLICT DO NOTHING;
END $$;
