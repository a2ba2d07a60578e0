-- Settings as users see and change them.

CREATE OR REPLACE FUNCTION pgtrickle.set_setting(name text, value text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    checked record;
BEGIN
    SELECT * INTO checked FROM pgtrickle._checked_setting(name, value);
    INSERT INTO pgtrickle.pgt_settings AS s (name, value) VALUES (checked.known, checked.stored)
    ON CONFLICT ON CONSTRAINT pgt_settings_pkey
    DO UPDATE SET value = excluded.value, set_by = excluded.set_by, set_at = now();
    PERFORM pgtrickle._announce_setting(checked.known);
END $$;
COMMENT ON FUNCTION pgtrickle.set_setting IS
    'Set a setting for every program of this database; their own flags and PG_TRICKLE_* variables win.';

CREATE OR REPLACE FUNCTION pgtrickle.reset_setting(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    setting text := regexp_replace(lower(name), '^pg_trickle\.', '');
BEGIN
    IF NOT EXISTS (SELECT FROM pgtrickle.pgt_setting_definitions d WHERE d.name = setting) THEN
        RAISE EXCEPTION 'there is no setting %', coalesce(reset_setting.name, 'NULL')
            USING HINT = 'SELECT name, value, description FROM pgtrickle.settings() lists them.',
                  ERRCODE = 'undefined_object';
    END IF;
    DELETE FROM pgtrickle.pgt_settings s WHERE s.name = setting;
    PERFORM pgtrickle._announce_setting(setting);
END $$;
COMMENT ON FUNCTION pgtrickle.reset_setting IS 'Take a set_setting() back.';

CREATE OR REPLACE FUNCTION pgtrickle._announce_setting(setting text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d pgtrickle.pgt_setting_definitions;
BEGIN
    SELECT * INTO d FROM pgtrickle.pgt_setting_definitions x WHERE x.name = setting;
    IF NOT d.live THEN
        RAISE NOTICE 'setting % is taken over when % starts again', setting,
            CASE d.program WHEN 'both' THEN 'pg-trickle-cdc or pg-trickle-applier' ELSE d.program END;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.settings()
RETURNS TABLE (name text, value text, source text, default_value text, min_value numeric, max_value numeric,
               options text[], program text, live boolean, pending_restart boolean, description text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.name, coalesce(u.value, s.value, d.default_value), coalesce(u.source, s.source, 'default'),
           d.default_value, d.min_value, d.max_value, d.options, d.program, d.live,
           -- A program that runs with a value of the database, or with none, which would be another by now.
           coalesce(u.source NOT IN ('flag', 'environment')
                    AND coalesce(s.value, d.default_value) IS DISTINCT FROM u.value, false),
           d.description
    FROM pgtrickle.pgt_setting_definitions d
    LEFT JOIN pgtrickle._stored_settings() s ON s.name = d.name
    LEFT JOIN LATERAL (
        SELECT x.value, x.source FROM pgtrickle.pgt_settings_in_use x
        WHERE x.name = d.name AND pgtrickle._is_running(x.program) ORDER BY x.program LIMIT 1) u ON true
    ORDER BY d.name
$$;
COMMENT ON FUNCTION pgtrickle.settings IS
    'Every setting with its value, where that is from (flag, environment, setting, database, default), and its bounds.';
