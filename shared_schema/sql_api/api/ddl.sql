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

-- Writes the whole partition trees of altered sources to the log, for the consumer. The message counts at its commit, when
-- other sessions may have changed the trees: the consumer looks again at what it does not know. Returns the position.
CREATE OR REPLACE FUNCTION pgtrickle._announce(relids oid[], tag text DEFAULT 'comparison') RETURNS pg_lsn
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle._emit_signed('ddl', jsonb_build_object(
        'tag', tag, 'relids', to_jsonb(relids::int8[]), 'roots', pgtrickle._trees_above(relids))::text, true);
END $$;
REVOKE ALL ON FUNCTION pgtrickle._announce(oid[], text) FROM PUBLIC;

-- Writes to the log what the DDL of this transaction did to partitions of sources: which leaves joined, and which tables are
-- no partitions. Never what it only saw: another session may attach a partition and commit before this one does.
-- `dropped` are tables that do not exist any more.
CREATE OR REPLACE FUNCTION pgtrickle._announce_ddl(touched oid[], tag text, dropped oid[] DEFAULT '{}') RETURNS pg_lsn
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    roots  jsonb := '{}';
    gone   oid[] := dropped;
BEGIN
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY (touched) AND c.relkind = 'p') THEN
        -- DETACH names the table above alone. The row of what it detached was written by this transaction, so no other one
        -- can attach it before the commit.
        gone := gone || ARRAY(SELECT c.oid FROM pg_class c WHERE age(c.xmin) BETWEEN -(1 << 24) AND 0
                              AND NOT c.relispartition AND c.relkind IN ('r', 'f'));
        IF EXISTS (SELECT FROM pg_class c
                   WHERE age(c.xmin) BETWEEN -(1 << 24) AND 0 AND NOT c.relispartition AND c.relkind = 'p'
                   AND NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = c.oid)) THEN
            -- What is below it may be changed by others.
            roots := pgtrickle._trees_above(touched);
        END IF;
    END IF;
    RETURN pgtrickle._emit_signed('ddl', jsonb_build_object(
        'tag', tag, 'relids', to_jsonb(touched::int8[]), 'joined', pgtrickle._joined_leaves(touched),
        'gone', to_jsonb(gone::int8[]), 'roots', roots)::text, true);
END $$;
REVOKE ALL ON FUNCTION pgtrickle._announce_ddl(oid[], text, oid[]) FROM PUBLIC;

-- What the event triggers call (event_triggers.sql), where a superuser made them. The comparison of the applier notices
-- everything without them; with them a change is in the log at its exact position, and new partitions of sources get the replica identity they need
-- in the transaction that makes them.

-- Writes the news of DDL to the log, and keeps who did it: the error of a stream table that cannot follow names it.
-- `dropped` are tables that do not exist any more, `roots` what they were partitions of.
CREATE OR REPLACE FUNCTION pgtrickle._note_ddl(touched oid[], tag text, dropped oid[] DEFAULT '{}', roots oid[] DEFAULT '{}')
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    position pg_lsn := pgtrickle._announce_ddl(touched, tag, dropped);
BEGIN
    IF touched <> '{}' AND tag NOT IN ('GRANT', 'REVOKE', 'COMMENT') THEN
        -- Event triggers run as the owner of the catalog; the role that altered is the one of the session.
        INSERT INTO pgtrickle.pgt_source_ddl (objects, at, tag, role_name)
        VALUES (touched || roots, position, _note_ddl.tag, coalesce(nullif(current_setting('role'), 'none'), session_user));
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

-- Gives altered tables and new partitions of sources complete old rows in the log. A table that is locked, or is not ours to
-- alter, is left as it is: the health check names it.
CREATE OR REPLACE FUNCTION pgtrickle._complete_leaves(touched oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN
        -- Not pg_partition_tree(): two sessions that alter two partitions would wait for each other. Where partitions were
        -- attached, the others are as before.
        WITH RECURSIVE attached AS MATERIALIZED (
            SELECT i.inhparent, i.inhrelid FROM pg_inherits i WHERE i.inhparent = ANY (touched) AND age(i.xmin) BETWEEN -(1 << 24) AND 0
        ), tree(relid) AS (
            (SELECT u.oid FROM unnest(touched) AS u (oid) WHERE u.oid NOT IN (SELECT a.inhparent FROM attached a)
             UNION ALL
             SELECT a.inhrelid FROM attached a)
          UNION
            SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
        )
        SELECT t.relid FROM tree t JOIN pg_class c ON c.oid = t.relid AND c.relkind = 'r'
        WHERE EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_type = 'TABLE' AND (
            d.source_relid = t.relid OR d.source_relid IN (SELECT a.relid FROM pg_partition_ancestors(t.relid) a)))
    LOOP
        CONTINUE WHEN pgtrickle._has_row_identity(leaf);
        BEGIN
            PERFORM pgtrickle._mark_own_ddl(true);
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', leaf);
            PERFORM pgtrickle._mark_own_ddl(false);
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
END $$;

-- Of altered and created objects, those that stream tables rest on, and partitions of sources. DDL never fails because of us:
-- whatever goes wrong here is answered by a wake-up, and the applier compares anyway. Only a refusal that was asked for is raised.
CREATE OR REPLACE FUNCTION pgtrickle._ddl_ended(tg_tag text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched  oid[];
    readers  text;
BEGIN
    -- The API itself alters sources when it admits them.
    IF pgtrickle._is_own_ddl() THEN
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
        PERFORM pgtrickle._note_ddl(touched, tg_tag);
        BEGIN
            PERFORM pgtrickle._complete_leaves(touched);
        EXCEPTION WHEN OTHERS THEN
            -- The message stays. A partition of another role, or one that is locked: health_check() asks for admit_partitions().
            PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        END;
        readers := pgtrickle._refusing_readers(touched, tg_tag);
    EXCEPTION WHEN OTHERS THEN
        PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        RETURN;
    END;
    IF readers IS NOT NULL THEN
        PERFORM pgtrickle._refuse_source_ddl(readers, tg_tag);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._dropped(tg_tag text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched  oid[];
    tables   oid[];
    readers  text;
BEGIN
    BEGIN
        SELECT coalesce(array_agg(DISTINCT c.objid) FILTER (WHERE EXISTS (
                   SELECT FROM pgtrickle.pgt_dependency_objects o WHERE o.object_id = c.objid)), '{}'),
               -- Nobody can say any more of what a table was a partition.
               coalesce(array_agg(DISTINCT c.objid) FILTER (
                   WHERE c.object_type IN ('table', 'foreign table') AND NOT c.is_temporary), '{}')
        INTO touched, tables FROM pg_event_trigger_dropped_objects() c;
        IF touched = '{}' AND (tables = '{}' OR NOT EXISTS (
            SELECT FROM pgtrickle.pgt_dependencies d JOIN pg_class c ON c.oid = d.source_relid AND c.relkind = 'p')) THEN
            RETURN;
        END IF;
        -- A partition that is gone is known by its root alone.
        PERFORM pgtrickle._note_ddl(touched, tg_tag, tables, ARRAY(
            SELECT DISTINCT d.source_relid FROM pgtrickle.pgt_dependency_objects o
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) WHERE o.object_id = ANY (touched)));
        readers := pgtrickle._refusing_readers(touched, tg_tag);
    EXCEPTION WHEN OTHERS THEN
        PERFORM pg_logical_emit_message(false, 'pg_trickle', 'wake');
        RETURN;
    END;
    IF readers IS NOT NULL THEN
        PERFORM pgtrickle._refuse_source_ddl(readers, tg_tag);
    END IF;
END $$;

REVOKE ALL ON FUNCTION pgtrickle._ddl_ended(text), pgtrickle._dropped(text) FROM PUBLIC;
