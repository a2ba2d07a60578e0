-- What a running consumer uses, one set for each slot. A table of its own: the consumer may write here and nowhere else.
CREATE TABLE pgtrickle.pgt_consumer_settings_in_use (
    slot    text NOT NULL,
    name    text NOT NULL,
    value   text,
    source  text NOT NULL,
    PRIMARY KEY (slot, name)
);

-- Whoever may read what the applier uses may read this too: the functions that only look need both.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_settings_in_use'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_consumer_settings_in_use TO %s', reader);
    END LOOP;
END $$;
