-- DDL on what stream tables rest on, written by the event triggers in the transaction of the DDL itself: the error of a stream
-- table that cannot follow names it. The applier removes old rows.
CREATE TABLE pgtrickle.pgt_source_ddl (
    ddl_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The objects that it altered, as in pgt_dependency_objects.
    objects    oid[] NOT NULL,
    -- The position of its message in the log.
    at         pg_lsn NOT NULL,
    tag        text NOT NULL,
    role_name  text NOT NULL,
    xid        xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    seen_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

-- What was committed when the facts were stored: DDL that is not in it came later.
ALTER TABLE pgtrickle.pgt_dependency_facts ADD COLUMN stored_in pg_snapshot;

-- Sources whose changes the consumer cannot publish, as the applier last read it: readers cannot be resumed meanwhile.
CREATE TABLE pgtrickle.pgt_stopped_sources (
    source_schema  text NOT NULL,
    source_name    text NOT NULL,
    reason         text NOT NULL,
    PRIMARY KEY (source_schema, source_name)
);

-- Whoever may read what a stream table reads may read this too.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_dependencies'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_source_ddl, pgtrickle.pgt_stopped_sources TO %s', reader);
    END LOOP;
END $$;
