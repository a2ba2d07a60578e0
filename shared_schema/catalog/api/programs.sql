-- The two programs as the database sees them, and what waits between them.

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
    SELECT p.program, pgtrickle._runs(p.program),
           (SELECT count(*) FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.application_name = p.program),
           p.max_workers, p.in_service, p.waiting
    FROM programs p
$$;
COMMENT ON FUNCTION pgtrickle.worker_pool_status IS
    'Whether both programs run, their connections here, how many workers each may use, and what is served or waits.';

-- In mode log the changes wait in the log and in Kafka; in the other modes in a table here or in another database.
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
    'What of each source is still unconfirmed in the log, and how large its change-buffer table is in modes that have one.';
