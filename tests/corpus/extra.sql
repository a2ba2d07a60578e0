-- Queries over the second set of tables. LIMIT queries carry a total order so the answer is deterministic.
-- name: join_inner_using
SELECT k, a.v, a.s, b.w, b.s AS bs FROM a JOIN b USING (k);
-- name: join_natural
SELECT * FROM a NATURAL JOIN b;
-- name: join_natural_full
SELECT k, s, v, w FROM a NATURAL FULL JOIN b;
-- name: join_left
SELECT e.id, e.name, d.name AS dept FROM emp e LEFT JOIN dept d ON e.dept_id = d.id AND d.loc <> 'NY';
-- name: join_right
SELECT e.id, d.id AS did, d.loc FROM emp e RIGHT JOIN dept d ON e.dept_id = d.id;
-- name: join_full_using
SELECT k, count(*) AS n, sum(v) AS sv, sum(w) AS sw FROM a FULL OUTER JOIN b USING (k) GROUP BY k;
-- name: join_full_noneq
SELECT a.k, a.v, b.k AS bk, b.w FROM a FULL JOIN b ON a.k = b.k AND a.s = b.s;
-- name: join_cross_theta
SELECT a.k, b.k AS bk FROM a CROSS JOIN b WHERE a.v > b.w AND a.s IS DISTINCT FROM b.s;
-- name: join_left_using_star
SELECT * FROM a LEFT JOIN b USING (k, s);
-- name: join_self3
SELECT e.id, m.id AS mid, g.id AS gid FROM emp e JOIN emp m ON e.mgr_id = m.id LEFT JOIN emp g ON m.mgr_id = g.id;
-- name: join_nested_outer
SELECT d.id, x.eid, x.vid FROM dept d LEFT JOIN (emp e JOIN ev v ON v.emp_id = e.id) AS x(eid, n, dd, mm, sal, bo, hi, ra, ac, ta, at, co, no, mo, vid) ON x.dd = d.id;
-- name: scalar_sub_uncorr
SELECT id, salary - (SELECT avg(salary) FROM emp) AS diff FROM emp WHERE salary > (SELECT avg(salary) FROM emp);
-- name: scalar_sub_corr
SELECT d.id, (SELECT max(e.salary) FROM emp e WHERE e.dept_id = d.id) AS mx, (SELECT count(*) FROM emp e WHERE e.dept_id = d.id) AS n FROM dept d;
-- name: scalar_sub_corr_noneq
SELECT e.id, (SELECT count(*) FROM emp x WHERE x.salary > e.salary) AS rnk FROM emp e;
-- name: scalar_sub_limit
SELECT d.id, (SELECT e.name FROM emp e WHERE e.dept_id = d.id ORDER BY e.salary DESC NULLS LAST, e.id LIMIT 1) AS top FROM dept d;
-- name: exists_sub
SELECT id FROM dept d WHERE EXISTS (SELECT 1 FROM emp e WHERE e.dept_id = d.id AND e.active);
-- name: not_exists_sub
SELECT id FROM dept d WHERE NOT EXISTS (SELECT 1 FROM emp e WHERE e.dept_id = d.id AND e.salary > 5000);
-- name: exists_in_select
SELECT id, EXISTS (SELECT 1 FROM ev WHERE ev.emp_id = emp.id) AS has_ev FROM emp;
-- name: in_sub
SELECT k, v FROM a WHERE k IN (SELECT k FROM b WHERE w > 0);
-- name: not_in_sub_nulls
SELECT k, v FROM a WHERE k NOT IN (SELECT k FROM b);
-- name: not_in_sub_filtered
SELECT k, v FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL AND w > 1);
-- name: in_or_sub
SELECT k, v FROM a WHERE v > 1 OR k IN (SELECT k FROM b WHERE w < 0);
-- name: any_all
SELECT k, v FROM a WHERE v >= ALL (SELECT w FROM b WHERE b.k = a.k) OR v = ANY (SELECT w FROM b WHERE b.s = a.s);
-- name: any_array
SELECT id FROM ev WHERE amt = ANY (ARRAY[1, 2, 3]) OR 3 = ANY (nums) OR kind <> ALL (ARRAY['buy', 'Buy', 'click']);
-- name: row_in_sub
SELECT k, v FROM a WHERE (k, v) IN (SELECT k, w FROM b);
-- name: row_compare
SELECT k, v FROM a WHERE (k, v) > (3, 0);
-- name: row_eq_isnull
SELECT k, v, s FROM a WHERE (k, s) = (2, 'x') OR (k, v) IS NULL;
-- name: grouping_sets
SELECT dept_id, active, count(*), sum(salary), grouping(dept_id, active) AS g FROM emp GROUP BY GROUPING SETS ((dept_id, active), (dept_id), ());
-- name: cube
SELECT kind, qty, count(*), avg(amt) FROM ev GROUP BY CUBE (kind, qty);
-- name: rollup
SELECT extract(year FROM hired) AS y, dept_id, count(*) FROM emp GROUP BY ROLLUP (extract(year FROM hired), dept_id);
-- name: group_having
SELECT dept_id, count(*) AS n, avg(salary) AS a FROM emp GROUP BY dept_id HAVING count(*) > 5 AND avg(salary) > 1000;
-- name: agg_global_empty
SELECT count(*), sum(amt), avg(amt), min(ts), bool_and(amt > 0), string_agg(kind, ',') FROM ev WHERE id < 0;
-- name: agg_types
SELECT kind, sum(amt) AS si, sum(qty) AS ss, sum(big) AS sb, sum(n2) AS sn, avg(amt) AS ai, avg(big) AS ab, avg(n2) AS an, avg(val) AS av, count(amt) AS c, min(u::text) AS mu, max(tstz) AS mt FROM ev GROUP BY kind;
-- name: agg_stddev
SELECT kind, stddev(n2), variance(amt), stddev_pop(amt), var_samp(val), corr(val, amt), covar_pop(val, amt) FROM ev GROUP BY kind;
-- name: agg_bool_bit
SELECT kind, bool_or(amt > 10), every(amt > -15), bit_and(qty), bit_or(amt) FROM ev GROUP BY kind;
-- name: agg_filter
SELECT dept_id, count(*) FILTER (WHERE active) AS act, sum(salary) FILTER (WHERE hired >= '2020-01-01') AS s20, count(DISTINCT name) FILTER (WHERE NOT active) FROM emp GROUP BY dept_id;
-- name: agg_distinct
SELECT emp_id % 7 AS g, count(DISTINCT kind) AS ck, sum(DISTINCT amt) AS sa, avg(DISTINCT qty) AS aq, count(DISTINCT (kind, qty)) AS cr FROM ev GROUP BY 1;
-- name: agg_ordered_set
SELECT dept_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY salary) AS med, percentile_disc(0.25) WITHIN GROUP (ORDER BY salary) AS p25, mode() WITHIN GROUP (ORDER BY code) AS md FROM emp GROUP BY dept_id;
-- name: agg_string_array
SELECT dept_id, string_agg(name, ', ' ORDER BY name COLLATE "C", id) AS names, array_agg(id ORDER BY salary DESC, id) AS ids, array_agg(name ORDER BY id) AS an FROM emp GROUP BY dept_id;
-- name: agg_json
SELECT dept_id, jsonb_agg(jsonb_build_object('id', id, 'n', name) ORDER BY id) AS js, jsonb_object_agg(id::text, salary) AS jo FROM emp WHERE dept_id < 4 GROUP BY dept_id;
-- name: agg_to_jsonb
SELECT id, to_jsonb(tags) AS t, jsonb_array_length(payload_l) AS n FROM (SELECT e.id, e.tags, v.payload -> 'l' AS payload_l FROM emp e JOIN ev v ON v.emp_id = e.id) q;
-- name: distinct_plain
SELECT DISTINCT s, v FROM a;
-- name: distinct_on
SELECT DISTINCT ON (dept_id) dept_id, id, salary FROM emp ORDER BY dept_id, salary DESC NULLS LAST, id;
-- name: union_distinct
SELECT k, s FROM a UNION SELECT k, s FROM b;
-- name: union_all_types
SELECT id, salary FROM emp UNION ALL SELECT id, amt FROM ev UNION ALL SELECT NULL, 3;
-- name: intersect_all
SELECT k, v FROM a INTERSECT ALL SELECT k, w FROM b;
-- name: except_all
SELECT k, v FROM a EXCEPT ALL SELECT k, w FROM b;
-- name: except_intersect_prec
SELECT k FROM a EXCEPT SELECT k FROM b WHERE w > 0 UNION ALL SELECT v FROM a INTERSECT SELECT w FROM b;
-- name: win_rank
SELECT id, dept_id, row_number() OVER (PARTITION BY dept_id ORDER BY salary DESC, id) AS rn, rank() OVER (PARTITION BY dept_id ORDER BY salary DESC) AS rk, dense_rank() OVER (ORDER BY hired) AS dr, ntile(4) OVER (ORDER BY id) AS nt, percent_rank() OVER (ORDER BY salary) AS pr, cume_dist() OVER (ORDER BY salary) AS cd FROM emp;
-- name: win_frame
SELECT id, sum(amt) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s3, avg(amt) OVER (PARTITION BY kind ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS a1, count(*) OVER (ORDER BY qty RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS c FROM ev WHERE qty IS NOT NULL;
-- name: win_frame_default
SELECT id, sum(amt) OVER (PARTITION BY kind ORDER BY qty) AS run, last_value(id) OVER (PARTITION BY kind ORDER BY id) AS lv, first_value(amt) OVER (PARTITION BY kind ORDER BY amt NULLS FIRST, id) AS fv FROM ev;
-- name: win_lag_named
SELECT id, lag(amt) OVER w AS p, lead(amt, 2, 0) OVER w AS n, nth_value(amt, 2) OVER w AS n2 FROM ev WINDOW w AS (PARTITION BY emp_id ORDER BY id);
-- name: win_range_interval
SELECT id, count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW) AS c FROM ev WHERE ts IS NOT NULL;
-- name: win_exclude
SELECT id, sum(amt) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM ev;
-- name: win_groups
SELECT id, sum(amt) OVER (ORDER BY qty GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM ev;
-- name: win_over_agg
SELECT dept_id, sum(salary) AS s, rank() OVER (ORDER BY sum(salary) DESC NULLS LAST) AS r FROM emp GROUP BY dept_id;
-- name: lateral_topn
SELECT d.id, t.eid, t.salary FROM dept d CROSS JOIN LATERAL (SELECT e.id AS eid, e.salary FROM emp e WHERE e.dept_id = d.id ORDER BY e.salary DESC NULLS LAST, e.id LIMIT 2) t;
-- name: lateral_left
SELECT d.id, t.n FROM dept d LEFT JOIN LATERAL (SELECT sum(e.salary) AS n FROM emp e WHERE e.dept_id = d.id HAVING count(*) > 9) t ON true;
-- name: lateral_unnest
SELECT e.id, t.tag, t.ord FROM emp e, unnest(e.tags) WITH ORDINALITY AS t(tag, ord);
-- name: lateral_unnest_left
SELECT e.id, t.tag FROM emp e LEFT JOIN LATERAL unnest(e.tags) AS t(tag) ON true;
-- name: lateral_jsonb
SELECT v.id, x.value FROM ev v, jsonb_array_elements(v.payload -> 'l') AS x(value);
-- name: values_list
SELECT x.n, x.t, d.name FROM (VALUES (1, 'one'), (2, 'two'), (NULL, 'none')) AS x(n, t) LEFT JOIN dept d ON d.id = x.n;
-- name: gen_series
SELECT g.d::date AS day, count(v.id) AS n FROM generate_series('2024-01-01'::timestamp, '2024-01-31'::timestamp, '1 day'::interval) AS g(d) LEFT JOIN ev v ON v.ts >= g.d AND v.ts < g.d + interval '1 day' GROUP BY 1;
-- name: gen_series_int
SELECT d.id, g FROM dept d, generate_series(1, d.id, 2) AS g;
-- name: cte_multi
WITH x AS (SELECT dept_id, sum(salary) AS s FROM emp GROUP BY dept_id), y AS (SELECT avg(s) AS m FROM x) SELECT x.dept_id, x.s FROM x, y WHERE x.s > y.m;
-- name: rec_hier
WITH RECURSIVE t AS (SELECT id, parent, name, 1 AS lvl, name AS path FROM dept WHERE parent IS NULL UNION ALL SELECT d.id, d.parent, d.name, t.lvl + 1, t.path || '/' || d.name FROM dept d JOIN t ON d.parent = t.id) SELECT * FROM t;
-- name: rec_reach
WITH RECURSIVE r(src, dst) AS (SELECT src, dst FROM edge UNION SELECT r.src, e.dst FROM r JOIN edge e ON e.src = r.dst) SELECT * FROM r;
-- name: rec_series
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT i, i * i AS sq FROM n;
-- name: topk_offset
SELECT id, salary FROM emp ORDER BY salary DESC, id OFFSET 5 LIMIT 10;
-- name: topk_ties
SELECT id, dept_id FROM emp ORDER BY dept_id FETCH FIRST 5 ROWS WITH TIES;
-- name: topk_nulls
SELECT id, hired FROM emp ORDER BY hired NULLS FIRST, id LIMIT 12;
-- name: topk_text
SELECT id, name FROM emp ORDER BY name, id LIMIT 20;
-- name: case_coalesce
SELECT id, CASE WHEN salary > 5000 THEN 'hi' WHEN salary > 1000 THEN 'mid' ELSE 'lo' END AS band, COALESCE(name, note, 'n/a') AS nm, NULLIF(note, '') AS nn, GREATEST(salary, bonus, 10) AS g, LEAST(hired, date '2020-01-01') AS l FROM emp;
-- name: case_simple_type
SELECT id, CASE kind WHEN 'buy' THEN amt WHEN 'Buy' THEN n2 ELSE 0 END AS x, COALESCE(amt, big, qty) AS c FROM ev;
-- name: date_arith
SELECT id, hired + 30 AS p30, hired - date '2020-01-01' AS days, hired + interval '1 month' AS pm, hired - interval '1 year 2 days' AS py, age(date '2024-03-01', hired) AS ag, (date '2024-01-31' + interval '1 month') AS eom FROM emp;
-- name: ts_arith
SELECT id, ts + interval '36 hours' AS a, ts - timestamp '2024-01-01' AS dur, date_trunc('week', ts) AS wk, date_trunc('month', tstz) AS mo, extract(dow FROM ts) AS dow, extract(epoch FROM ts) AS ep, extract(isodow FROM d) AS idow, extract(week FROM ts) AS w, extract(quarter FROM d) AS q, extract(second FROM ts) AS sec FROM ev;
-- name: interval_out
SELECT id, ts - tstz::timestamp AS z, interval '1 day' * qty AS iv, justify_hours(interval '27 hours') AS jh, date_part('day', ts - timestamp '2024-01-01') AS dd FROM ev;
-- name: tz_convert
SELECT id, tstz AT TIME ZONE 'America/New_York' AS ny, ts AT TIME ZONE 'Europe/Berlin' AS be, tstz::date AS d FROM ev;
-- name: casts
SELECT id, amt::text AS t, amt::numeric AS n, n2::int AS i, val::int AS vi, val::numeric(10,1) AS vn, big::text::bigint AS b, '12'::int AS c, (amt > 0)::int AS bi, amt::boolean AS ib, ts::date AS d, ts::time AS tm, val::text AS vt, n2::text AS nt FROM ev;
-- name: like_regex
SELECT id, name LIKE 'b%' AS l, name ILIKE 'B%' AS il, name ~ '^[A-Z]' AS r, name ~* 'o' AS ri, name !~ '\d' AS nr, name LIKE 'von\_%' AS le, regexp_replace(name, '[aeiou]', '*', 'g') AS rr, regexp_replace(name, 'o', '0') AS r1, name SIMILAR TO '(A|b)%' AS st FROM emp;
-- name: string_funcs
SELECT id, substring(name FROM 2 FOR 2) AS s1, substring(name, 0, 3) AS s2, position('o' IN name) AS p, split_part(name, '_', 2) AS sp, length(name) AS l, upper(name) AS u, initcap(name) AS ic, lpad(name, 6, '*') AS lp, left(name, -1) AS lf, right(name, 2) AS rt, trim(both ' ' FROM name) AS tr, replace(name, 'o', '0') AS rp, reverse(name) AS rv, repeat(name, 2) AS re, strpos(name, 'b') AS st, md5(name) AS md, name || '-' || id AS cc, concat(name, '-', note) AS cn, concat_ws(',', name, note, code) AS cw, overlay(name placing 'ZZ' from 2 for 1) AS ov, translate(name, 'ab', 'x') AS tl, ascii(name) AS asc FROM emp;
-- name: to_char_fmt
SELECT id, to_char(ts, 'YYYY-MM-DD HH24:MI:SS') AS a, to_char(ts, 'Mon DD, YYYY') AS b, to_char(ts, 'Day') AS c, to_char(n2, 'FM999999.00') AS n, to_char(amt, '0000') AS i, to_date('05 Dec 2000', 'DD Mon YYYY') AS td FROM ev;
-- name: char_pad
SELECT id, code, length(code) AS l, code || '|' AS cc, code = 'ab' AS eq, code LIKE 'ab%' AS lk, code = 'ab   ' AS eq2, upper(code) AS u FROM emp;
-- name: char_group
SELECT code, count(*), min(code), max(note) FROM emp GROUP BY code;
-- name: array_ops
SELECT id, tags[1] AS t1, array_length(tags, 1) AS al, cardinality(tags) AS ca, tags @> ARRAY['a'] AS c, tags && ARRAY['b', 'c'] AS o, 'a' = ANY(tags) AS an, array_to_string(tags, '|') AS ats, tags || 'z'::text AS app, array_position(tags, 'b') AS ap, tags = ARRAY['a', 'b'] AS eq FROM emp;
-- name: jsonb_ops
SELECT id, attrs -> 'addr' AS addr, attrs ->> 'lvl' AS lvl, attrs #>> '{addr,city}' AS city, (attrs -> 'addr' ->> 'zip')::int AS zip, attrs @> '{"addr":{"city":"Rome"}}' AS isr, attrs ? 'skills' AS sk, jsonb_typeof(attrs -> 'lvl') AS ty, attrs -> 'skills' -> 0 AS s0 FROM emp;
-- name: jsonb_group
SELECT payload -> 'a' AS a, count(*) FROM ev GROUP BY payload -> 'a';
-- name: int_div_mod
SELECT id, amt / 3 AS d, amt % 3 AS m, qty / 2 AS q, big / 7 AS b, -7 / 2 AS c, mod(-7, 3) AS md, div(n2, 3) AS dv, amt / 3.0 AS f FROM ev;
-- name: num_div_round
SELECT id, n2 / 3 AS d, round(n2, 2) AS r2, round(n2) AS r0, round(val) AS rv, trunc(n2, 1) AS t, ceil(n2) AS c, floor(val) AS f, n2 * n2 AS m, n2 % 7 AS mo, abs(n2) AS ab, sign(n2) AS sg, power(amt, 2) AS p, sqrt(abs(n2)) AS sq, round(amt / 2.0) AS rh FROM ev;
-- name: num_big
SELECT sum(bonus) AS s, avg(bonus) AS a, max(bonus) AS m, sum(bonus * 2) AS s2 FROM emp;
-- name: float_nan
SELECT rate, count(*) FROM emp GROUP BY rate;
-- name: float_nan_order
SELECT id, rate, rate > 1 AS gt, rate = 'NaN' AS isn FROM emp ORDER BY rate DESC, id LIMIT 15;
-- name: float_minmax
SELECT dept_id, max(rate), min(rate), avg(rate) FROM emp GROUP BY dept_id;
-- name: div_zero_guard
SELECT id, CASE WHEN qty <> 0 THEN amt / qty END AS r, amt / NULLIF(qty, 0) AS r2 FROM ev;
-- name: null_logic
SELECT k, v, v = NULL AS a, v IS DISTINCT FROM k AS b, NOT (v > 1) AS c, v IN (1, NULL) AS d, v NOT IN (1, NULL) AS e, (v > 0) IS UNKNOWN AS f, v BETWEEN SYMMETRIC 2 AND -1 AS g, (v > 0) IS NOT TRUE AS h FROM a;
-- name: enum_cmp
SELECT id, m, m > 'sad' AS g, m::text AS t FROM emp WHERE m >= 'ok' ORDER BY m, id LIMIT 20;
-- name: enum_minmax
SELECT dept_id, max(m), min(m) FROM emp GROUP BY dept_id;
-- name: uuid_ops
SELECT u, count(*) FROM ev WHERE u > '80000000-0000-0000-0000-000000000000' GROUP BY u;
-- name: view_inline
SELECT dept_name, count(*), max(salary) FROM emp_v WHERE loc = 'NY' GROUP BY dept_name;
-- name: star_quals
SELECT d.*, e.id AS eid FROM dept d, emp e WHERE e.dept_id = d.id;
-- name: whole_row
SELECT d FROM dept d WHERE id < 3;
-- name: group_by_pk
SELECT d.id, d.name, d.loc, count(e.id) FROM dept d LEFT JOIN emp e ON e.dept_id = d.id GROUP BY d.id;
-- name: text_order_minmax
SELECT min(name) AS n1, max(name) AS n2, min(s) AS s1, max(s) AS s2 FROM emp, a;
-- name: text_compare
SELECT id FROM emp WHERE name > 'a' AND name < 'z';
-- name: subq_in_from_cols
SELECT q.c1 + 1 AS x, q.c2 FROM (SELECT amt, kind FROM ev) AS q(c1, c2) WHERE q.c2 IS NOT NULL;
-- name: order_by_expr_alias
SELECT upper(kind) AS kind, count(*) AS n FROM ev GROUP BY kind;
-- name: group_alias_shadow
SELECT lower(kind) AS kind2, sum(amt) FROM ev GROUP BY kind2 ORDER BY kind2;
-- name: volatile_now
SELECT id, ts < now() AS past, random() < 2 AS r FROM ev;
-- name: own_aggregates
SELECT dept_id, product(salary) AS p, product(DISTINCT bonus) FILTER (WHERE active AND bonus <> 'NaN') AS b, dashed(name ORDER BY id DESC) AS n FROM emp GROUP BY dept_id;
-- name: json_paths
SELECT id, jsonb_path_query_array(attrs, '$.**.city') AS c, attrs @? '$.skills[*] ? (@ starts with "s")' AS s, attrs @@ '$.lvl > 2' AS l, jsonb_path_query_first(attrs, 'strict $.addr.zip', '{}', true) AS z FROM emp;
-- name: json_path_rows
SELECT k, count(*) AS n FROM emp, jsonb_path_query(attrs, '$.skills[*]') k GROUP BY k;
-- name: json_words
SELECT id, JSON_ARRAY(id, note) AS a, JSON_OBJECT('n': name, 'c': note ABSENT ON NULL RETURNING jsonb) AS o, note IS JSON AS j FROM emp;
-- name: recursive_cycle
WITH RECURSIVE r(src, dst, hops) AS (SELECT src, dst, 1 FROM edge WHERE src < 3 UNION ALL SELECT r.src, e.dst, hops + 1 FROM r JOIN edge e ON e.src = r.dst WHERE hops < 4) CYCLE dst SET met USING way SELECT src, dst, hops, met, way::text AS way FROM r;
-- name: recursive_search
WITH RECURSIVE r(id, parent, name) AS (SELECT id, parent, name FROM dept WHERE parent IS NULL UNION ALL SELECT d.id, d.parent, d.name FROM dept d JOIN r ON d.parent = r.id) SEARCH DEPTH FIRST BY name, id SET o SELECT id, name FROM r ORDER BY o;
