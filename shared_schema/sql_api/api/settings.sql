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
    PERFORM pgtrickle._check_stored_settings();
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
    PERFORM pgtrickle._check_stored_settings();
    PERFORM pgtrickle._announce_setting(setting);
END $$;
COMMENT ON FUNCTION pgtrickle.reset_setting IS 'Undo set_setting(): the setting has its default again, or the value of ALTER DATABASE.';

CREATE OR REPLACE FUNCTION pgtrickle._announce_setting(setting text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d pgtrickle.pgt_setting_definitions;
BEGIN
    SELECT * INTO d FROM pgtrickle.pgt_setting_definitions x WHERE x.name = setting;
    IF NOT d.live THEN
        RAISE NOTICE 'setting % takes effect when % is restarted', setting,
            CASE d.program WHEN 'both' THEN 'pg-trickle-cdc or pg-trickle-applier' ELSE d.program END;
    END IF;
END $$;

-- A value as the programs read it, so that two texts of one value are equal: 05 and 5, on and true, "a, b" and ["a","b"].
CREATE OR REPLACE FUNCTION pgtrickle._comparable(kind text, value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN kind = 'boolean' AND value ~* '^\s*(true|t|yes|y|on|1|false|f|no|n|off|0)\s*$' THEN value::boolean::text
        WHEN kind IN ('integer', 'number') AND value ~ '^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$'
            THEN trim_scale(value::numeric)::text
        WHEN kind = 'list' THEN regexp_replace(btrim(value, '[]" '), '\s*"?\s*,\s*"?\s*', ',', 'g')
        ELSE value END
$$;

CREATE OR REPLACE FUNCTION pgtrickle.settings()
RETURNS TABLE (name text, value text, source text, default_value text, min_value numeric, max_value numeric,
               options text[], program text, live boolean, pending_restart boolean, description text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH running AS MATERIALIZED (
        SELECT p.program FROM (VALUES ('pg-trickle-applier'), ('pg-trickle-cdc')) p(program)
        WHERE pgtrickle._is_running(p.program))
    SELECT d.name, CASE WHEN k.known THEN coalesce(u.value, s.value, d.default_value) END,
           CASE WHEN k.known THEN coalesce(u.source, s.source, 'default') ELSE 'not reported' END,
           d.default_value, d.min_value, d.max_value, d.options, coalesce(u.program, d.program), d.live,
           -- A running program whose value came from the database or is the default, and would differ after a restart. What
           -- is its default now is its default then, whatever is known of defaults here.
           coalesce(NOT d.live AND u.source NOT IN ('flag', 'environment') AND (s.value IS NOT NULL OR u.source <> 'default')
                    AND pgtrickle._comparable(d.kind, coalesce(s.value, d.default_value))
                        IS DISTINCT FROM pgtrickle._comparable(d.kind, u.value), false),
           d.description
    FROM pgtrickle.pgt_setting_definitions d
    LEFT JOIN pgtrickle._stored_settings() s ON s.name = d.name
    -- One row, or one per program where the programs differ.
    LEFT JOIN LATERAL (
        SELECT x.value, (array_agg(x.source ORDER BY x.program))[1] AS source,
               CASE WHEN count(*) OVER () > 1 THEN min(x.program) END AS program
        FROM pgtrickle._in_use(d.name) x JOIN running r ON r.program = x.program GROUP BY x.value) u ON true
    CROSS JOIN LATERAL (
        SELECT u.source IS NOT NULL OR NOT EXISTS (SELECT FROM running r WHERE d.program IN (r.program, 'both')) AS known) k
    ORDER BY d.name, 8
$$;
COMMENT ON FUNCTION pgtrickle.settings IS
    'Every setting with the value that the running program uses, where that is from (flag, environment, setting, database, default), and its bounds. Of a program that does not run: what the database has for it. "not reported": it runs and may not say.';
