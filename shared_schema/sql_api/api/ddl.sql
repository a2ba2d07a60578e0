-- DDL on what stream tables read: what it leaves in the log, and how stream tables follow it.

-- Whether changes of its sources that change rows or result columns are followed; the option of the stream table has
-- priority over the setting.
CREATE OR REPLACE FUNCTION pgtrickle._auto_evolve(stream_table bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((to_jsonb(s) ->> 'auto_evolve')::boolean, pgtrickle._setting('auto_evolve')::boolean, false)
    FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table
$$;

-- Stores the query of a stream table with the present names of what it reads; with `whole` the applier computes all of it.
-- `relabelled`: labels of an enum have other names. They are not stored in PostgreSQL's rows, but in those of the others.
CREATE OR REPLACE FUNCTION pgtrickle._follow(
    stream_table bigint, query text, seen text, whole boolean, relabelled boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgtrickle.pgt_stream_tables s SET defining_query = query
    WHERE s.pgt_id = stream_table AND s.defining_query <> query;
    UPDATE pgtrickle.pgt_dependencies d SET source_schema = n.nspname, source_name = c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.source_relid = c.oid AND (d.source_schema, d.source_name) IS DISTINCT FROM (n.nspname::text, c.relname::text);
    IF relabelled THEN
        UPDATE pgtrickle.pgt_stream_tables s SET sinks_differ_since = clock_timestamp() WHERE s.pgt_id = stream_table;
    END IF;
    IF whole THEN
        PERFORM pgtrickle._request_reinitialize(stream_table, 'AUTO_SCHEMA_EVOLUTION', seen);
    END IF;
END $$;

-- Writes the news of altered relations to the log, for the consumer: it follows partitions by them. Returns the position.
CREATE OR REPLACE FUNCTION pgtrickle._announce(relids oid[], tag text DEFAULT 'comparison') RETURNS pg_lsn
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Before the trees are read. A partition that another transaction attaches meanwhile is in none of them, although the
    -- message may be committed after it: only the absence of what was visible here counts.
    saw    text := pg_current_snapshot()::text;
    saw_at text := pg_current_wal_insert_lsn()::text;
    roots  jsonb := '{}';
    root   oid;
BEGIN
    -- Not pg_partition_tree(): it waits for whoever has locked a partition.
    FOR root IN SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependencies d JOIN pg_class c ON c.oid = d.source_relid
                WHERE d.source_type = 'TABLE' AND c.relkind = 'p'
                  AND d.source_relid IN (SELECT u.oid FROM unnest(relids) AS u (oid)
                                         UNION ALL
                                         SELECT a.relid FROM unnest(relids) AS u (oid), pg_partition_ancestors(u.oid) a) LOOP
        roots := roots || jsonb_build_object(root::text, pgtrickle._partition_tree(root));
    END LOOP;
    RETURN pgtrickle._emit_signed('ddl', jsonb_build_object('tag', tag, 'relids', to_jsonb(relids::int8[]), 'roots', roots,
                                                            'saw', saw, 'saw_at', saw_at)::text, true);
END $$;
REVOKE ALL ON FUNCTION pgtrickle._announce(oid[], text) FROM PUBLIC;

-- Event triggers, where the installing role may create them. The comparison of the applier notices everything without them;
-- with them a change is in the log at its exact position, and new partitions of sources get the replica identity they need
-- in the transaction that makes them.

-- Whether DDL on sources is refused. The stored value counts at once, even before the applier has reloaded it.
CREATE OR REPLACE FUNCTION pgtrickle._blocks_source_ddl() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT s.value FROM pgtrickle._stored_settings() s WHERE s.name = 'block_source_ddl'),
                    pgtrickle._setting('block_source_ddl'), 'false')::boolean
$$;

CREATE OR REPLACE FUNCTION pgtrickle._refuse_source_ddl(touched oid[], tag text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    readers text;
BEGIN
    -- The API itself alters sources when it admits them.
    IF tag IN ('GRANT', 'REVOKE', 'COMMENT') OR current_setting('pg_trickle.admits', true) = 'on'
       OR NOT pgtrickle._blocks_source_ddl() THEN
        RETURN;
    END IF;
    SELECT string_agg(DISTINCT format('%I.%I', s.pgt_schema, s.pgt_name), ', ') INTO readers
    FROM pgtrickle.pgt_dependency_objects o JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE o.object_id = ANY (touched)
      AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables t WHERE t.pgt_relid = o.object_id);
    IF readers IS NOT NULL THEN
        RAISE EXCEPTION '% is refused: stream tables read what it alters', tag
            USING DETAIL = format('They are %s.', readers),
                  HINT = 'Drop them first, or allow it: SELECT pgtrickle.set_setting(''block_source_ddl'', ''false'').',
                  ERRCODE = 'object_in_use';
    END IF;
END $$;

-- Altered partitions of sources whose old rows would not be complete in the log. One that cannot be altered at once is left
-- to admit_partitions(): DDL of others neither fails nor waits because of us.
CREATE OR REPLACE FUNCTION pgtrickle._complete_leaves(touched oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN
        -- Not pg_partition_tree(): two sessions that alter two partitions would wait for each other.
        SELECT DISTINCT t.relid::oid FROM unnest(touched) AS u (oid) JOIN pg_class c ON c.oid = u.oid AND c.relkind IN ('r', 'p')
        JOIN pgtrickle.pgt_dependencies d ON d.source_relid = coalesce(pg_partition_root(c.oid), c.oid)
                                         AND d.source_type = 'TABLE'
        CROSS JOIN LATERAL jsonb_object_keys(pgtrickle._partition_tree(c.oid)) AS t (relid)
    LOOP
        CONTINUE WHEN pgtrickle._has_row_identity(leaf);
        BEGIN
            PERFORM set_config('pg_trickle.admits', 'on', true);
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', leaf);
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
        PERFORM set_config('pg_trickle.admits', 'off', true);
    END LOOP;
END $$;

-- Of altered and created objects, those that stream tables rest on, and partitions of sources.
CREATE OR REPLACE FUNCTION pgtrickle._on_ddl_end() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched  oid[];
BEGIN
    BEGIN
        SELECT array_agg(DISTINCT c.objid) INTO touched FROM pg_event_trigger_ddl_commands() c
        WHERE EXISTS (SELECT FROM pgtrickle.pgt_dependency_objects o WHERE o.object_id = c.objid)
           OR c.classid = 'pg_class'::regclass AND EXISTS (
               SELECT FROM pg_partition_ancestors(c.objid) a JOIN pgtrickle.pgt_dependencies d ON d.source_relid = a.relid);
        IF touched IS NULL THEN
            RETURN;
        END IF;
        IF current_setting('pg_trickle.admits', true) IS DISTINCT FROM 'on' THEN
            PERFORM pgtrickle._announce(touched, tg_tag);
            PERFORM pgtrickle._complete_leaves(touched);
        END IF;
    EXCEPTION WHEN OTHERS THEN
        -- DDL never fails because of us: the applier compares anyway.
        PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        RETURN;
    END;
    PERFORM pgtrickle._refuse_source_ddl(touched, tg_tag);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched  oid[];
BEGIN
    BEGIN
        SELECT array_agg(DISTINCT c.objid) INTO touched FROM pg_event_trigger_dropped_objects() c
        WHERE EXISTS (SELECT FROM pgtrickle.pgt_dependency_objects o WHERE o.object_id = c.objid);
        IF touched IS NULL THEN
            RETURN;
        END IF;
        -- A partition that is gone is known by its root alone.
        PERFORM pgtrickle._announce(touched || ARRAY(
            SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependency_objects o
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) WHERE o.object_id = ANY (touched)), tg_tag);
    EXCEPTION WHEN OTHERS THEN
        PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        RETURN;
    END;
    PERFORM pgtrickle._refuse_source_ddl(touched, tg_tag);
END $$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'pgtrickle_ddl_end') THEN
        CREATE EVENT TRIGGER pgtrickle_ddl_end ON ddl_command_end EXECUTE FUNCTION pgtrickle._on_ddl_end();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'pgtrickle_drop') THEN
        CREATE EVENT TRIGGER pgtrickle_drop ON sql_drop EXECUTE FUNCTION pgtrickle._on_drop();
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;
