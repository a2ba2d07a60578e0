-- name: grouping_sets
SELECT region, vip, count(*) AS n, sum(credit) AS total, grouping(region, vip) AS g
FROM customer
GROUP BY GROUPING SETS ((region, vip), (region), ());

-- name: rollup
SELECT customer_id, state, count(*) AS n, max(amount) AS top FROM orders GROUP BY ROLLUP (customer_id, state);

-- name: cube
SELECT state, quantity, avg(amount) AS a, grouping(quantity) AS g, grouping(state, quantity) AS h
FROM orders
GROUP BY CUBE (state, quantity)
HAVING count(*) > 1 OR grouping(state) = 1;

-- name: rollup_of_expressions
SELECT extract(year FROM delivered) AS y, upper(state) AS s, count(*) + grouping(upper(state)) AS n
FROM orders
GROUP BY ROLLUP (extract(year FROM delivered), upper(state));

-- name: grouping_sets_crossed
SELECT customer_id, quantity, state, count(*) AS n
FROM orders
GROUP BY customer_id, ROLLUP (quantity, (state, customer_id)), GROUPING SETS ((), (state), ());

-- name: grouping_sets_of_nothing
SELECT count(*) AS n FROM customer GROUP BY GROUPING SETS ((), ());

-- name: distinct_jsonb_of_equals
SELECT DISTINCT notes FROM customer;

-- name: window_by_jsonb
SELECT id, count(*) OVER (PARTITION BY notes) FROM customer;

-- name: rank_of_a_guess
SELECT rank(3) WITHIN GROUP (ORDER BY quantity) FROM orders;

-- name: row_is_null
SELECT ROW(id, name) IS NULL AS n FROM customer;

-- name: group_by_float
SELECT score, count(*) FROM customer GROUP BY score;

-- name: group_by_jsonb_of_equals
SELECT notes, count(*) FROM customer GROUP BY notes;

-- name: group_by_unbounded_of_equals
SELECT wealth, count(*) FROM customer GROUP BY wealth;

-- name: whole_row
SELECT c AS c FROM customer c;

-- name: order_by_unbounded_limit
SELECT id FROM customer ORDER BY wealth, id LIMIT 3;

-- name: union_of_unbounded_of_equals
SELECT wealth FROM customer UNION SELECT amount FROM orders;

-- name: rollup_by_unbounded_of_equals
SELECT wealth, vip, count(*) AS n, grouping(wealth) AS g FROM customer GROUP BY ROLLUP (wealth, vip);

-- name: distinct_on_unbounded
SELECT DISTINCT ON (wealth) id FROM customer ORDER BY wealth DESC NULLS LAST, id;

-- name: join_on_unbounded
SELECT a.id, b.id AS other FROM customer a JOIN customer b ON a.wealth = b.wealth AND a.notes = b.notes;

-- name: join_on_float
SELECT a.id, b.id AS other FROM customer a LEFT JOIN customer b ON a.score = b.score;

-- name: rank_by_average
SELECT customer_id, avg(amount) AS a, rank() OVER (ORDER BY avg(amount) DESC) AS place FROM orders GROUP BY customer_id;

-- name: top_by_average
SELECT state, avg(quantity) AS a FROM orders GROUP BY state ORDER BY avg(quantity) DESC NULLS LAST, state LIMIT 3;

-- name: order_by_interval
SELECT id FROM orders ORDER BY placed - delivered AT TIME ZONE 'UTC', id LIMIT 4;

-- name: rows_counted
SELECT state, count(DISTINCT (customer_id, quantity)) AS d, count((customer_id, quantity)) AS n FROM orders GROUP BY state;

-- name: whole_row_as_json
SELECT to_jsonb(c) AS j, row_to_json(l) AS r FROM customer c JOIN line l ON l.order_id = c.id;

-- name: whole_rows_listed
SELECT customer_id, jsonb_agg(o ORDER BY id) AS b, json_agg(o ORDER BY id DESC) AS t FROM orders o GROUP BY customer_id;

-- name: rows_of_subquery_listed
SELECT json_agg(s ORDER BY s.n) AS j FROM (SELECT id AS n, name, vip, born, placed_at FROM (SELECT c.id, c.name, c.vip, c.born, o.placed AS placed_at FROM customer c JOIN orders o ON o.id = c.id) q) s;

-- name: whole_row_tests
SELECT l IS NULL AS missing, l IS NOT NULL AS complete FROM log l;

-- name: row_as_text
SELECT (id, name, vip, born, credit, placed)::text AS t FROM customer JOIN orders USING (id);

-- name: json_objects
SELECT customer_id, jsonb_object_agg(id, amount) AS a, jsonb_object_agg(coalesce(state, ''), quantity ORDER BY id) AS b,
       json_object_agg(id, state ORDER BY id) AS c, jsonb_object_agg(id::text, delivered) FILTER (WHERE quantity > 1) AS d
FROM orders GROUP BY customer_id;

-- name: places_of_imagined_rows
SELECT rank(2, 5) WITHIN GROUP (ORDER BY quantity DESC, customer_id) AS r, dense_rank(2) WITHIN GROUP (ORDER BY quantity) AS d,
       percent_rank(10) WITHIN GROUP (ORDER BY amount) AS p, cume_dist(10) WITHIN GROUP (ORDER BY amount DESC) AS c
FROM orders;

-- name: group_by_array
SELECT regexp_split_to_array(name, 'b') AS a, count(*) AS n FROM customer GROUP BY 1;

-- name: sums_of_long_products
SELECT quantity, sum(amount * amount * -amount * amount) AS s, avg(amount * amount * amount * amount) AS a,
       sum((amount * amount + 1.5) * (amount - 0.125) * amount * amount) AS t, count(*) AS n
FROM orders GROUP BY quantity;

-- name: distinct_aggregates_of_equals
SELECT vip, count(DISTINCT notes) AS j, count(DISTINCT wealth) AS w, sum(DISTINCT wealth) AS s, avg(DISTINCT wealth) AS a,
       count(DISTINCT score) AS f, count(DISTINCT (score, wealth)) AS r, count(DISTINCT regexp_split_to_array(name, 'b')) AS x,
       sum(DISTINCT wealth) FILTER (WHERE id > 1) AS sf
FROM customer GROUP BY vip;

-- name: distinct_listed
SELECT array_agg(DISTINCT quantity * 1.0 / 4 ORDER BY quantity * 1.0 / 4 DESC) AS a,
       string_agg(DISTINCT state, '-' ORDER BY state) AS s FROM orders;

-- name: percentiles_listed
SELECT percentile_cont(ARRAY[0.25, 0.5, NULL, 1]::float8[]) WITHIN GROUP (ORDER BY score) AS c,
       percentile_disc('{0,0.9}'::float8[]) WITHIN GROUP (ORDER BY name COLLATE "C" DESC) AS d,
       percentile_cont(0.3) WITHIN GROUP (ORDER BY born - '2020-01-01'::timestamp) AS i,
       percentile_cont(ARRAY[0.1, 0.7]::float8[]) WITHIN GROUP (ORDER BY born - '2020-01-01'::timestamp) AS l
FROM customer;

-- name: percentile_of_equals
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY wealth) AS m FROM customer;

-- name: arrays_listed
SELECT customer_id, array_agg(ARRAY[id, quantity] ORDER BY id) AS a, max(ARRAY[quantity, id]) AS x,
       min(ARRAY[state, 'b']) AS n, max(ARRAY[state, 'b']) FILTER (WHERE quantity > 1) AS f
FROM orders GROUP BY customer_id;

-- name: array_casts
SELECT ARRAY[id, 2]::text[] AS t, ARRAY[id]::bigint[] AS b, array_position(ARRAY[id, 7]::numeric[], 7) AS p,
       regexp_split_to_array(name, 'b')::varchar[] AS v
FROM customer;

-- name: json_standard_aggregates
SELECT customer_id, JSON_ARRAYAGG(state ORDER BY id) AS a, JSON_ARRAYAGG(state ORDER BY id NULL ON NULL RETURNING jsonb) AS b,
       JSON_OBJECTAGG(id: state RETURNING jsonb) AS o, JSON_OBJECTAGG(id: state ABSENT ON NULL WITH UNIQUE KEYS RETURNING jsonb) AS u
FROM orders GROUP BY customer_id;

-- name: calendars
SELECT 'm' AS kind, g::text AS t FROM generate_series('2024-01-31'::timestamp, '2024-06-01', '1 month') g
UNION ALL SELECT 'd', g::text FROM generate_series('2024-03-05'::timestamp, '2023-11-30', '-1 mon -2 days') g
UNION ALL SELECT 'z', g::text FROM generate_series('2024-03-30'::date, '2024-04-02'::date, '1 day') g
UNION ALL SELECT 'y', g::text FROM generate_series('2020-02-29'::timestamptz, '2024-04-02', '1 year') g
UNION ALL SELECT 'n', g::text FROM generate_series('2024-02-29'::timestamp, '2024-01-02', '1 month') g;

-- name: calendar_beside_rows
SELECT o.id, g FROM orders o LEFT JOIN LATERAL generate_series(o.delivered, '2024-01-01'::timestamp, '1 year 1 day') g ON true;
