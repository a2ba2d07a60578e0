-- Settings in the database. The definitions come from the programs' own settings classes, written at every install.

-- Values set here or with ALTER DATABASE … SET pg_trickle.<name>, read by the programs. set_setting() has priority.
CREATE OR REPLACE FUNCTION pgtrickle._stored_settings() RETURNS TABLE (name text, value text, source text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.name, coalesce(s.value, g.value), CASE WHEN s.name IS NULL THEN 'database' ELSE 'setting' END
    FROM pgtrickle.pgt_setting_definitions d
    LEFT JOIN pgtrickle.pgt_settings s ON s.name = d.name
    LEFT JOIN (
        SELECT substr(split_part(c, '=', 1), length('pg_trickle.') + 1) AS name, substr(c, strpos(c, '=') + 1) AS value
        FROM pg_db_role_setting r JOIN pg_database b ON b.oid = r.setdatabase, unnest(r.setconfig) c
        WHERE b.datname = current_database() AND r.setrole = 0 AND c LIKE 'pg\_trickle.%'
    ) g ON g.name = d.name
    WHERE d.settable AND coalesce(s.value, g.value) IS NOT NULL
$$;

-- The settings that the programs reported, whether they still run or not. Of several consumers, the one with the
-- applier's slot counts.
CREATE OR REPLACE FUNCTION pgtrickle._in_use(setting text) RETURNS TABLE (program text, value text, source text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT u.program, u.value, u.source FROM pgtrickle.pgt_settings_in_use u WHERE u.name = setting
    UNION ALL
    SELECT 'pg-trickle-cdc', c.value, c.source FROM pgtrickle.pgt_consumer_settings_in_use c
    WHERE c.name = setting AND c.slot = coalesce(
        (SELECT u.value FROM pgtrickle.pgt_settings_in_use u WHERE u.name = 'slot' ORDER BY u.program LIMIT 1),
        (SELECT d.default_value FROM pgtrickle.pgt_setting_definitions d WHERE d.name = 'slot'))
$$;

-- The value in use, as far as the database knows it. For the publication it is the first one that is set here: what a
-- consumer reports about itself does not decide to which publication tables are added.
CREATE OR REPLACE FUNCTION pgtrickle._setting(setting text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE setting WHEN 'publication' THEN split_part(found.value, ',', 1) ELSE found.value END
    FROM (SELECT CASE setting WHEN 'publication' THEN 'publications' ELSE setting END) AS wanted(name),
    LATERAL (SELECT coalesce(
        (SELECT u.value FROM pgtrickle._in_use(wanted.name) u
         WHERE wanted.name <> 'publications' ORDER BY u.program LIMIT 1),
        (SELECT s.value FROM pgtrickle._stored_settings() s WHERE s.name = wanted.name),
        (SELECT d.default_value FROM pgtrickle.pgt_setting_definitions d WHERE d.name = wanted.name))) AS found(value)
$$;

-- Whether the sources are in another database, which has its own log.
CREATE OR REPLACE FUNCTION pgtrickle._sources_elsewhere() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._setting('sources_elsewhere')::boolean
$$;

-- Whether the session of a process belongs to the owner of this schema or a member. Anybody may hold an advisory lock; who
-- holds it decides what it means.
CREATE OR REPLACE FUNCTION pgtrickle._is_ours(session integer) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT pg_has_role(a.usesysid, c.relowner, 'MEMBER')
                     FROM pg_stat_get_activity(session) a, pg_class c
                     WHERE c.oid = 'pgtrickle.pgt_stream_tables'::regclass), false)
$$;

-- Whether a program is running: the applier holds an advisory lock, the consumer reads the slot.
CREATE OR REPLACE FUNCTION pgtrickle._is_running(program text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE program
        WHEN 'pg-trickle-applier' THEN EXISTS (
            SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND d.datname = current_database()
              AND l.classid::int8 = 1885828208 AND pgtrickle._is_ours(l.pid))
        ELSE EXISTS (SELECT FROM pg_replication_slots r
                     WHERE r.slot_name = pgtrickle._setting('slot') AND r.database = current_database() AND r.active)
    END
$$;

-- Returns a setting's definition and the value in its stored form, or raises an error that names the bounds.
CREATE OR REPLACE FUNCTION pgtrickle._checked_setting(setting text, wanted text, OUT known text, OUT stored text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d       pgtrickle.pgt_setting_definitions;
    allowed text;
BEGIN
    known := regexp_replace(lower(setting), '^pg_trickle\.', '');
    SELECT * INTO d FROM pgtrickle.pgt_setting_definitions x WHERE x.name = known;
    IF d.name IS NULL THEN
        RAISE EXCEPTION 'there is no setting %', coalesce(setting, 'NULL')
            USING HINT = 'SELECT name, value, description FROM pgtrickle.settings() lists them.',
                  ERRCODE = 'undefined_object';
    ELSIF NOT d.settable THEN
        RAISE EXCEPTION 'setting % can only be set where the program is started', d.name
            USING HINT = format('Start it with the environment variable PG_TRICKLE_%s.', upper(d.name)),
                  ERRCODE = 'cant_change_runtime_param';
    END IF;
    stored := btrim(wanted);
    allowed := CASE
        WHEN wanted IS NULL THEN 'a value; reset_setting() takes it back'
        WHEN d.kind = 'boolean' THEN
            CASE WHEN lower(stored) NOT IN ('true', 'false', 'on', 'off', 'yes', 'no', '1', '0') THEN 'true or false' END
        WHEN d.kind = 'integer' AND stored !~ '^[+-]?[0-9]{1,18}$' THEN 'a whole number'
        WHEN d.kind = 'number' AND stored !~ '^[+-]?[0-9]{1,18}(\.[0-9]{1,18})?$' THEN 'a number'
        WHEN d.kind = 'choice' AND stored <> ALL (d.options) THEN 'one of ' || array_to_string(d.options, ', ')
        WHEN d.pattern IS NOT NULL AND stored !~ d.pattern THEN 'of the form ' || d.pattern
    END;
    IF allowed IS NULL AND d.kind IN ('integer', 'number')
       AND (stored::numeric < d.min_value OR stored::numeric > d.max_value) THEN
        allowed := CASE WHEN d.max_value IS NULL THEN format('at least %s', d.min_value)
                        WHEN d.min_value IS NULL THEN format('at most %s', d.max_value)
                        ELSE format('between %s and %s', d.min_value, d.max_value) END;
    END IF;
    IF allowed IS NOT NULL THEN
        RAISE EXCEPTION 'setting % cannot be %', d.name, coalesce(quote_literal(wanted), 'NULL')
            USING HINT = format('It must be %s.', allowed), ERRCODE = 'invalid_parameter_value';
    END IF;
    stored := CASE WHEN d.kind = 'boolean' THEN stored::boolean::text
                   WHEN d.kind = 'integer' THEN stored::int8::text ELSE stored END;
END $$;

-- Raises an error when settings that belong together do not fit: the programs would refuse them at their next start.
CREATE OR REPLACE FUNCTION pgtrickle._check_stored_settings() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    warning   numeric;
    critical  numeric;
BEGIN
    SELECT min(coalesce(s.value, d.default_value)::numeric) FILTER (WHERE d.name = 'slot_lag_warning_threshold_mb'),
           min(coalesce(s.value, d.default_value)::numeric) FILTER (WHERE d.name = 'slot_lag_critical_threshold_mb')
    INTO warning, critical
    FROM pgtrickle.pgt_setting_definitions d LEFT JOIN pgtrickle._stored_settings() s ON s.name = d.name
    WHERE d.name LIKE 'slot\_lag\_%';
    IF critical < warning THEN
        RAISE EXCEPTION 'slot_lag_critical_threshold_mb (%) is less than slot_lag_warning_threshold_mb (%)', critical, warning
            USING HINT = 'Set the other one first.', ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
