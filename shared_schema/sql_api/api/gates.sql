-- Gates: the readers of a source stay at one position of the log while it is loaded. The row decides; the message only wakes.

CREATE OR REPLACE FUNCTION pgtrickle._source_name(source oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source
$$;

-- Whether a group holds its readers for longer than watermark_holdback_timeout allows.
CREATE OR REPLACE FUNCTION pgtrickle._is_stuck(g pgtrickle.pgt_watermark_groups) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT g.aligned AND t.seconds > 0 AND clock_timestamp() - g.parted_at > make_interval(secs => t.seconds)
    FROM (SELECT coalesce(pgtrickle._setting('watermark_holdback_timeout'), '0')::double precision) t(seconds)
$$;

-- What is said of a group with sources that were dropped: their watermarks never advance. NULL when all are there.
CREATE OR REPLACE FUNCTION pgtrickle._lost_sources(g pgtrickle.pgt_watermark_groups) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('sources of it were dropped (oid %s): drop the group', string_agg(r::text, ', ' ORDER BY r))
    FROM unnest(g.source_relids) r WHERE pgtrickle._source_name(r) IS NULL HAVING count(*) > 0
$$;

-- How long a gate may be closed before the health check says so: a load that takes longer has probably failed.
CREATE OR REPLACE FUNCTION pgtrickle._long_gate() RETURNS interval
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT interval '1 hour' $$;

-- The line of the health check: gates that are closed for long and groups that are stuck are warnings.
CREATE OR REPLACE FUNCTION pgtrickle._gate_health() RETURNS TABLE (severity text, detail text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    late    text;
    closed  text;
BEGIN
    SELECT string_agg(f.text, '; ' ORDER BY f.text) FILTER (WHERE f.is_late),
           string_agg(f.text, '; ' ORDER BY f.text) FILTER (WHERE NOT f.is_late) INTO late, closed
    FROM (
        SELECT format('source %s is gated for %s: SELECT pgtrickle.ungate_source(%L) when its load has ended',
                      pgtrickle._source_name(g.source_relid), date_trunc('second', clock_timestamp() - g.gated_at),
                      pgtrickle._source_name(g.source_relid)),
               clock_timestamp() - g.gated_at > pgtrickle._long_gate()
        FROM pgtrickle.pgt_source_gates g WHERE g.gated AND pgtrickle._source_name(g.source_relid) IS NOT NULL
        UNION ALL
        SELECT format('the watermarks of group %s are not aligned for %s%s: SELECT * FROM pgtrickle.watermark_status()',
                      w.group_name, date_trunc('second', clock_timestamp() - w.parted_at),
                      ', and ' || pgtrickle._lost_sources(w)), pgtrickle._is_stuck(w) OR pgtrickle._lost_sources(w) IS NOT NULL
        FROM pgtrickle.pgt_watermark_groups w WHERE NOT w.aligned
    ) f(text, is_late);
    RETURN QUERY SELECT CASE WHEN late IS NOT NULL THEN 'WARNING' WHEN closed IS NOT NULL THEN 'INFO' ELSE 'OK' END,
                        coalesce(nullif(concat_ws('; ', late, closed), ''), 'no source is gated');
END $$;

-- Returns a captured table that stream tables read. A name without a schema is looked up in the caller's search path.
CREATE OR REPLACE FUNCTION pgtrickle._find_relation(name text, caller_path text) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('search_path', caller_path, true);
    RETURN pg_catalog.to_regclass(name);
END $$;

CREATE OR REPLACE FUNCTION pgtrickle._source(name text, caller_path text) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation oid := pgtrickle._find_relation(name, caller_path);
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'there is no table %', coalesce(name, 'NULL')
            USING HINT = 'Name a table that a stream table reads, as schema.name where it is not in the search_path.',
                  ERRCODE = 'undefined_table';
    ELSIF NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = relation AND d.source_type = 'TABLE') THEN
        RAISE EXCEPTION 'table % is not a captured source of any stream table', name
            USING HINT = CASE WHEN EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = relation)
                         THEN 'It is a stream table: name the tables that it reads, SELECT * FROM pgtrickle.list_sources(name).'
                         WHEN pg_partition_root(relation) <> relation
                         THEN format('It is a partition: name its root %s, whose readers read all of its partitions.',
                                     pgtrickle._source_name(pg_partition_root(relation)))
                         ELSE 'SELECT DISTINCT source_schema, source_name FROM pgtrickle.pgt_dependencies lists the sources.' END,
                  ERRCODE = 'wrong_object_type';
    ELSIF pgtrickle._sources_elsewhere() THEN
        RAISE EXCEPTION 'the sources are in another database; its log position is not known here'
            USING HINT = 'SELECT pgtrickle.pause_stream_table(name) holds a stream table here.', ERRCODE = 'feature_not_supported';
    END IF;
    RETURN relation;
END $$;

-- Until the end of the transaction other sessions see that it may change how far the readers of this source go: its commit
-- is in the log before its rows are visible, and in between the applier shows nothing of the source.
CREATE OR REPLACE FUNCTION pgtrickle._gate_lock_class() RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT 1885828210 $$;

CREATE OR REPLACE FUNCTION pgtrickle._announce_gate(source oid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_advisory_xact_lock_shared(pgtrickle._gate_lock_class(), source::int8::bit(32)::int4)
$$;

CREATE OR REPLACE FUNCTION pgtrickle.gate_source(
    source text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS pg_lsn
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation  oid := pgtrickle._source(source, search_path);
    gate_at   pg_lsn;
BEGIN
    PERFORM pgtrickle._announce_gate(relation);
    -- One that is closed stays where it is: its readers are held there already.
    INSERT INTO pgtrickle.pgt_source_gates AS g (source_relid, gated, gate_lsn)
    VALUES (relation, true, pg_current_wal_insert_lsn())
    ON CONFLICT (source_relid) DO UPDATE
    SET gated = true, gate_lsn = pg_current_wal_insert_lsn(), gated_at = clock_timestamp(), gated_by = current_user,
        ungate_lsn = NULL, ungated_at = NULL
    WHERE NOT g.gated RETURNING g.gate_lsn INTO gate_at;
    IF gate_at IS NULL THEN
        SELECT g.gate_lsn INTO gate_at FROM pgtrickle.pgt_source_gates g WHERE g.source_relid = relation;
    END IF;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'wake');
    RETURN gate_at;
END $$;
COMMENT ON FUNCTION pgtrickle.gate_source IS
    'Hold every stream table that reads the source, directly or through others, at this position until ungate_source; return the position. Changes committed before it are applied, later ones wait.';

CREATE OR REPLACE FUNCTION pgtrickle.ungate_source(
    source text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation oid := pgtrickle._find_relation(source, search_path);
BEGIN
    IF NOT EXISTS (SELECT FROM pgtrickle.pgt_source_gates g WHERE g.source_relid = relation) THEN
        relation := pgtrickle._source(source, search_path);
    END IF;
    UPDATE pgtrickle.pgt_source_gates g
    SET gated = false, ungate_lsn = pg_current_wal_insert_lsn(), ungated_at = clock_timestamp()
    WHERE g.source_relid = relation AND g.gated;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'wake');
    RETURN true;
END $$;
COMMENT ON FUNCTION pgtrickle.ungate_source IS
    'Open the gate of a source: its readers go on, all at once and past this transaction. Return false if there was none.';

-- The gates and watermark groups as the applier reads them; only when _gates_version() is another one. Last the log's end:
-- whatever made these rows visible is before it.
CREATE OR REPLACE FUNCTION pgtrickle._gates()
RETURNS TABLE (kind text, gate text, name text, sources text[], min_sources integer, is_closed boolean, closed_lsn pg_lsn,
               held_lsn pg_lsn, opened_lsn pg_lsn, closed_at timestamptz, detail text, readers_at pg_lsn, log_end pg_lsn)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH all_gates(kind, gate, name, relids, min_sources, is_closed, closed_lsn, opened_lsn, closed_at, detail) AS (
        SELECT 'GATE', g.source_relid::text, pgtrickle._source_name(g.source_relid), ARRAY[g.source_relid], 1, g.gated, g.gate_lsn, g.ungate_lsn,
               g.gated_at, 'gated by ' || g.gated_by
        FROM pgtrickle.pgt_source_gates g WHERE pgtrickle._source_name(g.source_relid) IS NOT NULL
        UNION ALL
        SELECT 'WATERMARK', w.group_name, w.group_name, w.source_relids, 2, NOT w.aligned, w.parted_lsn, w.aligned_lsn, w.parted_at,
               (SELECT string_agg(pgtrickle._source_name(r) || ' at ' || coalesce(m.watermark::text, 'none'), ', ' ORDER BY r)
                FROM unnest(w.source_relids) r LEFT JOIN pgtrickle.pgt_watermarks m ON m.source_relid = r)
        FROM pgtrickle.pgt_watermark_groups w WHERE w.parted_lsn IS NOT NULL
    ),
    readers(pgt_id, relid) AS (SELECT s.pgt_id, b.source_relid FROM pgtrickle.pgt_stream_tables s, pgtrickle._base_sources(s.pgt_id) b)
    SELECT g.kind, g.gate, g.name,
           -- Under every name by which a plan may know it: a table that was renamed has two for a while.
           ARRAY(SELECT jsonb_build_array(d.source_schema, d.source_name)::text FROM pgtrickle.pgt_dependencies d
                 WHERE d.source_relid = ANY (g.relids)
                 UNION SELECT jsonb_build_array(n.nspname, c.relname)::text FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (g.relids)),
           g.min_sources, g.is_closed, g.closed_lsn, p.held_lsn, g.opened_lsn, g.closed_at, g.detail,
           (SELECT max(f.frontier) FROM pgtrickle.pgt_frontiers f
            WHERE (SELECT count(*) FROM readers r WHERE r.pgt_id = f.pgt_id AND r.relid = ANY (g.relids)) >= g.min_sources),
           pg_current_wal_insert_lsn()
    FROM all_gates g LEFT JOIN pgtrickle.pgt_held_positions p USING (kind, gate, closed_lsn) ORDER BY 1, 2
$$;

-- Changes with every gate and group that is closed or opened, with the names of their sources, and with the watermarks of a
-- group that has parted; NULL while there are none.
CREATE OR REPLACE FUNCTION pgtrickle._gates_version() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT md5(string_agg(v.line, '|' ORDER BY v.line)) FROM (
        SELECT concat_ws(' ', g.source_relid, pgtrickle._source_name(g.source_relid), g.gated, g.gate_lsn, g.ungate_lsn) FROM pgtrickle.pgt_source_gates g
        UNION ALL
        SELECT concat_ws(' ', quote_literal(w.group_name), w.source_relids, w.aligned, w.parted_lsn, w.aligned_lsn,
                         (SELECT string_agg(pgtrickle._source_name(r), ' ') FROM unnest(w.source_relids) r),
                         CASE WHEN NOT w.aligned THEN (SELECT string_agg(extract(epoch FROM m.watermark)::text, ' ' ORDER BY m.source_relid)
                                                       FROM pgtrickle.pgt_watermarks m WHERE m.source_relid = ANY (w.source_relids)) END)
        FROM pgtrickle.pgt_watermark_groups w WHERE w.parted_lsn IS NOT NULL) v(line)
$$;

-- Where a gate or a group holds its readers: where it was closed, or a little later, once the applier has seen it.
CREATE OR REPLACE FUNCTION pgtrickle._held_lsn(kind text, gate text, closed_lsn pg_lsn) RETURNS pg_lsn
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT p.held_lsn FROM pgtrickle.pgt_held_positions p
                     WHERE (p.kind, p.gate, p.closed_lsn) = (_held_lsn.kind, _held_lsn.gate, _held_lsn.closed_lsn)), closed_lsn)
$$;

-- What holds a stream table now; no row if nothing does. The lowest position counts.
CREATE OR REPLACE FUNCTION pgtrickle._held_by(stream_table bigint)
RETURNS TABLE (kind text, name text, held_lsn pg_lsn, since timestamptz, reason text, remedy text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pgtrickle.pgt_source_gates g WHERE g.gated)
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_watermark_groups w WHERE NOT w.aligned)
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s
                       WHERE s.fuse_blown_at IS NOT NULL) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH base AS (SELECT b.source_relid FROM pgtrickle._base_sources(stream_table) b)
    SELECT 'GATE', pgtrickle._source_name(g.source_relid),
           pgtrickle._held_lsn('GATE', g.source_relid::text, g.gate_lsn), g.gated_at,
           format('source %s is gated since %s', pgtrickle._source_name(g.source_relid), date_trunc('second', g.gated_at)),
           format('SELECT pgtrickle.ungate_source(%L)', pgtrickle._source_name(g.source_relid))
    FROM pgtrickle.pgt_source_gates g JOIN base b USING (source_relid)
    WHERE g.gated AND pgtrickle._source_name(g.source_relid) IS NOT NULL
    UNION ALL
    SELECT 'WATERMARK', w.group_name, pgtrickle._held_lsn('WATERMARK', w.group_name, w.parted_lsn), w.parted_at,
           format('the watermarks of group %s are not aligned since %s', w.group_name, date_trunc('second', w.parted_at))
           || coalesce(', and ' || pgtrickle._lost_sources(w), ''),
           format('SELECT pgtrickle.advance_watermark(source, …) for the sources that are behind, see SELECT * FROM pgtrickle.watermark_status(); or SELECT pgtrickle.drop_watermark_group(%L)', w.group_name)
    FROM pgtrickle.pgt_watermark_groups w
    WHERE NOT w.aligned AND (SELECT count(*) FROM base b WHERE b.source_relid = ANY (w.source_relids)) >= 2
    UNION ALL
    -- It does not advance at all, also not to be filled.
    SELECT 'FUSE', f.held_by, coalesce(r.frontier, '0/0'), f.held_since,
           format('the fuse is blown of %s, which it reads, since %s', f.held_by, date_trunc('second', f.held_since)),
           'SELECT * FROM pgtrickle.fuse_status() shows why; then SELECT pgtrickle.reset_fuse(…) of what it reads'
    FROM pgtrickle._fuse_states f LEFT JOIN pgtrickle.pgt_frontiers r USING (pgt_id)
    WHERE f.pgt_id = stream_table AND f.held_by IS NOT NULL
    ORDER BY 3, 1, 2;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.source_gates()
RETURNS TABLE (source text, gated boolean, gated_at timestamptz, gated_by text, gate_lsn pg_lsn, ungated_at timestamptz,
               held_stream_tables text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._source_name(g.source_relid), g.gated, g.gated_at, g.gated_by, g.gate_lsn, g.ungated_at,
           CASE WHEN g.gated THEN ARRAY(
               SELECT format('%I.%I', s.pgt_schema, s.pgt_name) FROM pgtrickle._readers_of(g.source_relid) r
               JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) ORDER BY 1) ELSE '{}' END
    FROM pgtrickle.pgt_source_gates g WHERE pgtrickle._source_name(g.source_relid) IS NOT NULL ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.source_gates IS 'List every source that is gated or was, since when, by whom, and which stream tables it holds.';

CREATE OR REPLACE FUNCTION pgtrickle.bootstrap_gate_status()
RETURNS TABLE (source text, gated boolean, gate_age interval, stream_table text, status text, is_populated boolean,
               frontier pg_lsn, at_gate boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._source_name(g.source_relid), g.gated,
           CASE WHEN g.gated THEN clock_timestamp() - g.gated_at ELSE g.ungated_at - g.gated_at END,
           format('%I.%I', s.pgt_schema, s.pgt_name), s.status, f.pgt_id IS NOT NULL, f.frontier,
           g.gated AND f.frontier IS NOT NULL AND f.frontier >= pgtrickle._held_lsn('GATE', g.source_relid::text, g.gate_lsn)
    FROM pgtrickle.pgt_source_gates g CROSS JOIN LATERAL pgtrickle._readers_of(g.source_relid) r
    JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id) ORDER BY 1, 4
$$;
COMMENT ON FUNCTION pgtrickle.bootstrap_gate_status IS
    'Show per gate and stream table that reads it whether it is filled and has reached the gate''s position: then a load may begin or end.';
