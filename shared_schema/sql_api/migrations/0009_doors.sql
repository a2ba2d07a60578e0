-- The key of signed log messages. Anybody can write a message into the log; only who can read this can sign one.
CREATE TABLE pgtrickle.pgt_secret (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    secret    bytea NOT NULL CHECK (pg_catalog.length(secret) = 32)
);

-- A SELECT right on all tables of the schema, as readers have it, does not show the key. The owner sees it, and a role
-- that reads the log or reports as a consumer.
ALTER TABLE pgtrickle.pgt_secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY consumers ON pgtrickle.pgt_secret FOR SELECT USING (
    EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = current_user AND r.rolreplication)
    OR pg_catalog.has_table_privilege('pgtrickle.pgt_consumer_settings_in_use', 'INSERT'));

-- Whoever may read the settings may read this too, as far as the policy allows.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_settings'::regclass AND a.privilege_type = 'SELECT'
                    AND a.grantee <> 0 LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_secret TO %s', reader);
    END LOOP;
END $$;

-- Anybody may take an advisory lock, so a session without rights here could keep the applier out. The applier then draws
-- another number, which is known only once it holds the lock of it.
CREATE TABLE pgtrickle.pgt_lock_numbers (
    slot    text PRIMARY KEY,
    number  integer NOT NULL
);

-- Locked by whoever defines stream tables; only who may write it can lock it.
CREATE TABLE pgtrickle.pgt_definition_lock ();
