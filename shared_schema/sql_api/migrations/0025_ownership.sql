-- Who maintains the stream tables of a slot. Each owner has an epoch of its own, and every write of it names the epoch: what
-- a former owner still sends is refused, whenever it arrives.
CREATE SEQUENCE pgtrickle.pgt_epochs;

CREATE TABLE pgtrickle.pgt_ownership (
    slot      text PRIMARY KEY,
    -- A write locks it FOR KEY SHARE until its commit. Unique, so that a new epoch waits for those locks.
    epoch     bigint NOT NULL UNIQUE,
    holder    uuid NOT NULL,
    taken_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason    text NOT NULL
);

-- The processes that run, and when they were last alive. Not in pgt_ownership: no beat may wait for a write.
CREATE TABLE pgtrickle.pgt_applier_instances (
    slot     text NOT NULL,
    holder   uuid NOT NULL,
    role     text NOT NULL CHECK (role IN ('owner', 'standby')),
    version  text NOT NULL,
    beat_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (slot, holder)
);

-- Whoever may read the stream tables may read this too: health_check() does.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_stream_tables'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_ownership, pgtrickle.pgt_applier_instances TO %s', reader);
    END LOOP;
END $$;
