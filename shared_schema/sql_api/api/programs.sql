-- The state of the two programs as the database sees it, and the changes that wait between them.

CREATE OR REPLACE FUNCTION pgtrickle.worker_pool_status()
RETURNS TABLE (program text, running boolean, connections bigint, max_workers integer, in_service bigint, waiting bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH programs(program, max_workers, in_service, waiting) AS (
        SELECT 'pg-trickle-applier', pgtrickle._setting('max_parallel_workers')::integer,
               count(*) FILTER (WHERE s.status = 'ACTIVE'), count(*) FILTER (WHERE s.status = 'INITIALIZING')
        FROM pgtrickle.pgt_stream_tables s
        UNION ALL
        SELECT 'pg-trickle-cdc', pgtrickle._setting('copy_connections')::integer, NULL, NULL
    )
    SELECT p.program, pgtrickle._is_running(p.program),
           (SELECT count(*) FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.application_name = p.program),
           p.max_workers, p.in_service, p.waiting
    FROM programs p
$$;
COMMENT ON FUNCTION pgtrickle.worker_pool_status IS
    'Show whether both programs run, their connections, how many workers each may use, and how many stream tables are in service or wait.';

-- In mode log the changes wait in the log and in Kafka. In the other modes they wait in a table, here or in another database.
CREATE OR REPLACE FUNCTION pgtrickle.change_buffer_sizes()
RETURNS TABLE (source text, source_oid oid, cdc_mode text, log_bytes numeric, buffer_rows bigint, buffer_bytes bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', s.source_schema, s.source_name), s.source_relid,
           CASE WHEN b.oid IS NULL THEN 'LOG' ELSE 'BUFFER' END,
           pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn),
           CASE WHEN b.oid IS NOT NULL THEN greatest(b.reltuples, 0)::bigint END, pg_total_relation_size(b.oid)
    FROM (SELECT DISTINCT d.source_relid, d.source_schema, d.source_name FROM pgtrickle.pgt_dependencies d
          WHERE d.source_type = 'TABLE') s
    LEFT JOIN pg_class b ON b.relname = 'changes_' || s.source_relid
        AND b.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'pgtrickle_changes')
    LEFT JOIN pg_replication_slots r ON r.slot_name = pgtrickle._setting('slot') AND r.database = current_database()
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.change_buffer_sizes IS
    'Show the size of the log that is not yet acknowledged, and of each source''s change-buffer table in the modes that have one.';

-- The consumer captures a new source by itself. While it copies, it holds a lock on the table, which other sessions can see.
CREATE OR REPLACE FUNCTION pgtrickle.capture_status()
RETURNS TABLE (source text, state text, copying_connections bigint, rows_in_hand bigint, size_bytes bigint,
               waiting text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH sources AS (
        SELECT b.source_relid, format('%I.%I', b.source_schema, b.source_name) AS source,
               array_agg(format('%I.%I', s.pgt_schema, s.pgt_name) ORDER BY s.pgt_id)
                   FILTER (WHERE s.status = 'INITIALIZING') AS waiting,
               bool_or(f.pgt_id IS NOT NULL) AS in_use
        FROM pgtrickle.pgt_stream_tables s
        LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)
        CROSS JOIN LATERAL pgtrickle._base_sources(s.pgt_id) b
        GROUP BY 1, 2
    ),
    parts AS (
        SELECT s.source_relid, coalesce(t.relid, s.source_relid) AS relid
        FROM sources s LEFT JOIN LATERAL pg_partition_tree(s.source_relid) t ON t.isleaf
    ),
    copying AS (
        SELECT p.source_relid, count(DISTINCT l.pid) AS connections, sum(c.tuples_processed)::bigint AS rows_in_hand
        FROM parts p
        JOIN pg_locks l ON l.relation = p.relid AND l.mode = 'AccessShareLock' AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        JOIN pg_stat_activity a ON a.pid = l.pid AND a.application_name = 'pg-trickle-cdc'
        LEFT JOIN pg_stat_progress_copy c ON c.pid = l.pid
        GROUP BY 1
    )
    SELECT s.source,
           CASE WHEN c.connections IS NOT NULL THEN 'copying' WHEN s.in_use THEN 'captured' ELSE 'waiting' END,
           coalesce(c.connections, 0), c.rows_in_hand,
           (SELECT sum(pg_relation_size(p.relid))::bigint FROM parts p WHERE p.source_relid = s.source_relid), s.waiting
    FROM sources s LEFT JOIN copying c USING (source_relid)
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.capture_status IS
    'Show the state of each source: waiting, copying or captured, and which stream tables wait for it.';

CREATE OR REPLACE FUNCTION pgtrickle.admit_partitions(root regclass) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    altered integer;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = root AND c.relkind = 'p') THEN
        RAISE EXCEPTION '% is not a partitioned table', root
            USING HINT = 'Give the root of its partitions.', ERRCODE = 'wrong_object_type';
    END IF;
    altered := pgtrickle._admit_leaves(root);
    -- The consumer looks at the partitions at once.
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'capture');
    RETURN altered;
END $$;
COMMENT ON FUNCTION pgtrickle.admit_partitions IS
    'Give later partitions of a source the replica identity that the stream needs, and let the consumer look at them at once; return how many were altered.';
