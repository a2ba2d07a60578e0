-- Direct writes to a stream table, the visibility of its rows, and its logical replication.

-- Protects against mistakes, not against intent: any session can SET the variable. Use GRANT for rights.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_dml() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('pg_trickle.applier', true) = 'on' THEN
        IF coalesce(current_setting('pg_trickle.epoch', true), '') <> '' THEN
            PERFORM pgtrickle._confirm_epoch();
        END IF;
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '% of stream table %.% is refused: its rows are maintained by pg-trickle-applier',
            TG_OP, quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
        USING HINT = format('Change its sources, or SELECT pgtrickle.allow_direct_dml(%L) and take responsibility for the rows.',
                            format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)),
              ERRCODE = 'object_not_in_prerequisite_state';
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._guard(relation oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = relation AND t.tgname = 'pgt_refuse_dml') THEN
        EXECUTE format('CREATE TRIGGER pgt_refuse_dml BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                       ' FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._refuse_dml()', relation::regclass);
    END IF;
END $$;

-- Add the trigger to stream tables of an earlier version. A disabled trigger exists already, and stays disabled.
DO $$
BEGIN
    PERFORM pgtrickle._guard(s.pgt_relid) FROM pgtrickle.pgt_stream_tables s
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) s.pgt_relid;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.allow_direct_dml(
    name text, allowed boolean DEFAULT true, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
BEGIN
    PERFORM pgtrickle._guard(st.pgt_relid);
    EXECUTE format('ALTER TABLE %s %s TRIGGER pgt_refuse_dml', st.pgt_relid::regclass,
                   CASE WHEN allowed THEN 'DISABLE' ELSE 'ENABLE' END);
    IF allowed THEN
        UPDATE pgtrickle.pgt_stream_tables s SET sinks_differ_since = now()
        WHERE s.pgt_id = st.pgt_id AND s.sinks_differ_since IS NULL;
    END IF;
END $$;
COMMENT ON FUNCTION pgtrickle.allow_direct_dml IS
    'Allow or forbid writes by others than the applier. If the applier then does not find an expected row, it suspends the stream table.';

CREATE OR REPLACE FUNCTION pgtrickle.set_visibility(
    name text, visibility text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
BEGIN
    IF coalesce(visibility, '') NOT IN ('transactional', 'progressive') THEN
        RAISE EXCEPTION 'visibility % is not understood', coalesce(quote_literal(visibility), 'NULL')
            USING HINT = 'Write transactional or progressive.', ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE pgtrickle.pgt_stream_tables s SET visibility = set_visibility.visibility WHERE s.pgt_id = st.pgt_id;
END $$;
COMMENT ON FUNCTION pgtrickle.set_visibility IS
    'transactional: all rows of a refresh become visible together. progressive: batch by batch; the first rows sooner, locks shorter.';

-- Creates the publication that the catalog names, if there is one.
CREATE OR REPLACE FUNCTION pgtrickle._ensure_publication(stream_table bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
BEGIN
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table;
    IF st.downstream_publication_name IS NULL THEN
        RETURN;
    END IF;
    -- The columns may be null, so no index can be the replica identity.
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = st.pgt_relid AND c.relreplident <> 'f') THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', st.pgt_relid::regclass);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_publication p WHERE p.pubname = st.downstream_publication_name) THEN
        EXECUTE format('CREATE PUBLICATION %I FOR TABLE %s', st.downstream_publication_name, st.pgt_relid::regclass);
    ELSIF NOT EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
                      WHERE p.pubname = st.downstream_publication_name AND r.prrelid = st.pgt_relid) THEN
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', st.downstream_publication_name, st.pgt_relid::regclass);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.stream_table_to_publication(
    name text, publication text DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st      pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    -- Truncated to the length of a name.
    wanted  text := coalesce(publication::name::text, st.downstream_publication_name);
BEGIN
    IF st.downstream_publication_name <> wanted THEN
        RAISE EXCEPTION 'stream table % has publication %', name, quote_ident(st.downstream_publication_name)
            USING HINT = 'Drop it first: SELECT pgtrickle.drop_stream_table_publication(…).',
                  ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF st.downstream_publication_name IS NULL AND EXISTS (SELECT FROM pg_publication p WHERE p.pubname = wanted) THEN
        -- It would be dropped with the stream table, but it belongs to someone else.
        RAISE EXCEPTION 'publication % already exists', quote_ident(wanted)
            USING HINT = 'Choose another name: this one would be dropped with the stream table.',
                  ERRCODE = 'duplicate_object';
    ELSIF wanted IS NULL THEN
        wanted := left('pgt_pub_' || st.pgt_name, 63);
        IF EXISTS (SELECT FROM pg_publication p WHERE p.pubname = wanted) OR octet_length(wanted) > 63 THEN
            -- The name is in use, perhaps by a stream table of the same name in another schema.
            wanted := 'pgt_pub_' || st.pgt_id;
        END IF;
    END IF;
    UPDATE pgtrickle.pgt_stream_tables s SET downstream_publication_name = wanted
    WHERE s.pgt_id = st.pgt_id AND s.downstream_publication_name IS DISTINCT FROM wanted;
    PERFORM pgtrickle._ensure_publication(st.pgt_id);
    RETURN wanted;
END $$;
COMMENT ON FUNCTION pgtrickle.stream_table_to_publication IS
    'Publish the stream table for logical replication, under this name if one is given; return the publication''s name. It is dropped with the stream table.';

CREATE OR REPLACE FUNCTION pgtrickle._drop_publication(stream_table bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made text;
BEGIN
    SELECT s.downstream_publication_name INTO made FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table;
    IF made IS NULL THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM pg_publication p WHERE p.pubname = made) THEN
        EXECUTE format('DROP PUBLICATION %I', made);
    END IF;
    UPDATE pgtrickle.pgt_stream_tables s SET downstream_publication_name = NULL WHERE s.pgt_id = stream_table;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.drop_stream_table_publication(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
BEGIN
    RETURN pgtrickle._drop_publication(st.pgt_id);
END $$;
COMMENT ON FUNCTION pgtrickle.drop_stream_table_publication IS
    'End the logical replication of a stream table; return whether it was published.';
