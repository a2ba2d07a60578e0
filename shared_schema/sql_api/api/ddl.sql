-- DDL on what stream tables read: what it leaves in the log, and how stream tables follow it.

-- Whether changes of its sources that change rows or result columns are followed; the option of the stream table has
-- priority over the setting.
CREATE OR REPLACE FUNCTION pgtrickle._auto_evolve(stream_table bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((to_jsonb(s) ->> 'auto_evolve')::boolean, pgtrickle._setting('auto_evolve')::boolean, false)
    FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table
$$;

-- Records that a stream table follows without a computation: it was planned again, or its query names its sources anew.
CREATE OR REPLACE FUNCTION pgtrickle._note_evolution(stream_table bigint, seen text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgtrickle.pgt_refresh_history
        (pgt_id, start_time, end_time, action, refresh_reason, refresh_reason_detail, initiated_by, rows_in, rows_inserted,
         rows_deleted, compute_ms, write_ms, from_lsn, tick_watermark_lsn, status)
    SELECT s.pgt_id, clock_timestamp(), clock_timestamp(), 'NO_DATA', 'AUTO_SCHEMA_EVOLUTION', seen, 'SCHEDULER', 0, 0,
           0, 0, 0, coalesce(f.frontier, '0/0'), coalesce(f.frontier, '0/0'), 'COMPLETED'
    FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)
    WHERE s.pgt_id = stream_table FOR KEY SHARE OF s
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
    ELSE
        PERFORM pgtrickle._note_evolution(stream_table, seen);
    END IF;
END $$;

-- Writes the news of altered relations to the log, for the consumer: it follows partitions by them. Returns the position.
CREATE OR REPLACE FUNCTION pgtrickle._announce(relids oid[], tag text DEFAULT 'comparison') RETURNS pg_lsn
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
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
    RETURN pgtrickle._emit_signed('ddl', jsonb_build_object('tag', tag, 'relids', to_jsonb(relids::int8[]), 'roots', roots)::text, true);
END $$;
REVOKE ALL ON FUNCTION pgtrickle._announce(oid[], text) FROM PUBLIC;

-- Event triggers, where the installing role may create them. The comparison of the applier notices everything without them;
-- with them a change is in the log at its exact position, and new partitions of sources get the replica identity they need
-- in the transaction that makes them.

-- Writes the news of DDL to the log, and keeps who did it: the error of a stream table that cannot follow names it.
CREATE OR REPLACE FUNCTION pgtrickle._note_ddl(touched oid[], tag text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    position pg_lsn := pgtrickle._announce(touched, tag);
BEGIN
    IF tag NOT IN ('GRANT', 'REVOKE', 'COMMENT') THEN
        -- Event triggers run as the owner of the catalog; the role that altered is the one of the session.
        INSERT INTO pgtrickle.pgt_source_ddl (objects, at, tag, role_name)
        VALUES (touched, position, _note_ddl.tag, coalesce(nullif(current_setting('role'), 'none'), session_user));
    END IF;
END $$;

-- The last DDL on what a stream table rests on since its facts were stored, for its error; NULL where no event trigger saw any.
CREATE OR REPLACE FUNCTION pgtrickle._ddl_since(stream_table bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format('%s by %s at %s', l.tag, l.role_name, l.at), ', ' ORDER BY l.at)
    -- A command that alters and drops is seen twice.
    FROM (SELECT d.tag, d.role_name, max(d.at) AS at FROM pgtrickle.pgt_source_ddl d, pgtrickle.pgt_dependency_facts f
          WHERE f.pgt_id = stream_table AND NOT pg_visible_in_snapshot(d.xid, f.stored_in)
            AND d.objects && ARRAY(SELECT o.object_id FROM pgtrickle.pgt_dependency_objects o WHERE o.pgt_id = stream_table)
          GROUP BY d.xid, d.tag, d.role_name ORDER BY at DESC LIMIT 3) l
$$;

-- Whether DDL on sources is refused. What is set and reset in the database counts at once, even before the applier has reloaded
-- it; otherwise what the applier was started with.
CREATE OR REPLACE FUNCTION pgtrickle._blocks_source_ddl() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT s.value FROM pgtrickle._stored_settings() s WHERE s.name = 'block_source_ddl'),
                    (SELECT u.value FROM pgtrickle._in_use('block_source_ddl') u WHERE u.source IN ('flag', 'environment')
                     LIMIT 1), 'false')::boolean
$$;

-- The stream tables because of which DDL is refused; NULL where it is not.
CREATE OR REPLACE FUNCTION pgtrickle._refusing_readers(touched oid[], tag text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tag IN ('GRANT', 'REVOKE', 'COMMENT') OR NOT pgtrickle._blocks_source_ddl() THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT string_agg(DISTINCT format('%I.%I', s.pgt_schema, s.pgt_name), ', ')
            FROM pgtrickle.pgt_dependency_objects o JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
            WHERE o.object_id = ANY (touched)
              AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables t WHERE t.pgt_relid = o.object_id));
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._refuse_source_ddl(readers text, tag text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% is refused: stream tables read what it alters', tag
        USING DETAIL = format('They are %s.', readers),
              HINT = 'Drop them first, or allow it: SELECT pgtrickle.set_setting(''block_source_ddl'', ''false'').',
              ERRCODE = 'object_in_use';
END $$;

-- The sources that the publications of the stream leave out, in whole or in part, and did not at the applier's last look.
CREATE OR REPLACE FUNCTION pgtrickle._left_out_sources() RETURNS oid[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(
        SELECT f.relid
        FROM pgtrickle._publication_facts(ARRAY(
            SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependencies d JOIN pg_class c ON c.oid = d.source_relid
            WHERE d.source_type = 'TABLE' AND NOT pgtrickle._sources_elsewhere())) f
        JOIN pg_class c ON c.oid = f.relid
        LEFT JOIN pgtrickle.pgt_source_facts s ON s.source_relid = f.relid
        WHERE s.problem IS NULL AND (f.problem IS NOT NULL OR c.relkind = 'p' AND EXISTS (
            SELECT FROM pg_publication p WHERE p.pubname = pgtrickle._setting('publication') AND p.pubviaroot)));
END $$;

-- Completes the partitions of sources whose old rows would not be complete in the log. One that belongs to another role, or that is
-- locked, is left: health_check() asks for admit_partitions().
CREATE OR REPLACE FUNCTION pgtrickle._complete_leaves(touched oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN
        -- Not pg_partition_tree(): two sessions that alter two partitions would wait for each other.
        SELECT DISTINCT t.relid::oid FROM unnest(touched) AS u (oid) JOIN pg_class c ON c.oid = u.oid AND c.relkind IN ('r', 'p')
        JOIN pgtrickle.pgt_dependencies d ON d.source_relid = coalesce(pg_partition_root(c.oid), c.oid)
                                         AND d.source_type = 'TABLE'
        CROSS JOIN LATERAL jsonb_object_keys(pgtrickle._partition_tree(d.source_relid)) AS t (relid)
    LOOP
        CONTINUE WHEN pgtrickle._has_row_identity(leaf);
        BEGIN
            PERFORM set_config('pg_trickle.admits', 'on', true);
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', leaf);
            PERFORM set_config('pg_trickle.admits', 'off', true);
        EXCEPTION WHEN insufficient_privilege OR lock_not_available THEN
            NULL;
        END;
    END LOOP;
END $$;

-- Of altered and created objects, those that stream tables rest on, and partitions of sources. DDL never fails because of us:
-- whatever goes wrong here is answered by a wake-up, and the applier compares anyway. Only a refusal that was asked for is raised.
CREATE OR REPLACE FUNCTION pgtrickle._on_ddl_end() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched  oid[];
    readers  text;
BEGIN
    -- The API itself alters sources when it admits them.
    IF current_setting('pg_trickle.admits', true) = 'on' THEN
        RETURN;
    END IF;
    BEGIN
        touched := ARRAY(
            SELECT DISTINCT c.objid FROM pg_event_trigger_ddl_commands() c
            WHERE EXISTS (SELECT FROM pgtrickle.pgt_dependency_objects o WHERE o.object_id = c.objid)
               OR c.classid = 'pg_class'::regclass AND EXISTS (
                   SELECT FROM pg_partition_ancestors(c.objid) a JOIN pgtrickle.pgt_dependencies d ON d.source_relid = a.relid));
        IF tg_tag = 'ALTER SCHEMA' THEN
            touched := ARRAY(
                SELECT o.object_id FROM pgtrickle.pgt_dependency_objects o LEFT JOIN pg_class k ON k.oid = o.object_id
                LEFT JOIN pg_type t ON t.oid = o.object_id LEFT JOIN pg_proc f ON f.oid = o.object_id
                JOIN pg_event_trigger_ddl_commands() c ON c.classid = 'pg_namespace'::regclass
                    AND c.objid IN (k.relnamespace, t.typnamespace, f.pronamespace));
        ELSIF tg_tag IN ('ALTER PUBLICATION', 'DROP PUBLICATION') THEN
            touched := pgtrickle._left_out_sources();
        END IF;
        IF touched = '{}' THEN
            RETURN;
        END IF;
        BEGIN
            PERFORM pgtrickle._complete_leaves(touched);
        EXCEPTION WHEN OTHERS THEN
            -- The news is written all the same.
            NULL;
        END;
        PERFORM pgtrickle._note_ddl(touched, tg_tag);
        readers := pgtrickle._refusing_readers(touched, tg_tag);
    EXCEPTION WHEN OTHERS THEN
        PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        RETURN;
    END;
    IF readers IS NOT NULL THEN
        PERFORM pgtrickle._refuse_source_ddl(readers, tg_tag);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched  oid[];
    readers  text;
BEGIN
    BEGIN
        SELECT array_agg(DISTINCT c.objid) INTO touched FROM pg_event_trigger_dropped_objects() c
        WHERE EXISTS (SELECT FROM pgtrickle.pgt_dependency_objects o WHERE o.object_id = c.objid);
        IF touched IS NULL THEN
            RETURN;
        END IF;
        -- A partition that is gone is known by its root alone.
        PERFORM pgtrickle._note_ddl(touched || ARRAY(
            SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependency_objects o
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) WHERE o.object_id = ANY (touched)), tg_tag);
        readers := pgtrickle._refusing_readers(touched, tg_tag);
    EXCEPTION WHEN OTHERS THEN
        PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        RETURN;
    END;
    IF readers IS NOT NULL THEN
        PERFORM pgtrickle._refuse_source_ddl(readers, tg_tag);
    END IF;
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
