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
        -- A consumer of an older version would take the rows of partitions for those of tables that it does not capture.
        IF EXISTS (SELECT FROM pg_catalog.pg_publication_tables t
                   JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
                   JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename AND c.relkind = 'p'
                   WHERE t.pubname = pub)
           AND EXISTS (SELECT FROM pg_catalog.pg_replication_slots r
                       WHERE r.database = pg_catalog.current_database() AND r.active AND r.slot_name IN (
                           SELECT u.slot FROM pgtrickle.pgt_consumer_settings_in_use u
                           UNION SELECT u.value FROM pgtrickle.pgt_settings_in_use u WHERE u.name = 'slot'
                           UNION SELECT 'pg_trickle')) THEN
            RAISE EXCEPTION 'an older pg-trickle-cdc streams partitioned tables via their root'
                USING HINT = 'Stop it, run pg-trickle-applier install, then start pg-trickle-cdc of this version.',
                      ERRCODE = 'object_in_use';
        END IF;
        EXECUTE format('ALTER PUBLICATION %I SET (publish_via_partition_root = false)', pub);
    END IF;
END $$;
