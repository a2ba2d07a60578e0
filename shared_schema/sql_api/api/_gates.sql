-- What gates, watermarks and the health check all ask.

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
        SELECT format('the watermarks of group %s are not aligned for %s: SELECT * FROM pgtrickle.watermark_status()',
                      w.group_name, date_trunc('second', clock_timestamp() - w.parted_at)), pgtrickle._is_stuck(w)
        FROM pgtrickle.pgt_watermark_groups w WHERE NOT w.aligned
    ) f(text, is_late);
    RETURN QUERY SELECT CASE WHEN late IS NOT NULL THEN 'WARNING' WHEN closed IS NOT NULL THEN 'INFO' ELSE 'OK' END,
                        coalesce(nullif(concat_ws('; ', late, closed), ''), 'no source is gated');
END $$;
