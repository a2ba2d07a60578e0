-- Epochs: the writes of an applier that was replaced are refused.

-- Raises an error when the epoch that this session names has ended; else the epoch cannot end before this transaction
-- does. Sessions of others name none. Class 57: for the applier it is an interruption by the server, not a fault of rows.
CREATE OR REPLACE FUNCTION pgtrickle._confirm_epoch() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    named text := current_setting('pg_trickle.epoch', true);
BEGIN
    IF coalesce(named, '') = '' THEN
        RETURN;
    END IF;
    PERFORM FROM pgtrickle.pgt_ownership o WHERE o.epoch = named::bigint FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another applier has taken over the stream tables: epoch % has ended', named
            USING ERRCODE = '57PT1', HINT = 'start the applier that was replaced again: it stands by';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._refuse_old_epoch() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The role of another session need not have a right on anything here.
    IF coalesce(current_setting('pg_trickle.epoch', true), '') <> '' THEN
        PERFORM pgtrickle._confirm_epoch();
    END IF;
    RETURN NULL;
END $$;

-- Every table of the catalog, but those by which the owner is found. Stream tables have a trigger of their own.
DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT c.oid FROM pg_catalog.pg_class c
        WHERE c.relnamespace OPERATOR(pg_catalog.=) 'pgtrickle'::regnamespace AND c.relkind OPERATOR(pg_catalog.=) 'r'
          AND c.relname OPERATOR(pg_catalog.~) '^pgt_'
          AND c.relname OPERATOR(pg_catalog.!~) '^pgt_(staged_.*|ownership|applier_instances|lock_numbers|schema_version)$'
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
                          WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND t.tgname OPERATOR(pg_catalog.=) 'pgt_refuse_old_epoch')
          AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid OPERATOR(pg_catalog.=) c.oid)
    LOOP
        EXECUTE pg_catalog.format(
            'CREATE TRIGGER pgt_refuse_old_epoch BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
            ' FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._refuse_old_epoch()', relation);
    END LOOP;
END $$;
