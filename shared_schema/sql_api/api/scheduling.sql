-- Requests of waiting sessions to the scheduler. They are locks: a lock is visible before its transaction commits, a row is not.
-- Anybody may hold such a lock; it counts if the session's login may call the function that takes it.

CREATE OR REPLACE FUNCTION pgtrickle._request_lock_class() RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT 1885828215 $$;

CREATE OR REPLACE FUNCTION pgtrickle._refresh_requests() RETURNS SETOF bigint
LANGUAGE sql VOLATILE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.objid::bigint FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = pgtrickle._request_lock_class()::oid
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      -- A drain stops everything, so its caller must be able to write its row; waiting is for whoever may read.
      AND (pgtrickle._is_ours(l.pid) OR (SELECT CASE l.objid WHEN 0 THEN has_table_privilege(a.usesysid, 'pgtrickle.pgt_drain', 'INSERT')
                               ELSE has_table_privilege(a.usesysid, 'pgtrickle.pgt_frontiers', 'SELECT') END
           FROM pg_stat_get_activity(l.pid) a))
$$;

-- 0 is not the id of a stream table: a lock on it requests a refresh of all, and then a pause.
CREATE OR REPLACE FUNCTION pgtrickle._drain_state() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM pgtrickle._refresh_requests() a WHERE a = 0) THEN 'asked'
                WHEN EXISTS (SELECT FROM pgtrickle.pgt_drain) THEN 'resting' ELSE 'running' END
$$;

CREATE OR REPLACE FUNCTION pgtrickle.is_drained() RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pgtrickle.pgt_service s WHERE s.applier = pgtrickle._setting('slot') AND s.state = 'DRAINED')
$$;
COMMENT ON FUNCTION pgtrickle.is_drained IS 'Tell whether the applier has finished everything and is paused.';

CREATE OR REPLACE FUNCTION pgtrickle.drain(timeout_s integer DEFAULT 60) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target  pg_lsn := pg_current_wal_insert_lsn();
    give_up timestamptz := clock_timestamp() + make_interval(secs => timeout_s);
    woken   timestamptz;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a % transaction cannot see that the applier has drained', current_setting('transaction_isolation')
            USING HINT = 'Call it outside a transaction or under READ COMMITTED.', ERRCODE = 'feature_not_supported';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(pgtrickle._request_lock_class(), 0);
    WHILE NOT EXISTS (SELECT FROM pgtrickle.pgt_service s WHERE s.applier = pgtrickle._setting('slot')
                      AND s.state = 'DRAINED' AND s.frontier >= target) LOOP
        IF clock_timestamp() >= give_up THEN
            RETURN false;
        ELSIF woken IS NULL OR clock_timestamp() >= woken + interval '1 second' THEN
            PERFORM pgtrickle._emit('wake');
            woken := clock_timestamp();
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    -- This row stays after the lock ends with this transaction.
    INSERT INTO pgtrickle.pgt_drain DEFAULT VALUES ON CONFLICT DO NOTHING;
    RETURN true;
END $$;
COMMENT ON FUNCTION pgtrickle.drain IS
    'Bring every stream table and every sink up to now, then pause the applier until resume_after_drain(); false on timeout.';

CREATE OR REPLACE FUNCTION pgtrickle.resume_after_drain() RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM pgtrickle.pgt_drain
$$;
COMMENT ON FUNCTION pgtrickle.resume_after_drain IS 'End the pause that drain() began.';

-- A stream table that is read is replaced by its query, so a cycle would have no meaning.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_cycle(stream_table oid, reads oid[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ring text;
BEGIN
    WITH RECURSIVE paths(relid, path) AS (
        SELECT r, ARRAY[stream_table, r] FROM unnest(reads) r
        UNION ALL
        SELECT d.source_relid, p.path || d.source_relid
        FROM paths p JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = p.relid
        JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = s.pgt_id AND d.source_type = 'STREAM_TABLE'
        WHERE p.relid <> stream_table AND NOT d.source_relid = ANY (p.path[2:])
    )
    SELECT string_agg(step::regclass::text, ' -> ' ORDER BY place) INTO ring
    FROM (SELECT path FROM paths WHERE relid = stream_table ORDER BY cardinality(path) LIMIT 1) found,
         unnest(found.path) WITH ORDINALITY AS steps(step, place);
    IF ring IS NOT NULL THEN
        RAISE EXCEPTION 'stream table % would read itself', stream_table::regclass
            USING DETAIL = format('It would read %s.', ring),
                  HINT = 'Break the cycle: in one of them, read the source tables instead.', ERRCODE = 'invalid_table_definition';
    END IF;
END $$;
