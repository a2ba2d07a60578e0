-- The event triggers, where a superuser installs. Everybody's DDL runs their functions, so these belong to that superuser; they do
-- nothing themselves. What they call belongs to the owner of the schema, whose members may replace it. So it is called only as
-- long as it is SECURITY DEFINER: it then has the rights of its owner, whoever does the DDL. While it is locked FOR SHARE, neither
-- the function nor the name of its schema can become another one.

DO $install$
DECLARE
    kind  record;
BEGIN
    IF NOT (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) THEN
        RETURN;
    END IF;
    FOR kind IN SELECT * FROM (VALUES
        ('_on_ddl_end', '_ddl_ended', 'pgtrickle_ddl_end', 'ddl_command_end',
         $q$pg_event_trigger_ddl_commands() o WHERE o.schema_name IS DISTINCT FROM 'pg_temp'$q$),
        ('_on_drop', '_dropped', 'pgtrickle_drop', 'sql_drop',
         $q$pg_event_trigger_dropped_objects() o WHERE NOT o.is_temporary$q$)) AS k (function, called, trigger, event, objects)
    LOOP
        EXECUTE pg_catalog.format($create$
            CREATE OR REPLACE FUNCTION pgtrickle.%1$I() RETURNS event_trigger
            LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
            DECLARE
                is_safe  boolean := false;
            BEGIN
                -- An upgrade drops and creates it. A table that leaves a publication is no command of its own.
                IF to_regprocedure('pgtrickle.%2$I(text)') IS NULL
                   OR tg_tag NOT LIKE '%% PUBLICATION' AND NOT EXISTS (SELECT FROM %3$s) THEN
                    RETURN;
                END IF;
                BEGIN
                    PERFORM FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                    WHERE p.oid = to_regprocedure('pgtrickle.%2$I(text)') AND p.prosecdef FOR SHARE SKIP LOCKED;
                    is_safe := FOUND;
                EXCEPTION WHEN serialization_failure THEN
                    -- Replaced since the snapshot of this transaction.
                    NULL;
                END;
                IF is_safe THEN
                    PERFORM pgtrickle.%2$I(tg_tag);
                ELSE
                    -- The applier compares anyway.
                    PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
                END IF;
            END $body$ $create$, kind.function, kind.called, kind.objects);
        EXECUTE pg_catalog.format('ALTER FUNCTION pgtrickle.%I() OWNER TO CURRENT_USER', kind.function);
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger t WHERE t.evtname = kind.trigger) THEN
            EXECUTE pg_catalog.format('CREATE EVENT TRIGGER %I ON %I EXECUTE FUNCTION pgtrickle.%I()', kind.trigger, kind.event,
                                      kind.function);
        END IF;
    END LOOP;
END $install$;
