-- How fresh a stream table is to be (SLA), and its tier: how many intervals of its schedule lie between two refreshes.

CREATE OR REPLACE FUNCTION pgtrickle._sla_ms(sla interval) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT isfinite(sla) OR sla < interval '1 millisecond' OR sla > interval '10 years' THEN
        RAISE EXCEPTION 'sla % is out of bounds', sla
            USING HINT = 'It is the greatest age of the rows: from 1 millisecond to 10 years, such as interval ''30 s''.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN (extract(epoch FROM sla) * 1000)::bigint;
END $$;

-- As in applier/refresh/timing/tiers.py.
CREATE OR REPLACE FUNCTION pgtrickle._tier_of_sla(sla_ms bigint) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN sla_ms IS NULL OR sla_ms <= 5000 THEN 'hot' WHEN sla_ms <= 30000 THEN 'warm' ELSE 'cold' END
$$;

-- NULL leaves both unchanged. An SLA chooses the tier, unless one is given with it.
CREATE OR REPLACE FUNCTION pgtrickle._set_sla(name text, sla interval, tier text, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st      pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
    new_ms  bigint := pgtrickle._sla_ms(sla);
BEGIN
    IF lower(tier) NOT IN ('hot', 'warm', 'cold', 'frozen') THEN
        RAISE EXCEPTION 'tier % is not known', quote_literal(tier)
            USING HINT = 'Use hot, warm, cold or frozen.', ERRCODE = 'invalid_parameter_value';
    ELSIF num_nulls(sla, tier) < 2 THEN
        PERFORM pgtrickle._promise(st.pgt_id, coalesce(new_ms, st.freshness_deadline_ms),
                                   coalesce(lower(tier), pgtrickle._tier_of_sla(new_ms)), tier IS NOT NULL);
    END IF;
END $$;

-- What was assigned for another promise no longer counts; the same promise once more changes nothing.
CREATE OR REPLACE FUNCTION pgtrickle._promise(stream_table bigint, sla_ms bigint, tier text, by_hand boolean) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgtrickle.pgt_stream_tables s
    SET freshness_deadline_ms = sla_ms, refresh_tier = tier, tier_by_hand = by_hand, pace_version = s.pace_version + 1
    WHERE s.pgt_id = stream_table
      AND (s.freshness_deadline_ms, s.refresh_tier, s.tier_by_hand) IS DISTINCT FROM (sla_ms, tier, by_hand)
$$;

CREATE OR REPLACE FUNCTION pgtrickle.set_stream_table_sla(
    name text, sla interval, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st  pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
BEGIN
    IF sla IS NOT NULL THEN
        PERFORM pgtrickle.alter_stream_table(name, sla => sla, search_path => search_path);
    ELSIF NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = st.pgt_relid), 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of stream table %', name USING ERRCODE = 'insufficient_privilege';
    ELSE
        PERFORM pgtrickle._promise(st.pgt_id, NULL, CASE WHEN st.tier_by_hand THEN st.refresh_tier ELSE 'hot' END,
                                   st.tier_by_hand);
    END IF;
    RETURN (SELECT t.tier FROM pgtrickle._tiers t WHERE t.pgt_id = st.pgt_id);
END $$;
COMMENT ON FUNCTION pgtrickle.set_stream_table_sla IS
    'Promise that rows are at most so old, and return the tier that follows: hot up to 5 s, warm up to 30 s, else cold; where this was promised already, the one assigned for it. NULL promises nothing.';

-- One refresh of a hundred may break the SLA: that is the error budget. Each is judged by the SLA of its time. What rows are
-- waited for that are too old by now counts as one more: a stream table that rests has no refresh that would say so.
CREATE OR REPLACE FUNCTION pgtrickle.sla_summary()
RETURNS TABLE (name text, sla interval, tier text, refreshes bigint, p50_ms double precision, p99_ms double precision,
               breaches bigint, error_budget double precision, is_broken boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', s.pgt_schema, s.pgt_name), t.sla, t.tier, h.refreshes, h.p50_ms, h.p99_ms,
           h.breaches + late.refreshes,
           CASE WHEN h.refreshes + late.refreshes = 0 THEN 1.0
                ELSE greatest(0.0, 1 - (h.breaches + late.refreshes) / (0.01 * (h.refreshes + late.refreshes))) END,
           late.refreshes > 0
    FROM pgtrickle.pgt_stream_tables s
    JOIN pgtrickle._tiers t USING (pgt_id)
    LEFT JOIN pgtrickle._freshness f USING (pgt_id)
    CROSS JOIN LATERAL (SELECT CASE WHEN f.staleness > t.sla THEN 1 ELSE 0 END AS refreshes) late
    CROSS JOIN LATERAL (
        SELECT count(*) AS refreshes, count(*) FILTER (WHERE r.freshness_ms > r.sla_ms) AS breaches,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY r.freshness_ms) AS p50_ms,
               percentile_cont(0.99) WITHIN GROUP (ORDER BY r.freshness_ms) AS p99_ms
        FROM pgtrickle.pgt_refresh_history r
        WHERE r.pgt_id = s.pgt_id AND r.freshness_ms IS NOT NULL AND r.sla_ms IS NOT NULL AND r.status = 'COMPLETED'
          AND r.start_time >= now() - make_interval(hours => pgtrickle._setting('sla_window_hours')::int)) h
    WHERE s.freshness_deadline_ms IS NOT NULL AND s.replaces IS NULL
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.sla_summary IS
    'For each stream table with an SLA: how old its rows became within sla_window_hours, how often that broke the SLA of that time, and the share of the error budget (1 of 100 refreshes) that is left. Rows that are too old now count as one breach more. p50 and p99 are NULL where nothing was refreshed.';
