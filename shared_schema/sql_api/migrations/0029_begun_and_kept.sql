-- What the running process has begun, of refreshes that are not counted one by one. It deletes the row when it ends by itself: a
-- row that is there at a start was left by a process that died.
CREATE TABLE pgtrickle.pgt_begun (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    pgt_ids   bigint[] NOT NULL DEFAULT '{}'
);

-- Why stream tables with auto_evolve keep their columns although their sources have new ones. Written by the applier alone.
CREATE TABLE pgtrickle.pgt_kept_columns (
    pgt_id      bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    reason      text NOT NULL,
    noticed_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- Whoever may read the stream tables may read this too: health_check() does.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_stream_tables'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_kept_columns TO %s', reader);
    END LOOP;
END $$;
