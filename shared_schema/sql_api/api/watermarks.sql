-- Watermarks: external loaders say how far they have got; stream tables that read several sources of a group wait until
-- they agree.

-- Whether the watermarks of some sources agree. While none has one, the group is not in use; a source without one does not agree
-- with one that has.
CREATE OR REPLACE FUNCTION pgtrickle._are_aligned(sources oid[], tolerance double precision) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE count(w.source_relid) WHEN 0 THEN true WHEN count(*) THEN
               date_part('epoch', max(w.watermark) - min(w.watermark)) <= tolerance ELSE false END
    FROM unnest(sources) s LEFT JOIN pgtrickle.pgt_watermarks w ON w.source_relid = s
$$;

-- Watermarks are compared with those that others have committed meanwhile, which only READ COMMITTED sees.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_old_snapshot(what text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION '% is not possible in a % transaction: it does not see the watermarks of others',
            what, current_setting('transaction_isolation')
            USING HINT = 'Call it in a READ COMMITTED transaction; a load that needs another level is followed by one.',
                  ERRCODE = 'feature_not_supported';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.advance_watermark(
    source text, watermark timestamptz, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation  oid := pgtrickle._source(source, search_path);
    old       timestamptz;
    log_end   pg_lsn;
BEGIN
    IF watermark IS NULL OR NOT isfinite(watermark) THEN
        RAISE EXCEPTION 'a watermark cannot be %', coalesce(watermark::text, 'NULL')
            USING HINT = 'Pass the time up to which the source is loaded.', ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pgtrickle._refuse_old_snapshot('advance_watermark');
    PERFORM pgtrickle._announce_gate(relation);
    INSERT INTO pgtrickle.pgt_watermarks AS w (source_relid, watermark, wal_lsn)
    VALUES (relation, advance_watermark.watermark, pg_current_wal_insert_lsn())
    ON CONFLICT (source_relid) DO UPDATE
    SET watermark = excluded.watermark, advanced_at = clock_timestamp(), advanced_by = current_user, wal_lsn = excluded.wal_lsn
    WHERE w.watermark <= excluded.watermark;
    IF NOT FOUND THEN
        SELECT w.watermark INTO old FROM pgtrickle.pgt_watermarks w WHERE w.source_relid = relation;
        RAISE EXCEPTION 'the watermark of % cannot go back from % to %', source, old, watermark
            USING HINT = 'A watermark only advances; SELECT * FROM pgtrickle.watermarks() shows it.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Sources of one group advance one after the other: each sees what the others have reached.
    PERFORM FROM pgtrickle.pgt_watermark_groups g WHERE relation = ANY (g.source_relids) ORDER BY g.group_name FOR UPDATE;
    -- Only now: no reader that was held while we waited is beyond it.
    log_end := pg_current_wal_insert_lsn();
    -- The position of a group that has parted stays: its readers are held there.
    UPDATE pgtrickle.pgt_watermark_groups g
    SET aligned = now_is.aligned,
        parted_lsn = CASE WHEN now_is.aligned THEN g.parted_lsn ELSE log_end END,
        parted_at = CASE WHEN now_is.aligned THEN g.parted_at ELSE clock_timestamp() END,
        aligned_lsn = CASE WHEN now_is.aligned THEN log_end ELSE g.aligned_lsn END
    FROM (SELECT n.group_name, pgtrickle._are_aligned(n.source_relids, n.tolerance_secs) AS aligned
          FROM pgtrickle.pgt_watermark_groups n WHERE relation = ANY (n.source_relids)) now_is
    WHERE now_is.group_name = g.group_name AND now_is.aligned <> g.aligned;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'wake');
END $$;
COMMENT ON FUNCTION pgtrickle.advance_watermark IS
    'Say that a source is loaded up to this time, best in the transaction that loads it. A watermark never goes back.';

CREATE OR REPLACE FUNCTION pgtrickle.create_watermark_group(
    name text, sources text[], tolerance_secs double precision DEFAULT 0,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relations  oid[] := ARRAY(SELECT DISTINCT pgtrickle._source(s, search_path) FROM unnest(sources) s);
    aligned    boolean;
    log_end    pg_lsn := pg_current_wal_insert_lsn();
BEGIN
    IF coalesce(btrim(name), '') = '' THEN
        RAISE EXCEPTION 'a watermark group needs a name'
            USING HINT = 'Give a name that is not blank.', ERRCODE = 'invalid_parameter_value';
    ELSIF cardinality(relations) < 2 THEN
        RAISE EXCEPTION 'watermark group % needs at least two different sources', name
            USING HINT = 'Pass their names: ARRAY[''orders'', ''order_lines''].', ERRCODE = 'invalid_parameter_value';
    ELSIF tolerance_secs IS NULL OR NOT (tolerance_secs >= 0 AND tolerance_secs < 'Infinity') THEN
        RAISE EXCEPTION 'tolerance_secs % is out of bounds', coalesce(tolerance_secs::text, 'NULL')
            USING HINT = 'It is a number of seconds, 0 or more.', ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pgtrickle._refuse_old_snapshot('create_watermark_group');
    -- No watermark advances between this comparison and the commit.
    LOCK TABLE pgtrickle.pgt_watermarks IN SHARE ROW EXCLUSIVE MODE;
    aligned := pgtrickle._are_aligned(relations, tolerance_secs);
    INSERT INTO pgtrickle.pgt_watermark_groups (group_name, source_relids, tolerance_secs, aligned, parted_lsn, parted_at)
    VALUES (name, relations, create_watermark_group.tolerance_secs, aligned,
            CASE WHEN NOT aligned THEN log_end END, CASE WHEN NOT aligned THEN clock_timestamp() END)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'watermark group % exists already', name
            USING HINT = 'SELECT * FROM pgtrickle.watermark_groups() lists them.', ERRCODE = 'duplicate_object';
    END IF;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'wake');
END $$;
COMMENT ON FUNCTION pgtrickle.create_watermark_group IS
    'Hold stream tables that read two or more of these sources while their watermarks differ by more than the tolerance.';

CREATE OR REPLACE FUNCTION pgtrickle.drop_watermark_group(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgtrickle.pgt_watermark_groups g WHERE g.group_name = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no watermark group %', coalesce(name, 'NULL')
            USING HINT = 'SELECT * FROM pgtrickle.watermark_groups() lists them.', ERRCODE = 'undefined_object';
    END IF;
    PERFORM pg_logical_emit_message(true, 'pg_trickle', 'wake');
END $$;
COMMENT ON FUNCTION pgtrickle.drop_watermark_group IS 'Remove a watermark group: what it held goes on.';

CREATE OR REPLACE FUNCTION pgtrickle.watermarks()
RETURNS TABLE (source text, watermark timestamptz, advanced_at timestamptz, advanced_by text, wal_lsn pg_lsn)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._source_name(w.source_relid), w.watermark, w.advanced_at, w.advanced_by, w.wal_lsn
    FROM pgtrickle.pgt_watermarks w WHERE pgtrickle._source_name(w.source_relid) IS NOT NULL ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.watermarks IS 'List how far each source is loaded, as its loader said.';

CREATE OR REPLACE FUNCTION pgtrickle.watermark_groups()
RETURNS TABLE (group_name text, sources text[], tolerance_secs double precision, created_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.group_name, ARRAY(SELECT coalesce(pgtrickle._source_name(r), 'dropped table ' || r) FROM unnest(g.source_relids) r ORDER BY 1),
           g.tolerance_secs, g.created_at
    FROM pgtrickle.pgt_watermark_groups g ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.watermark_groups IS 'List the watermark groups with their sources and tolerances.';

CREATE OR REPLACE FUNCTION pgtrickle.watermark_status()
RETURNS TABLE (group_name text, min_watermark timestamptz, max_watermark timestamptz, lag_secs double precision,
               aligned boolean, sources_with_watermark bigint, sources_total integer, waits_for text[],
               held_since timestamptz, stuck boolean, held_stream_tables text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.group_name, m.low, m.high, date_part('epoch', m.high - m.low), g.aligned, m.counted,
           cardinality(g.source_relids),
           CASE WHEN g.aligned THEN '{}' ELSE ARRAY(
               SELECT coalesce(pgtrickle._source_name(r), 'dropped table ' || r) FROM unnest(g.source_relids) r
               LEFT JOIN pgtrickle.pgt_watermarks w ON w.source_relid = r
               WHERE w.watermark IS NULL OR date_part('epoch', m.high - w.watermark) > g.tolerance_secs ORDER BY 1) END,
           CASE WHEN NOT g.aligned THEN g.parted_at END, pgtrickle._is_stuck(g),
           CASE WHEN g.aligned THEN '{}' ELSE ARRAY(
               SELECT format('%I.%I', s.pgt_schema, s.pgt_name) FROM pgtrickle.pgt_stream_tables s
               WHERE (SELECT count(*) FROM pgtrickle._base_sources(s.pgt_id) b WHERE b.source_relid = ANY (g.source_relids)) >= 2
               ORDER BY 1) END
    FROM pgtrickle.pgt_watermark_groups g, LATERAL (
        SELECT min(w.watermark) AS low, max(w.watermark) AS high, count(*) AS counted
        FROM pgtrickle.pgt_watermarks w WHERE w.source_relid = ANY (g.source_relids)) m
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.watermark_status IS
    'Show per group whether its watermarks are aligned, which sources it waits for, and which stream tables it holds.';
