-- Functions that make rows, sums in conditions, and what else is nested in unusual ways.

-- name: sets_side_by_side
SELECT id, generate_series(1, id) AS g, unnest(ARRAY[1,2]) + id AS u, name FROM customer;

-- name: set_that_nobody_reads
SELECT x FROM (SELECT id AS x, generate_series(1, id % 4) AS g FROM customer) q;

-- name: grouped_by_a_set
SELECT unnest(string_to_array(name, 'b')) AS part, count(*) AS n, sum(id) AS s FROM customer GROUP BY 1;

-- name: set_over_groups
SELECT region, count(*) AS n, generate_series(1, count(*)) AS g FROM customer GROUP BY region;

-- name: first_of_sets
SELECT id, generate_series(1, 3) AS g FROM customer ORDER BY id, g LIMIT 4;

-- name: in_sets
SELECT id, 2 = ANY (SELECT generate_series(1, c.id)) AS a FROM customer c WHERE id IN (SELECT unnest(ARRAY[c.id, 1])
    FROM log WHERE customer_id = c.id) OR id > 1;

-- name: sets_in_subqueries
SELECT id, ARRAY(SELECT generate_series(1, c.id) * 2 AS g ORDER BY 1 DESC) AS a, (SELECT sum(g) FROM
    generate_series(1, c.id) g) AS s, (SELECT string_agg(u, '-' ORDER BY n) FROM unnest(string_to_array(c.name,
    'b')) WITH ORDINALITY AS t(u, n)) AS t FROM customer c;

-- name: unnest_of_two
SELECT c.id, a, b FROM customer c, unnest(ARRAY[c.id, 2], string_to_array(c.name, 'b')) AS t(a, b);

-- name: rows_from
SELECT c.id, a, b, n FROM customer c LEFT JOIN LATERAL ROWS FROM (generate_series(1, c.id),
    unnest(string_to_array(c.region, 'x'))) WITH ORDINALITY AS t(a, b, n) ON true;

-- name: value_in_from
SELECT c.id, a FROM customer c, upper(c.name) a;

-- name: jsonb_element_texts
SELECT c.id, e, n FROM customer c, jsonb_array_elements_text(jsonb_build_array(c.id, c.name, c.notes, c.region))
    WITH ORDINALITY AS t(e, n);

-- name: jsonb_each_text
SELECT c.id, k, v, o FROM customer c LEFT JOIN jsonb_each_text(jsonb_build_object('bb', c.region, 'a', c.id, 'c',
    c.notes)) WITH ORDINALITY AS e(k, v, o) ON v IS NOT NULL;

-- name: jsonb_keys
SELECT c.id, jsonb_object_keys(c.notes) AS k FROM customer c;

-- name: split_tables
SELECT c.id, m, t, u FROM customer c, regexp_split_to_table(c.name COLLATE "C", 'b+') m, string_to_table(c.name,
    'b') t, string_to_table(c.name, NULL, 'a') u;

-- name: subscripts
SELECT c.id, g FROM customer c, generate_subscripts(string_to_array(c.name, 'b'), 1) g;

-- name: left_lateral_set
SELECT c.id, s.g FROM customer c LEFT JOIN LATERAL (SELECT generate_series(2, c.id) AS g) s ON true;

-- name: left_join_on_sum
SELECT c.id, o.id AS oid FROM customer c LEFT JOIN orders o ON o.customer_id = c.id + 1 AND o.quantity - 1 < c.id;

-- name: exists_of_sum
SELECT id, (SELECT count(*) FROM orders o WHERE o.customer_id = c.id + 1) AS n FROM customer c WHERE EXISTS (SELECT
    1 FROM orders o WHERE o.customer_id = c.id - 1) OR NOT c.vip;

-- name: join_next
SELECT a.id, b.id AS next FROM orders a JOIN orders b ON b.id = a.id + 1 WHERE a.quantity * 2 > b.quantity;

-- name: group_by_distinct
SELECT region, vip, count(*) AS n, grouping(region, vip) AS g FROM customer GROUP BY DISTINCT ROLLUP (region, vip),
    ROLLUP (region);

-- name: rec_base_union
WITH RECURSIVE r(n) AS (SELECT id FROM customer UNION ALL SELECT 20 UNION ALL SELECT n + 10 FROM r WHERE n < 25)
    SELECT n FROM r;

-- name: rec_step_union
WITH RECURSIVE r(n) AS (SELECT id FROM customer UNION (SELECT n + 1 FROM r WHERE n < 6 UNION ALL SELECT customer_id
    FROM orders WHERE quantity = 3)) SELECT n FROM r;

-- name: rec_base_intersect
WITH RECURSIVE r(n) AS ((SELECT id FROM customer INTERSECT SELECT customer_id FROM orders) UNION SELECT n + 1 FROM r
    WHERE n < 6) SELECT n FROM r;

-- name: sets_of_table
SELECT o.id, s.x FROM orders o, LATERAL (SELECT unnest(ARRAY[o.quantity, l.units]) AS x FROM line l WHERE l.order_id
    = o.id) s;

-- name: recursion_with_cycle
WITH RECURSIVE r(n, name) AS (SELECT id, name FROM customer UNION ALL SELECT (r.n + 1) % 4, c.name FROM r JOIN customer c ON c.id = r.n % 3) CYCLE n, name SET c TO 1 DEFAULT 0 USING w SELECT n, name, c, w::text AS w FROM r;

-- name: recursion_with_search
WITH RECURSIVE r(n) AS (SELECT id FROM customer UNION ALL SELECT n + 2 FROM r WHERE n < 9) SEARCH BREADTH FIRST BY n SET o SELECT n FROM r ORDER BY o;

-- name: recursion_with_both
WITH RECURSIVE r(n, p) AS (SELECT id, NULL::int FROM customer UNION ALL SELECT (n + 1) % 5, n FROM r) SEARCH DEPTH FIRST BY n SET o CYCLE n SET c USING w SELECT n, p, c, o::text AS o FROM r WHERE NOT c;

-- name: records_of_json
SELECT c.id, r.* FROM customer c, ROWS FROM (jsonb_to_recordset(jsonb_build_array(c.notes, jsonb_build_object('a', c.name, 'b', c.id))) AS (a text, b int, c jsonb, d bool)) WITH ORDINALITY AS r(a, b, c, d, n);

-- name: record_of_json
SELECT c.id, r.* FROM customer c, jsonb_to_record(c.notes) AS r(a numeric(5,1), b numeric, z text);

-- name: matches_in_rows
SELECT c.id, m, n FROM customer c, regexp_matches(c.name COLLATE "C", '(.)b', 'g') WITH ORDINALITY AS t(m, n);

-- name: first_match_in_rows
SELECT o.id, regexp_matches(o.state, '[a-p]+') AS m FROM orders o;

-- name: split_in_rows_by_case
SELECT o.id, p FROM orders o, regexp_split_to_table(o.state, 'A', 'i') p;

-- name: ranges_together
SELECT region, range_agg(int4range(id, id + 1)) AS i, range_agg(daterange(born, born + 40, '[]')) AS d, range_intersect_agg(daterange(born, NULL)) AS s, lower(range_intersect_agg(int8range(id, 100))) AS l FROM customer GROUP BY region;

-- name: ranges_met
SELECT c.id, o.id AS o FROM customer c JOIN orders o ON int4range(c.id, c.id + 2) @> o.customer_id AND int4range(c.id, 9) && int4range(o.quantity, NULL);

-- name: formatted_texts
SELECT id, format('%s:%5s|%-6L%%', name, id, region) AS f, quote_nullable(region) AS q FROM customer;
