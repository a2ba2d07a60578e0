-- Stream tables whose rows are computed as a whole once more, in place; the row goes with the transaction that writes them.
CREATE TABLE pgtrickle.pgt_reinitializations (
    pgt_id        bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    -- A reason code of the refresh history, and what was seen.
    reason        text NOT NULL,
    detail        text,
    initiated_by  text NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- Set when the applier could not do it: the stream table is suspended, and this waits for resume or another request.
    refused_at    timestamptz
);

ALTER TABLE pgtrickle.pgt_stream_tables
    -- When others than the applier were last allowed to write: the other sinks may not hold the same rows since then.
    ADD COLUMN sinks_differ_since timestamptz;
UPDATE pgtrickle.pgt_stream_tables s SET sinks_differ_since = pg_catalog.now()
WHERE EXISTS (SELECT FROM pg_catalog.pg_trigger t
              WHERE t.tgrelid = s.pgt_relid AND t.tgname = 'pgt_refuse_dml' AND t.tgenabled = 'D');

-- Whoever may read what is pending may read this too: the functions that only look need both.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_alterations'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_reinitializations TO %s', reader);
    END LOOP;
END $$;

-- Why a query changes and who asked for it; and columns that the table gets in place, after those that it has.
ALTER TABLE pgtrickle.pgt_alterations
    ADD COLUMN reason text NOT NULL DEFAULT 'DEFINITION_CHANGED',
    ADD COLUMN detail text,
    ADD COLUMN initiated_by text NOT NULL DEFAULT 'MANUAL',
    ADD COLUMN added_columns jsonb;

-- Whether columns that sources get later reach a query written with *; NULL is the setting auto_evolve.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN auto_evolve boolean;
