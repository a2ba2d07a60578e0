-- Partitioned sources: their leaf partitions, as the stream has them, and what later leaves need.

-- The leaf partitions, without one that is being detached: its rows are not part of the table any more. By their oids, each
-- with the transactions that attached it and what is above it: they differ after it was detached and attached again.
CREATE OR REPLACE FUNCTION pgtrickle._partition_tree(root oid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tree(relid, joined) AS (
        SELECT root, ''
      UNION
        SELECT i.inhrelid, concat(t.joined, '.', i.xmin)
        FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
    )
    SELECT coalesce(jsonb_object_agg(t.relid::text, t.joined), '{}')
    FROM tree t JOIN pg_class c ON c.oid = t.relid WHERE c.relkind <> 'p'
$$;

-- The partition trees of the sources among these relations, and of those above them.
CREATE OR REPLACE FUNCTION pgtrickle._trees_above(relations oid[]) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Not pg_partition_tree(): it waits for whoever has locked a partition.
    SELECT coalesce(jsonb_object_agg(s.source_relid::text, pgtrickle._partition_tree(s.source_relid)), '{}')
    FROM (SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependencies d JOIN pg_class c ON c.oid = d.source_relid
          WHERE d.source_type = 'TABLE' AND c.relkind = 'p'
            AND d.source_relid IN (SELECT u.oid FROM unnest(relations) AS u (oid)
                                   UNION ALL
                                   SELECT a.relid FROM unnest(relations) AS u (oid), pg_partition_ancestors(u.oid) a)) s
$$;

-- The leaf partitions of sources that this transaction attached or created, as far as these relations or what is directly
-- below them joined: by source, as in pgtrickle._partition_tree(). Rows that this transaction wrote, and sees, are those with
-- its id or a somewhat later one: age() counts from its id, its subtransactions have later ones, and ids that seem much later
-- are from before ids began again.
CREATE OR REPLACE FUNCTION pgtrickle._joined_leaves(relations oid[]) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE above AS MATERIALIZED (
        SELECT i.inhrelid AS child, a.relid::oid AS relid, a.step, h.xmin AS joined
        FROM pg_inherits i, pg_partition_ancestors(i.inhrelid) WITH ORDINALITY AS a (relid, step)
        LEFT JOIN pg_inherits h ON h.inhrelid = a.relid
        WHERE (i.inhrelid = ANY (relations) OR i.inhparent = ANY (relations)) AND age(i.xmin) BETWEEN -(1 << 24) AND 0
          AND NOT i.inhdetachpending
    ), tree(root, relid, joined) AS (
        SELECT r.relid, r.child, (SELECT string_agg('.' || s.joined::text, '' ORDER BY s.step DESC) FROM above s
                                  WHERE s.child = r.child AND s.step < r.step)
        FROM above r WHERE r.step > 1 AND EXISTS (
            SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = r.relid AND d.source_type = 'TABLE')
      UNION
        SELECT t.root, i.inhrelid, concat(t.joined, '.', i.xmin)
        FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
    )
    SELECT coalesce(jsonb_object_agg(f.root::text, f.leaves), '{}') FROM (
        SELECT t.root, jsonb_object_agg(t.relid::text, t.joined) AS leaves
        FROM tree t JOIN pg_class c ON c.oid = t.relid AND c.relkind <> 'p' GROUP BY t.root) f
$$;

-- The publications that publish a table: itself, a partitioned table above it, or its leaf partitions.
CREATE OR REPLACE FUNCTION pgtrickle._publications_of(source oid) RETURNS SETOF name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.pubname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
    WHERE r.prrelid = source OR r.prrelid IN (SELECT a.relid FROM pg_partition_ancestors(source) a)
  UNION
    SELECT p.pubname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
    WHERE c.oid = source OR c.oid IN (SELECT t.relid FROM pg_partition_tree(source) t)
$$;

-- Gives leaf partitions what the stream needs of them: old rows must be complete in the log.
CREATE OR REPLACE FUNCTION pgtrickle._admit_leaves(source oid) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaf     record;
    altered  integer := 0;
BEGIN
    FOR leaf IN SELECT l::oid AS oid FROM jsonb_object_keys(pgtrickle._partition_tree(source)) l LOOP
        CONTINUE WHEN pgtrickle._has_row_identity(leaf.oid);
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', leaf.oid::regclass);
        RAISE NOTICE 'table % now has REPLICA IDENTITY FULL, so that deleted rows are complete in the log',
            leaf.oid::regclass;
        altered := altered + 1;
    END LOOP;
    RETURN altered;
END $$;

-- The leaf partitions of sources whose old rows are not complete in the log.
CREATE OR REPLACE FUNCTION pgtrickle._incomplete_leaves() RETURNS TABLE (root oid, leaf oid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.source_relid, l::oid
    FROM (SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependencies d JOIN pg_class c ON c.oid = d.source_relid
          WHERE d.source_type = 'TABLE' AND c.relkind = 'p' AND NOT pgtrickle._sources_elsewhere()) s,
         jsonb_object_keys(pgtrickle._partition_tree(s.source_relid)) l
    WHERE NOT pgtrickle._has_row_identity(l::oid);
END $$;
