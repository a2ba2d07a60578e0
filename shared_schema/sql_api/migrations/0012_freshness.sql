-- Freshness by the clock of the sources' server.
--   data_timestamp  commit time of the last source commit that the rows include; NULL before one is known
--   complete_until  every source commit that was durable before this moment is included; NULL before it is known
--   refreshed_at    when the applier refreshed it, by the applier's clock: schedules count from here, nothing else does
ALTER TABLE pgtrickle.pgt_frontiers ALTER COLUMN data_timestamp DROP NOT NULL,
    ADD COLUMN complete_until timestamptz,
    ADD COLUMN refreshed_at timestamptz;
-- It was the applier's clock.
UPDATE pgtrickle.pgt_frontiers SET refreshed_at = data_timestamp, data_timestamp = NULL;

-- Each program writes its row every second, by the server's clock, so that its silence is seen by whoever reads.
-- Narrow and without another index: an update stays on its page.
CREATE TABLE pgtrickle.pgt_consumer_beats (
    slot                    text PRIMARY KEY,
    beat_at                 timestamptz NOT NULL,
    -- Who stands at this frontier or later includes every source commit before that moment.
    frontier                pg_lsn,
    complete_until          timestamptz,
    -- The same for the frontier before it.
    earlier_frontier        pg_lsn,
    earlier_complete_until  timestamptz,
    -- Why nothing is published.
    problem                 text
) WITH (fillfactor = 50);

CREATE TABLE pgtrickle.pgt_applier_beats (
    slot                    text PRIMARY KEY,
    beat_at                 timestamptz NOT NULL,
    problem                 text,
    -- The consumer's last beat as it arrived through the broker. It counts where the consumer cannot write here.
    heard_at                timestamptz,
    -- This server's clock minus the source's.
    clock_offset            interval,
    frontier                pg_lsn,
    complete_until          timestamptz,
    earlier_frontier        pg_lsn,
    earlier_complete_until  timestamptz,
    consumer_problem        text
) WITH (fillfactor = 50);

-- Whoever may read what the programs use may read their beats; the consumer that writes its settings writes its beats.
DO $$
DECLARE
    held  record;
    beats text;
BEGIN
    FOR held IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role, a.privilege_type
                FROM pg_class c, aclexplode(c.relacl) a
                WHERE c.oid = 'pgtrickle.pgt_consumer_settings_in_use'::regclass
                  AND a.privilege_type IN ('SELECT', 'INSERT') AND a.grantee <> c.relowner LOOP
        IF held.privilege_type = 'SELECT' THEN
            FOREACH beats IN ARRAY ARRAY['pgt_consumer_beats', 'pgt_applier_beats'] LOOP
                EXECUTE format('GRANT SELECT ON pgtrickle.%I TO %s', beats, held.role);
            END LOOP;
        ELSE
            EXECUTE format('GRANT INSERT, UPDATE ON pgtrickle.pgt_consumer_beats TO %s', held.role);
        END IF;
    END LOOP;
END $$;
