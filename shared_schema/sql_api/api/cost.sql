-- What refreshes cost by the history, and what follows from it: applier/refresh/method/cost_model.py predicts from the same rows.

-- Whether a full refresh was the first one of another query or of other rows: nothing that was measured before counts. As in
-- applier/refresh/method/strategy.py.
CREATE OR REPLACE FUNCTION pgtrickle._is_new_content(refresh_reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT refresh_reason IN ('INITIAL', 'DEFINITION_CHANGED', 'REINITIALIZE', 'AUTO_SCHEMA_EVOLUTION')
$$;

-- The refreshes of a stream table that a prediction may rest on, since its query or all of its rows were new: the newest
-- differential ones of the window with their change rows, of each size (power of two) 50, so that the many small ones leave
-- room for the few large ones; and the last full ones with the rows of the sources. A repair computes the delta as well.
CREATE OR REPLACE FUNCTION pgtrickle._measured_costs(stream_table bigint, prediction_window interval)
RETURNS TABLE (at timestamptz, is_full boolean, row_count bigint, compute_ms double precision, write_ms double precision)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH since AS (
        SELECT coalesce(max(h.refresh_id), 0) AS refresh_id FROM pgtrickle.pgt_refresh_history h
        WHERE h.pgt_id = stream_table AND h.action = 'FULL' AND NOT h.of_replaced AND h.status = 'COMPLETED'
          AND pgtrickle._is_new_content(h.refresh_reason)
    ), measured AS NOT MATERIALIZED (
        SELECT h.* FROM pgtrickle.pgt_refresh_history h, since
        WHERE h.pgt_id = stream_table AND h.refresh_id >= since.refresh_id AND NOT h.of_replaced AND h.status = 'COMPLETED'
          AND h.compute_ms IS NOT NULL AND h.write_ms IS NOT NULL)
    SELECT d.start_time, false, d.rows_in, d.compute_ms, d.write_ms FROM (
        SELECT n.*, row_number() OVER (PARTITION BY length(ltrim(n.rows_in::bit(64)::text, '0')) ORDER BY n.refresh_id DESC)
               AS place
        FROM (SELECT m.* FROM measured m
              WHERE m.action = 'DIFFERENTIAL' AND m.rows_in > 0 AND m.start_time >= clock_timestamp() - prediction_window
              ORDER BY m.refresh_id DESC LIMIT 5000) n) d
    WHERE d.place <= 50
    UNION ALL
    (SELECT m.start_time, true, m.source_rows, m.compute_ms, m.write_ms FROM measured m
     WHERE m.action = 'FULL' AND m.refresh_reason <> 'REPAIR' AND m.source_rows IS NOT NULL
     ORDER BY m.refresh_id DESC LIMIT 3)
$$;

-- The newest refreshes of a stream table that took some time, since its query or all of its rows were new.
CREATE OR REPLACE FUNCTION pgtrickle._newest_refreshes(stream_table bigint, most integer)
RETURNS TABLE (refresh_id bigint, start_time timestamptz, action text, took_ms double precision, is_new_content boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.refresh_id, n.start_time, n.action, n.took_ms, n.is_new_content
    FROM (SELECT k.*, max(k.refresh_id) FILTER (WHERE k.is_new_content) OVER () AS since
          FROM (SELECT h.refresh_id, h.start_time, h.action, h.compute_ms + h.write_ms AS took_ms,
                       pgtrickle._is_new_content(h.refresh_reason) AS is_new_content
                FROM pgtrickle.pgt_refresh_history h
                WHERE h.pgt_id = stream_table AND h.status = 'COMPLETED' AND NOT h.of_replaced
                  AND h.action NOT IN ('NO_DATA', 'SKIP') AND h.compute_ms IS NOT NULL AND h.write_ms IS NOT NULL
                ORDER BY h.refresh_id DESC LIMIT most) k) n
    WHERE n.refresh_id >= coalesce(n.since, 0)
$$;

-- milliseconds = intercept + slope * rows by least squares, without outliers: samples whose residual is beyond 1.5 times the
-- distance of the quartiles and more than half of the line. For the first line each time is the median of it and its two
-- neighbours by size. NULL where the slope is undefined. `is_line`: it grows, and explains half of the variance.
CREATE OR REPLACE FUNCTION pgtrickle._cost_line(row_counts double precision[], took_ms double precision[],
    OUT slope double precision, OUT intercept double precision, OUT r2 double precision, OUT is_line boolean)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH sample AS (
        SELECT u.x, u.y, coalesce(lag(u.y) OVER w, lead(u.y, 2) OVER w) AS a, coalesce(lead(u.y) OVER w, lag(u.y, 2) OVER w) AS c
        FROM unnest(row_counts, took_ms) AS u(x, y) WINDOW w AS (ORDER BY u.x, u.y)),
    smooth AS (
        SELECT s.x, CASE WHEN s.a IS NULL OR s.c IS NULL THEN s.y
                         ELSE greatest(least(s.a, s.y), least(greatest(s.a, s.y), s.c)) END AS y FROM sample s),
    line AS (SELECT regr_slope(s.y, s.x) AS m, regr_intercept(s.y, s.x) AS b FROM smooth s),
    residual AS (SELECT s.x, s.y, l.b + l.m * s.x AS fitted, s.y - (l.b + l.m * s.x) AS r
                 FROM sample s, line l WHERE l.m IS NOT NULL),
    fence AS (SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY r.r) AS low,
                     percentile_cont(0.75) WITHIN GROUP (ORDER BY r.r) AS high FROM residual r),
    cut AS (SELECT regr_slope(r.y, r.x) AS m, regr_intercept(r.y, r.x) AS b, regr_r2(r.y, r.x) AS r2
            FROM residual r, fence f
            WHERE r.r BETWEEN f.low - 1.5 * (f.high - f.low) - 0.001 AND f.high + 1.5 * (f.high - f.low) + 0.001
               OR abs(r.r) <= 0.5 * r.fitted)
    SELECT c.m, c.b, c.r2, coalesce(c.m > 0 AND c.r2 >= 0.5, false) FROM cut c
$$;

CREATE OR REPLACE FUNCTION pgtrickle._cost_advice()
RETURNS TABLE (pgt_id bigint, name text, samples bigint, slope double precision, intercept double precision,
               r2 double precision, compute_slope double precision, write_slope double precision,
               median_ms double precision, full_ms double precision, source_rows bigint, break_even_rows bigint,
               auto_threshold double precision, advised_threshold double precision, advice text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH known AS (
        SELECT make_interval(mins => pgtrickle._setting('prediction_window')::integer) AS prediction_window,
               pgtrickle._setting('prediction_min_samples')::integer AS min_samples,
               pgtrickle._setting('prediction_ratio')::double precision AS ratio,
               pgtrickle._setting('differential_max_change_ratio')::double precision AS threshold
    ), figures AS (
        SELECT s.pgt_id, format('%I.%I', s.pgt_schema, s.pgt_name) AS name, s.refresh_mode,
               coalesce(s.auto_threshold, k.threshold) AS threshold, k.min_samples, k.ratio, d.*, f.full_ms, g.source_rows
        FROM pgtrickle.pgt_stream_tables s CROSS JOIN known k
        CROSS JOIN LATERAL (
            SELECT count(*) AS samples, array_agg(c.row_count::double precision) AS n, array_agg(c.compute_ms) AS computing,
                   array_agg(c.write_ms) AS writing, array_agg(c.compute_ms + c.write_ms) AS both_ms,
                   percentile_cont(0.5) WITHIN GROUP (ORDER BY c.compute_ms) AS compute_median,
                   percentile_cont(0.5) WITHIN GROUP (ORDER BY c.write_ms) AS write_median,
                   percentile_cont(0.5) WITHIN GROUP (ORDER BY c.compute_ms + c.write_ms) AS median_ms
            FROM pgtrickle._measured_costs(s.pgt_id, k.prediction_window) c WHERE NOT c.is_full) d
        LEFT JOIN LATERAL (
            SELECT h.source_rows FROM pgtrickle.pgt_refresh_history h
            WHERE h.pgt_id = s.pgt_id AND h.source_rows IS NOT NULL ORDER BY h.refresh_id DESC LIMIT 1) g ON true
        -- As if its time grew with the rows of the sources, and never shrank.
        CROSS JOIN LATERAL (
            SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY (c.compute_ms + c.write_ms)
                       * greatest(1, g.source_rows::double precision / greatest(1, c.row_count))) AS full_ms
            FROM pgtrickle._measured_costs(s.pgt_id, k.prediction_window) c WHERE c.is_full) f
    ), fitted AS (
        SELECT f.*, c.slope AS compute_slope, w.slope AS write_slope, b.r2,
               -- A phase without a line counts as constant; there is a prediction if one of them has one.
               CASE WHEN c.is_line OR w.is_line THEN
                   CASE WHEN c.is_line THEN c.slope ELSE 0 END + CASE WHEN w.is_line THEN w.slope ELSE 0 END END AS slope,
               CASE WHEN c.is_line OR w.is_line THEN
                   CASE WHEN c.is_line THEN c.intercept ELSE f.compute_median END
                   + CASE WHEN w.is_line THEN w.intercept ELSE f.write_median END END AS intercept
        FROM figures f CROSS JOIN LATERAL pgtrickle._cost_line(f.n, f.computing) c
        CROSS JOIN LATERAL pgtrickle._cost_line(f.n, f.writing) w
        CROSS JOIN LATERAL pgtrickle._cost_line(f.n, f.both_ms) b
    ), even AS (
        SELECT f.*, CASE WHEN f.samples >= f.min_samples
                         THEN greatest(0, (f.ratio * f.full_ms - f.intercept) / f.slope) END AS even_rows FROM fitted f
    ), advised AS (
        SELECT e.*, round(least(1, greatest(0.01, e.even_rows / nullif(e.source_rows, 0)))::numeric, 2)::double precision
               AS advised FROM even e
    )
    SELECT a.pgt_id, a.name, a.samples, a.slope, a.intercept, a.r2, a.compute_slope, a.write_slope, a.median_ms, a.full_ms,
           a.source_rows, least(a.even_rows, 9e18)::bigint, a.threshold, a.advised,
           CASE
               WHEN a.refresh_mode <> 'AUTO' THEN format('none: the refresh mode is %s', a.refresh_mode)
               WHEN a.samples < a.min_samples THEN format('none yet: %s of %s differential refreshes within prediction_window',
                                                          a.samples, a.min_samples)
               WHEN a.slope IS NULL THEN 'none: its time does not grow with the number of change rows'
               WHEN a.full_ms IS NULL THEN 'none: no full refresh was measured'
               WHEN a.advised IS NULL THEN 'none: its sources have no rows'
               WHEN a.threshold > a.advised * 1.25 THEN format('lower: auto_threshold => %s', a.advised)
               WHEN a.threshold < a.advised * 0.8 THEN format('raise: auto_threshold => %s', a.advised)
               ELSE format('keep: auto_threshold %s', a.threshold)
           END
    FROM advised a
$$;

-- How many refreshes self-monitoring found unusually slow; NULL without it, or for who may not read it.
CREATE OR REPLACE FUNCTION pgtrickle._count_slow_refreshes(stream_table bigint, since timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found bigint;
BEGIN
    IF has_table_privilege(to_regclass('pgtrickle.df_anomaly'), 'SELECT') THEN
        EXECUTE 'SELECT count(*) FROM pgtrickle.df_anomaly a WHERE a.pgt_id = $1 AND a.start_time >= $2'
            INTO found USING stream_table, since;
    END IF;
    RETURN found;
END $$;

CREATE OR REPLACE VIEW pgtrickle.df_threshold_advice AS
SELECT a.name, a.samples, a.slope, a.intercept, a.r2, a.compute_slope, a.write_slope, a.full_ms, a.source_rows,
       a.break_even_rows, a.auto_threshold, a.advised_threshold, a.advice,
       pgtrickle._count_slow_refreshes(a.pgt_id, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
           pg_catalog.make_interval(mins => pgtrickle._setting('prediction_window')::integer)) AS slow_refreshes
FROM pgtrickle._cost_advice() a;
COMMENT ON VIEW pgtrickle.df_threshold_advice IS
    'What a differential refresh costs per stream table (milliseconds = intercept + slope * change rows), what a full one costs, which auto_threshold follows, and with self-monitoring how many refreshes were unusually slow.';

CREATE OR REPLACE FUNCTION pgtrickle.recommend_refresh_mode(
    name text DEFAULT NULL, search_path text DEFAULT pg_catalog.current_setting('search_path'))
RETURNS TABLE (stream_table text, current_mode text, recommended_mode text, reason text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted  bigint := (SELECT (pgtrickle._stream_table(name, search_path)).pgt_id WHERE name IS NOT NULL);
    fewest  integer := pgtrickle._setting('prediction_min_samples')::integer;
    ratio   double precision := pgtrickle._setting('prediction_ratio')::double precision;
    cost    record;
BEGIN
    FOR cost IN
        SELECT a.*, s.refresh_mode, (SELECT h.action FROM pgtrickle.pgt_refresh_history h
                                     WHERE h.pgt_id = s.pgt_id AND h.status = 'COMPLETED' AND h.action <> 'SKIP'
                                     ORDER BY h.refresh_id DESC LIMIT 1) AS last
        FROM pgtrickle._cost_advice() a JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
        WHERE a.pgt_id = wanted OR (wanted IS NULL AND s.replaces IS NULL) ORDER BY a.name
    LOOP
        stream_table := cost.name;
        current_mode := cost.refresh_mode;
        IF cost.last = 'FULL_IN_POSTGRES' THEN
            recommended_mode := cost.refresh_mode;
            reason := 'PostgreSQL runs the query: it cannot be maintained incrementally';
        ELSIF cost.samples < fewest OR cost.full_ms IS NULL THEN
            recommended_mode := cost.refresh_mode;
            reason := format('not known yet: %s of %s differential refreshes within prediction_window, %s full refresh',
                             cost.samples, fewest, CASE WHEN cost.full_ms IS NULL THEN 'no' ELSE 'a' END);
        ELSIF cost.median_ms > ratio * cost.full_ms THEN
            recommended_mode := 'FULL';
            reason := format('half of its differential refreshes take more than %s ms, a full one about %s ms',
                             round(cost.median_ms), round(cost.full_ms));
        ELSIF cost.slope IS NULL OR cost.break_even_rows >= cost.source_rows THEN
            recommended_mode := CASE cost.refresh_mode WHEN 'IMMEDIATE' THEN 'IMMEDIATE' ELSE 'DIFFERENTIAL' END;
            reason := format('a differential refresh takes about %s ms, a full one about %s ms, however many rows change',
                             round(cost.median_ms), round(cost.full_ms));
        ELSE
            recommended_mode := 'AUTO';
            reason := format('a differential refresh takes about %s ms, a full one about %s ms is cheaper from %s change rows on',
                             round(cost.median_ms), round(cost.full_ms), cost.break_even_rows);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION pgtrickle.recommend_refresh_mode IS
    'Recommend the refresh mode of a stream table, or with NULL of every one, from the times of earlier refreshes, with the figures.';

CREATE OR REPLACE FUNCTION pgtrickle.recommend_schedule(
    name text, search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st       pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, search_path);
    fewest   integer := pgtrickle._setting('schedule_recommendation_min_samples')::integer;
    took     record;
    -- The median absolute deviation, times this, is the standard deviation of a normal distribution.
    usual    double precision;
    seconds  integer;
    slow     bigint;
BEGIN
    WITH newest AS (
        SELECT n.start_time, n.took_ms AS ms FROM pgtrickle._newest_refreshes(st.pgt_id, 500) n WHERE NOT n.is_new_content
    ), middle AS (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n.ms) AS ms FROM newest n)
    SELECT count(*) AS samples, min(m.ms) AS median_ms,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(n.ms - m.ms)) AS mad_ms,
           percentile_disc(0.95) WITHIN GROUP (ORDER BY n.ms) AS p95_ms, min(n.start_time) AS since
    INTO took FROM newest n, middle m;
    usual := took.median_ms + 3 * 1.4826 * took.mad_ms;
    slow := pgtrickle._count_slow_refreshes(st.pgt_id, took.since);
    -- A third of the interval stays free, up to a day. Times that lie far from each other have a small deviation where most
    -- are alike: nineteen of twenty fit in any case. A shorter interval than a second means every tick.
    seconds := CASE WHEN took.samples >= fewest
                    THEN greatest(1, least(ceil(1.5 * usual / 1000), 86400), ceil(took.p95_ms / 1000)) END;
    RETURN jsonb_build_object(
        'name', format('%I.%I', st.pgt_schema, st.pgt_name), 'current_schedule', st.schedule,
        'recommended_schedule', seconds || 's', 'samples', took.samples,
        'median_ms', round(took.median_ms::numeric, 1), 'mad_ms', round(took.mad_ms::numeric, 1),
        'p95_ms', round(took.p95_ms::numeric, 1), 'slow_refreshes', slow,
        'reason', CASE WHEN seconds IS NULL
            THEN format('not known yet: %s of %s refreshes (schedule_recommendation_min_samples)', took.samples, fewest)
            WHEN took.p95_ms > 1.5 * usual
            THEN format('one refresh of twenty takes more than %s ms, most less than %s ms', round(took.p95_ms), round(usual))
            ELSE format('a refresh usually takes at most %s ms (median and three deviations)', round(usual))
                 || CASE WHEN slow > 0 THEN format('; %s took over four times as long as others: pgtrickle.df_anomaly', slow) ELSE '' END
            END);
END $$;
COMMENT ON FUNCTION pgtrickle.recommend_schedule IS
    'Recommend the shortest interval that refreshes of a stream table fit into, from the median and the deviation of their times: from a second to a day, and never shorter than what 19 of 20 of them take. With self-monitoring it counts those that were unusually slow.';

CREATE OR REPLACE FUNCTION pgtrickle.scheduler_diagnostics()
RETURNS TABLE (counter text, value bigint, description text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.counter, coalesce((b.counters ->> c.counter)::bigint,
                               CASE c.counter WHEN 'cost_cache_capacity' THEN pgtrickle._setting(c.counter)::bigint END),
           c.description
    FROM (VALUES
        (1, 'cost_cache_capacity', 'cost models that may be in memory'),
        (2, 'cost_cache_entries', 'cost models in memory'),
        (3, 'cost_cache_hits', 'cost models found in memory since the start of the applier'),
        (4, 'cost_cache_misses', 'cost models read from the history since then')
    ) AS c(place, counter, description)
    LEFT JOIN pgtrickle.pgt_applier_beats b ON b.slot = pgtrickle._setting('slot')
    ORDER BY c.place
$$;
COMMENT ON FUNCTION pgtrickle.scheduler_diagnostics IS
    'Show what the scheduler counts since the applier was started, as of its last beat; NULL before the first one.';
