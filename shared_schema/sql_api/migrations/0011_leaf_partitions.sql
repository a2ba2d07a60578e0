-- Leaf partitions are published by themselves: what happens to a single one (TRUNCATE, DETACH, ATTACH, DROP) is not in
-- the stream of their root. The consumer of this version copies partitioned sources once more when it starts.
DO $$
DECLARE
    pub  text;
BEGIN
    -- A new installation has neither the function nor a publication.
    IF to_regprocedure('pgtrickle._setting(text)') IS NOT NULL THEN
        EXECUTE 'SELECT pgtrickle._setting(''publication'')' INTO pub;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = pub AND p.pubviaroot
               AND pg_catalog.pg_has_role(p.pubowner, 'USAGE')) THEN
        EXECUTE format('ALTER PUBLICATION %I SET (publish_via_partition_root = false)', pub);
    END IF;
END $$;
