-- What the plan of a stream table rests on, as it was when the plan was made: relations, types and functions at any depth.
-- The applier compares it with the present before it shows a frontier.
CREATE TABLE pgtrickle.pgt_dependency_facts (
    pgt_id      bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    facts       jsonb NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- The objects in these facts, each found by its id: DDL on anything else is not our business.
CREATE TABLE pgtrickle.pgt_dependency_objects (
    object_id  oid NOT NULL,
    pgt_id     bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    PRIMARY KEY (object_id, pgt_id)
);
CREATE INDEX pgt_dependency_objects_of_table ON pgtrickle.pgt_dependency_objects (pgt_id);

-- What a captured table was like when its rows in the trace were last known to be right.
CREATE TABLE pgtrickle.pgt_source_facts (
    source_relid  oid PRIMARY KEY,
    fact          jsonb NOT NULL,
    -- Why the log does not have all changes of the table at present: it is copied again once it has.
    problem       text,
    -- The number of the copy that the readers of the table wait for; see pgt_recaptures.
    awaits        bigint
);

-- Whoever may read what a stream table reads may read this too.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_dependencies'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_dependency_facts, pgtrickle.pgt_dependency_objects, '
                       'pgtrickle.pgt_source_facts TO %s', reader);
    END LOOP;
END $$;
