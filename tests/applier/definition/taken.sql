-- Queries that are taken: each has a golden plan, and its Spark snapshot equals PostgreSQL.

-- name: select_where
SELECT id, name, credit FROM customer WHERE credit > 100 AND vip;

-- name: all_columns
SELECT * FROM customer;

-- name: whole_table_keyword
TABLE log;

-- name: no_key_read
SELECT name, region FROM customer;

-- name: constant_column
SELECT 1 AS one, 'it''s' AS word, 2.50 AS price, DATE '2024-02-29' AS leap, id FROM customer;

-- name: null_columns
SELECT NULL AS nothing, NULL::int AS number, NULL::numeric AS amount, id FROM customer;

-- name: arithmetic
SELECT id, quantity * 2 - 1 AS q, amount * quantity AS total, -amount AS back FROM orders;

-- name: integer_division
SELECT id, quantity / 3 AS third, quantity % 3 AS rest FROM orders;

-- name: numeric_functions
SELECT id, round(amount) AS r, round(amount, 1) AS r1, ceil(amount), floor(amount), abs(amount)
FROM orders;

-- name: casts
SELECT orders.id::int, quantity::bigint, amount::int AS whole, amount::numeric(6,1) AS short, region::varchar(2)
FROM orders, customer
WHERE orders.customer_id = customer.id;

-- name: null_tests
SELECT id, amount IS NULL AS missing, state IS NOT NULL AS known FROM orders;

-- name: three_valued
SELECT id FROM customer WHERE NOT (vip AND credit > 10) OR vip IS UNKNOWN;

-- name: truth_tests
SELECT id, vip IS TRUE AS a, vip IS NOT TRUE AS b, vip IS FALSE AS c, vip IS NOT FALSE AS d
FROM customer;

-- name: distinct_from
SELECT id, amount IS DISTINCT FROM 10 AS d, quantity IS NOT DISTINCT FROM NULL AS n FROM orders;

-- name: case_searched
SELECT id, CASE WHEN amount > 50 THEN 'big' WHEN amount > 20 THEN 'middle' END AS size FROM orders;

-- name: case_simple
SELECT id, CASE quantity WHEN 1 THEN amount WHEN 2 THEN 0 ELSE 1.5 END AS v FROM orders;

-- name: case_guards_division
SELECT id, CASE WHEN quantity <> 0 THEN 100 / quantity END AS share FROM orders;

-- name: coalesce
SELECT id, coalesce(amount, 0) AS amount, coalesce(state, 'none') AS state FROM orders;

-- name: nullif
SELECT id, nullif(quantity, 2) AS q, nullif(state, 'open') AS s FROM orders;

-- name: in_list
SELECT id FROM orders WHERE state IN ('open', 'paid') AND quantity NOT IN (1, 2);

-- name: between
SELECT id FROM orders WHERE amount BETWEEN 10 AND 60;

-- name: text_order
SELECT id FROM orders WHERE state >= 'o' AND state < 'p';

-- name: text_functions
SELECT id, name || '/' || coalesce(region, '') AS label, length(name) FROM customer;

-- name: like
SELECT id FROM customer WHERE name LIKE 'a%' OR name NOT LIKE '%\_%';

-- name: char_n
SELECT id, code, code = 'ab' AS ab, length(code), code::text || '.' AS dotted FROM customer;

-- name: dates
SELECT id, placed FROM orders WHERE placed >= '2024-01-01' AND delivered < '2024-06-01 12:00';

-- name: date_arithmetic
SELECT id, born, delivered::date - born AS days FROM customer JOIN orders USING (id);

-- name: uuid_and_json
SELECT id, tag, notes, wealth, score FROM customer WHERE tag IS NOT NULL AND score > '0.5';

-- name: domain_column
SELECT id, cost, cost + 1 AS more FROM orders WHERE cost > 2;

-- name: join_on
SELECT c.id, c.name, o.amount FROM customer c JOIN orders o ON o.customer_id = c.id;

-- name: join_using
SELECT id, name, amount FROM customer JOIN orders USING (id);

-- name: join_natural
SELECT * FROM line NATURAL JOIN (SELECT id AS order_id, state FROM orders) o;

-- name: join_comma
SELECT c.name, o.id FROM customer c, orders o WHERE c.id = o.customer_id AND o.amount > 20 AND c.vip;

-- name: join_residual
SELECT c.id, o.id AS oid
FROM customer c
JOIN orders o ON c.id = o.customer_id AND c.credit > o.amount;

-- name: join_range_only
SELECT c.id, l.event FROM customer c JOIN log l ON c.id > l.customer_id;

-- name: join_cross
SELECT a.event, b.weight FROM log a CROSS JOIN log b;

-- name: join_expressions
SELECT o.id, l.number FROM orders o, line l WHERE o.amount = l.units AND o.state = l.sku;

-- name: join_three
SELECT c.name, o.id, l.sku
FROM line l, customer c, orders o
WHERE o.customer_id = c.id AND l.order_id = o.id;

-- name: join_raising
SELECT c.id
FROM customer c
JOIN orders o ON c.id = o.customer_id
WHERE 100 / nullif(o.quantity, 0) > 20;

-- name: self_join
SELECT a.customer_id, a.event, b.event AS other
FROM log a
JOIN log b ON a.customer_id = b.customer_id;

-- name: count_all
SELECT count(*) FROM orders;

-- name: sums
SELECT sum(quantity) AS q, sum(amount) AS a, sum(id) AS i, count(state) AS s FROM orders;

-- name: sum_bigint
SELECT customer_id, sum(weight) FROM log GROUP BY customer_id;

-- name: group_by
SELECT customer_id, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer_id;

-- name: group_only
SELECT region FROM customer GROUP BY region;

-- name: group_expression
SELECT quantity % 2 AS odd, quantity % 2 + 1 AS more, count(*) FROM orders GROUP BY quantity % 2;

-- name: group_hidden
SELECT count(*) FROM orders GROUP BY state;

-- name: group_char_n
SELECT code, count(*) FROM customer GROUP BY code;

-- name: group_types
SELECT vip, born, credit, tag, count(*) FROM customer GROUP BY vip, born, credit, tag;

-- name: group_key_covers
SELECT c.id, c.name, c.region, count(*)
FROM customer c
JOIN log l ON l.customer_id = c.id
GROUP BY c.id;

-- name: having
SELECT state, sum(amount) AS total
FROM orders
GROUP BY state
HAVING count(*) > 1 AND sum(amount) > 10;

-- name: having_alone
SELECT count(*) AS n FROM orders HAVING sum(quantity) > 0;

-- name: aggregate_arithmetic
SELECT customer_id, sum(amount) + 1 AS a, sum(amount * quantity) AS b, 2 * count(*) AS c
FROM orders
GROUP BY customer_id;

-- name: coalesced_sum
SELECT customer_id, coalesce(sum(amount), 0) AS total FROM orders GROUP BY customer_id;

-- name: min_max
SELECT customer_id, min(amount) AS a, max(quantity) AS b, min(placed) AS c, max(delivered::date) AS d, max(state) AS e
FROM orders
GROUP BY customer_id;

-- name: min_max_of_all
SELECT min(code) AS a, max(code) AS b, max(score) AS c, min(born) AS d, count(*) AS n FROM customer;

-- name: truth_aggregates
SELECT region, bool_and(vip) AS a, bool_or(credit > 0) AS b, every(born IS NULL) AS c FROM customer GROUP BY region;

-- name: bit_aggregates
SELECT customer_id, bit_and(quantity) AS a, bit_or(id) AS b FROM orders GROUP BY customer_id;

-- name: aggregate_distinct
SELECT customer_id, count(DISTINCT state) AS a, sum(DISTINCT quantity) AS b, count(DISTINCT amount) AS c,
    sum(DISTINCT amount) AS d, count(amount) AS e
FROM orders
GROUP BY customer_id;

-- name: aggregate_filter
SELECT customer_id, count(*) FILTER (WHERE state = 'open') AS a, sum(amount) FILTER (WHERE quantity > 1) AS b,
    max(amount) FILTER (WHERE state = 'open') AS c, count(DISTINCT state) FILTER (WHERE amount > 0) AS d
FROM orders
GROUP BY customer_id;

-- name: aggregate_filter_guards
SELECT customer_id, sum(100 / quantity) FILTER (WHERE quantity <> 0) AS a FROM orders GROUP BY customer_id;

-- name: string_agg_ordered
SELECT customer_id, string_agg(state, ', ' ORDER BY id DESC) AS a, string_agg(DISTINCT state, '' ORDER BY state) AS b,
    string_agg(state, '|' ORDER BY state NULLS FIRST) AS c
FROM orders
GROUP BY customer_id;

-- name: array_agg_ordered
SELECT customer_id, array_agg(id ORDER BY amount DESC, id) AS a, array_agg(state ORDER BY id) AS b,
    array_agg(amount ORDER BY amount NULLS FIRST) AS c, array_agg(DISTINCT quantity ORDER BY quantity) AS d
FROM orders
GROUP BY customer_id;

-- name: percentiles
SELECT customer_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS a,
    percentile_disc(0.25) WITHIN GROUP (ORDER BY amount DESC) AS b, mode() WITHIN GROUP (ORDER BY state) AS c
FROM orders
GROUP BY customer_id;

-- name: join_group
SELECT c.region, count(*) AS n, sum(o.amount) AS total
FROM customer c
JOIN orders o ON o.customer_id = c.id
WHERE o.state = 'open'
GROUP BY c.region;

-- name: subquery
SELECT s.q + 1 AS r
FROM (SELECT quantity * 2 AS q, state FROM orders WHERE amount > 10) s
WHERE s.q > 2;

-- name: subquery_group
SELECT n, count(*)
FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id) t
GROUP BY n;

-- name: join_aggregate
SELECT c.name, t.total
FROM customer c
JOIN (SELECT customer_id, sum(amount) AS total FROM orders GROUP BY customer_id) t ON t.customer_id = c.id;

-- name: view
SELECT id, amount FROM open_orders WHERE amount > 10;

-- name: view_of_view
SELECT c.name, t.total, t.n FROM customer c JOIN open_totals t ON t.customer_id = c.id;

-- name: view_pruned
SELECT customer_id FROM open_totals;

-- name: partitioned
SELECT place, sum(value) FROM measure WHERE day >= '2019-01-01' GROUP BY place;

-- name: order_by_ignored
SELECT id, name FROM customer ORDER BY name, id DESC;

-- name: only_parent
SELECT id FROM ONLY parent;

-- name: case_guards_twice
SELECT id, CASE WHEN quantity <> 0 THEN 100 / quantity END + CASE WHEN quantity <> 0 THEN 100 / quantity END AS v
FROM orders;

-- name: where_guards_division
SELECT id FROM orders WHERE quantity <> 0 AND 100 / quantity > 20;

-- name: subquery_guards_division
SELECT id, x FROM (SELECT id, 100 / quantity AS x FROM orders WHERE quantity <> 0) s WHERE x > 20;

-- name: string_functions
SELECT id, substr(name, 2) AS s, substring(name FROM 0 FOR 3) AS w, left(name, -1) AS l, right(name, 2) AS r,
       strpos(name, 'b') AS p, replace(name, 'a', 'xy') AS x, trim(name) AS t, md5(name) AS m
FROM customer;

-- name: text_of_numbers
SELECT id::text || '-' || quantity::text AS label, vip::text AS yes, tag::text AS tag
FROM orders JOIN customer USING (id);

-- name: calendar
SELECT date_trunc('month', delivered) AS month, extract(year FROM born) AS y, extract(dow FROM born) AS d, count(*)
FROM orders JOIN customer ON customer.id = orders.customer_id
GROUP BY date_trunc('month', delivered), extract(year FROM born), extract(dow FROM born);

-- name: per_day_in_utc
SELECT (placed AT TIME ZONE 'UTC')::date AS day, count(*), sum(amount) FROM orders GROUP BY 1;

-- name: numeric_remainders
SELECT id, amount % 3 AS rest, trunc(amount) AS whole, sign(amount) AS side FROM orders;

-- name: extremes
SELECT id, greatest(amount, 10, quantity) AS g, least(id, 3) AS l, greatest(state, 'm') AS s, least(placed, NULL) AS p
FROM orders;

-- name: floats
SELECT id, score > 0 AS positive, round(score) AS r, score::int AS i, credit::float8 AS f, id::float8 AS d FROM customer;

-- name: uuid_literal
SELECT id FROM customer WHERE tag = '00000000-0000-0000-0000-000000000001';

-- name: more_strings
SELECT id, split_part(name, 'b', 1) AS first, translate(name, 'ab', 'x') AS t FROM customer;

-- name: distinct
SELECT DISTINCT region, vip, code FROM customer;

-- name: distinct_expression
SELECT DISTINCT quantity % 2 AS odd, state || '!' AS s FROM orders ORDER BY 1;

-- name: distinct_of_keyed_rows
SELECT DISTINCT id, name FROM customer;

-- name: distinct_groups
SELECT DISTINCT count(*) AS n FROM orders GROUP BY customer_id;

-- name: distinct_subquery
SELECT count(*) AS n FROM (SELECT DISTINCT region, vip FROM customer) s;

-- name: with_query
WITH big AS (SELECT id, customer_id, amount FROM orders WHERE amount > 10) SELECT id, amount FROM big;

-- name: with_twice
WITH t AS (SELECT customer_id, sum(amount) AS total FROM orders GROUP BY customer_id)
SELECT a.customer_id, b.customer_id AS other FROM t a JOIN t b ON a.total < b.total;

-- name: with_of_with
WITH big AS (SELECT * FROM orders WHERE amount > 10), per AS (SELECT customer_id, count(*) AS n FROM big GROUP BY 1)
SELECT c.name, s.n FROM customer c JOIN (SELECT per.customer_id, n FROM per, LATERAL (SELECT 1 AS x FROM big) y) s
  ON s.customer_id = c.id;

-- name: with_shadowed
WITH w AS (SELECT id FROM customer)
SELECT id FROM w JOIN (WITH w AS (SELECT id FROM orders) SELECT id FROM w) v USING (id);

-- name: union_all
SELECT id, name FROM customer UNION ALL SELECT id, state FROM orders WHERE amount > 0;

-- name: union_all_of_three
SELECT quantity AS n, NULL AS s FROM orders UNION ALL SELECT id, region FROM customer
UNION ALL (SELECT weight, event FROM log ORDER BY 1) ORDER BY 2;

-- name: union_all_decimals
SELECT credit AS m FROM customer UNION ALL SELECT cost FROM orders UNION ALL SELECT 1.5 FROM log;

-- name: union_all_counted
SELECT count(*) AS n FROM (SELECT id, region FROM customer UNION ALL SELECT units, sku FROM line) u;

-- name: union_distinct
SELECT customer_id FROM orders UNION SELECT customer_id FROM log;

-- name: intersect
SELECT customer_id, quantity FROM orders INTERSECT SELECT customer_id, weight FROM log;

-- name: intersect_all
SELECT customer_id, state FROM orders INTERSECT ALL SELECT customer_id, event FROM log;

-- name: except
SELECT id FROM customer EXCEPT SELECT customer_id FROM orders;

-- name: except_all
SELECT state FROM orders EXCEPT ALL SELECT event FROM log;

-- name: set_operations_nested
SELECT customer_id FROM orders EXCEPT (SELECT customer_id FROM log UNION ALL SELECT NULL::int FROM customer)
UNION ALL (SELECT id FROM customer INTERSECT SELECT customer_id FROM log UNION SELECT units FROM line);

-- name: union_of_one_column
SELECT customer_id FROM (SELECT customer_id, state FROM orders UNION SELECT customer_id, event FROM log) u;

-- name: union_all_integers_and_numerics
SELECT amount FROM orders UNION ALL SELECT customer_id FROM log;

-- name: union_all_grouped
WITH u AS (SELECT customer_id AS c, event AS e FROM log UNION ALL SELECT id, name FROM customer)
SELECT c, count(e) AS n FROM u GROUP BY c;

-- name: union_all_of_members
WITH w AS (SELECT id FROM customer) SELECT id FROM w UNION ALL SELECT id + 1 FROM w;

-- name: left_join
SELECT c.id, c.name, o.id AS order_id, o.amount FROM customer c LEFT JOIN orders o ON o.customer_id = c.id;

-- name: left_join_lookup
SELECT o.id, o.amount, c.name, coalesce(c.region, '?') AS region FROM orders o LEFT JOIN customer c ON c.id = o.customer_id;

-- name: right_join
SELECT o.id, c.name FROM customer c RIGHT JOIN orders o ON o.customer_id = c.id AND c.vip;

-- name: full_join
SELECT c.id, o.id AS order_id, o.state FROM customer c FULL JOIN orders o ON o.customer_id = c.id;

-- name: full_join_using
SELECT customer_id, l.event, o.quantity FROM log l FULL JOIN orders o USING (customer_id) WHERE customer_id > 1 OR event IS NULL;

-- name: full_join_of_groups
SELECT a.region, a.n, b.n AS m FROM (SELECT region, count(*) AS n FROM customer GROUP BY region) a
FULL JOIN (SELECT event, count(*) AS n FROM log GROUP BY event) b ON a.region = b.event;

-- name: left_join_residual
SELECT c.id, o.id AS order_id FROM customer c
LEFT JOIN orders o ON o.customer_id = c.id AND o.amount > c.credit AND o.state = 'open' AND c.vip;

-- name: left_join_no_equality
SELECT a.id, b.id AS other FROM customer a LEFT JOIN customer b ON a.id < b.id AND a.credit < b.credit;

-- name: left_join_where_null
SELECT c.id FROM customer c LEFT JOIN orders o ON o.customer_id = c.id WHERE o.id IS NULL;

-- name: left_joins
SELECT c.name, o.state, l.sku FROM customer c LEFT JOIN orders o ON o.customer_id = c.id
LEFT JOIN line l ON l.order_id = o.id AND l.units > 0;

-- name: left_join_nested
SELECT c.id, o.id AS order_id, l.number FROM customer c
LEFT JOIN (orders o JOIN line l ON l.order_id = o.id) ON o.customer_id = c.id WHERE c.id > 0;

-- name: left_join_amid_inner
SELECT g.event, c.name, o.id FROM log g JOIN customer c ON c.id = g.customer_id
LEFT JOIN orders o ON o.customer_id = c.id AND o.quantity = g.customer_id JOIN line l ON l.order_id = c.id;

-- name: left_join_constant
SELECT c.id, s.one FROM customer c LEFT JOIN (SELECT customer_id, 1 AS one FROM log) s ON s.customer_id = c.id;

-- name: left_join_grouped
SELECT c.region, count(*) AS n, count(o.id) AS orders, sum(o.amount) AS total
FROM customer c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.region;

-- name: left_join_self
SELECT a.id, b.id AS other, b.name FROM customer a LEFT JOIN customer b ON b.name = a.region AND b.id > a.id;

-- name: exists
SELECT id, name FROM customer c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id);

-- name: not_exists
SELECT id FROM customer c
WHERE vip AND NOT EXISTS (SELECT * FROM orders o WHERE o.customer_id = c.id AND o.amount > c.credit AND o.state = 'open');

-- name: exists_of_nothing_in_common
SELECT id FROM customer WHERE EXISTS (SELECT 1 FROM log WHERE weight > 5);

-- name: not_exists_of_nothing_in_common
SELECT id FROM customer WHERE NOT EXISTS (SELECT 1 FROM log WHERE event = 'nothing') AND id > 1;

-- name: exists_within_exists
SELECT id FROM customer c WHERE EXISTS (
  SELECT 1 FROM orders o WHERE o.customer_id = c.id AND NOT EXISTS (SELECT 1 FROM line l WHERE l.order_id = o.id));

-- name: exists_of_join
SELECT g.event FROM log g
WHERE EXISTS (SELECT 1 FROM orders o JOIN line l ON l.order_id = o.id WHERE g.customer_id = o.customer_id AND l.units > 0);

-- name: exists_over_using
SELECT customer_id FROM log l FULL JOIN orders o USING (customer_id)
WHERE EXISTS (SELECT 1 FROM customer c WHERE c.id = customer_id);

-- name: in_subquery
SELECT id FROM customer WHERE id IN (SELECT customer_id FROM orders WHERE amount > 0);

-- name: in_wider
SELECT event FROM log WHERE customer_id IN (SELECT id FROM orders);

-- name: in_groups
SELECT id, name FROM customer WHERE id IN (SELECT customer_id FROM orders GROUP BY customer_id HAVING count(*) > 2);

-- name: in_union
SELECT id FROM customer WHERE name IN (SELECT event FROM log UNION ALL SELECT state FROM orders);

-- name: in_two_columns
SELECT id FROM orders WHERE (customer_id, state) IN (SELECT customer_id, event FROM log);

-- name: in_correlated
SELECT id FROM orders o WHERE state IN (SELECT event FROM log l WHERE l.customer_id = o.customer_id);

-- name: in_expression
SELECT id FROM customer WHERE id IN (SELECT quantity + 1 FROM orders);

-- name: less_than_any
SELECT id FROM customer WHERE credit < ANY (SELECT amount FROM orders);

-- name: not_less_than_any
SELECT id FROM customer WHERE NOT credit < ANY (SELECT amount FROM orders WHERE amount < 0);

-- name: not_in
SELECT id FROM customer WHERE id NOT IN (SELECT customer_id FROM orders);

-- name: not_in_with_nulls
SELECT id FROM customer WHERE region NOT IN (SELECT event FROM log);

-- name: not_in_without_nulls_inside
SELECT id FROM customer WHERE region NOT IN (SELECT event FROM log WHERE event IS NOT NULL);

-- name: not_in_of_nothing
SELECT id FROM customer WHERE region NOT IN (SELECT event FROM log WHERE event = 'nothing');

-- name: not_in_correlated
SELECT id FROM orders o WHERE state NOT IN (SELECT event FROM log l WHERE l.customer_id = o.customer_id);

-- name: not_in_two_columns
SELECT id FROM orders WHERE (quantity, state) NOT IN (SELECT customer_id, event FROM log);

-- name: exists_grouped
WITH busy AS (SELECT customer_id FROM orders WHERE quantity > 1)
SELECT region, count(*) AS n FROM customer c WHERE EXISTS (SELECT 1 FROM busy b WHERE b.customer_id = c.id) GROUP BY region;

-- name: union_all_limit
SELECT id FROM customer UNION ALL SELECT id FROM orders ORDER BY id DESC LIMIT 4;

-- name: limit
SELECT id, name FROM customer ORDER BY id LIMIT 3;

-- name: limit_text
SELECT name, id FROM customer ORDER BY name DESC, id LIMIT 4;

-- name: limit_nulls
SELECT id, amount, state FROM orders ORDER BY state NULLS FIRST, amount DESC NULLS LAST, id OFFSET 2 LIMIT 5;

-- name: limit_hidden_order
SELECT state FROM orders ORDER BY quantity DESC, id LIMIT 5;

-- name: limit_all
SELECT id FROM orders ORDER BY id LIMIT ALL;

-- name: limit_zero
SELECT id FROM orders ORDER BY id LIMIT 0;

-- name: limit_of_equal_rows
SELECT region, vip FROM customer ORDER BY vip, region LIMIT 3;

-- name: offset
SELECT id FROM customer ORDER BY id DESC OFFSET 3;

-- name: with_ties
SELECT id, quantity FROM orders ORDER BY quantity FETCH FIRST 3 ROWS WITH TIES;

-- name: with_ties_offset
SELECT id, quantity FROM orders ORDER BY quantity, id OFFSET 1 FETCH FIRST 3 ROWS WITH TIES;

-- name: limit_groups
SELECT region, sum(credit) AS total FROM customer GROUP BY region ORDER BY total DESC NULLS LAST, region LIMIT 2;

-- name: limit_distinct
SELECT DISTINCT region FROM customer ORDER BY region DESC LIMIT 2;

-- name: limit_of_limit
SELECT c.name, t.amount FROM (SELECT customer_id, amount, id FROM orders ORDER BY amount DESC, id LIMIT 8) t
JOIN customer c ON c.id = t.customer_id WHERE t.amount > 0;

-- name: limit_over_types
SELECT id, code, born, tag, score FROM customer ORDER BY code, born DESC, tag, score DESC, vip, id LIMIT 4;

-- name: distinct_on
SELECT DISTINCT ON (region) region, id, name FROM customer ORDER BY region, name DESC, id;

-- name: distinct_on_hidden
SELECT DISTINCT ON (customer_id, state) amount FROM orders ORDER BY state, customer_id DESC, placed DESC, id;

-- name: distinct_on_expression
SELECT DISTINCT ON (coalesce(region, name)) id, name FROM customer ORDER BY coalesce(region, name), id DESC;

-- name: distinct_on_limit
SELECT DISTINCT ON (customer_id) customer_id, id, amount FROM orders ORDER BY customer_id, amount, id LIMIT 2;

-- name: distinct_on_without_order
SELECT DISTINCT ON (customer_id) customer_id FROM orders;

-- name: exists_with_limit
SELECT id FROM customer c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id LIMIT 1);

-- name: not_exists_with_limit
SELECT id FROM customer c WHERE NOT EXISTS (SELECT 1 FROM log WHERE weight > 5 LIMIT 1);

-- name: in_with_limit
SELECT id FROM customer WHERE id IN (SELECT customer_id FROM orders ORDER BY amount, id LIMIT 3);

-- name: limit_undecided
SELECT id, name FROM customer ORDER BY id + 0 DESC LIMIT 3;

-- name: window_rank
SELECT id, region, row_number() OVER (PARTITION BY region ORDER BY credit DESC, id) AS rn,
       rank() OVER (PARTITION BY region ORDER BY vip) AS rk, dense_rank() OVER (ORDER BY born) AS dr,
       percent_rank() OVER (ORDER BY credit) AS pr, cume_dist() OVER (ORDER BY credit DESC NULLS LAST) AS cd,
       ntile(3) OVER (ORDER BY id) AS nt
FROM customer;

-- name: window_values
SELECT id, lag(amount) OVER w AS p, lead(amount, 2, 0) OVER w AS n, lag(state, 1, 'none') OVER w AS s,
       first_value(amount) OVER w AS f, last_value(id) OVER w AS l, nth_value(amount, 2) OVER w AS n2,
       last_value(state) OVER (PARTITION BY customer_id ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS e
FROM orders WINDOW w AS (PARTITION BY customer_id ORDER BY id DESC);

-- name: window_aggregates
SELECT id, count(*) OVER () AS n, count(amount) OVER (PARTITION BY state) AS c, sum(quantity) OVER (PARTITION BY state) AS q,
       sum(amount) OVER (PARTITION BY customer_id ORDER BY quantity) AS run, min(amount) OVER (PARTITION BY state) AS lo,
       max(state) OVER (ORDER BY quantity) AS hi, min(placed) OVER (PARTITION BY customer_id) AS p, sum(id) OVER () AS s
FROM orders;

-- name: window_filter
SELECT id, count(*) FILTER (WHERE amount > 0) OVER (PARTITION BY state) AS c,
       sum(amount) FILTER (WHERE quantity > 1) OVER (ORDER BY id) AS s,
       max(quantity) FILTER (WHERE state = 'open') OVER (PARTITION BY customer_id) AS m
FROM orders;

-- name: window_rows
SELECT id, sum(amount) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s3,
       count(*) OVER (PARTITION BY state ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS c,
       max(quantity) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS m,
       min(quantity) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS b,
       count(*) OVER (ORDER BY id ROWS 0 PRECEDING) AS one
FROM orders;

-- name: window_range
SELECT id, count(*) OVER (ORDER BY quantity RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS c,
       sum(amount) OVER (ORDER BY amount DESC RANGE BETWEEN 10.5 PRECEDING AND CURRENT ROW) AS s,
       count(*) OVER (ORDER BY id RANGE BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING) AS f,
       count(*) OVER (ORDER BY quantity DESC NULLS LAST RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS d,
       sum(quantity) OVER (ORDER BY state, quantity RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS t
FROM orders;

-- name: window_range_extremes
SELECT weight, count(*) OVER (ORDER BY weight RANGE BETWEEN 9223372036854775807 PRECEDING AND 4611686018427387904 FOLLOWING) AS c
FROM log;

-- name: window_groups
SELECT id, sum(amount) OVER (ORDER BY quantity GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s,
       count(*) OVER (PARTITION BY state ORDER BY quantity DESC GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS c,
       max(amount) OVER (ORDER BY state, quantity GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS m
FROM orders;

-- name: window_exclude_current_row
SELECT id, sum(amount) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS s,
       count(*) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS c,
       max(quantity) OVER (PARTITION BY state ORDER BY id ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING EXCLUDE CURRENT ROW) AS m,
       min(quantity) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE CURRENT ROW) AS z,
       sum(quantity) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING EXCLUDE CURRENT ROW) AS b
FROM orders;

-- name: window_exclude_peers
SELECT id, sum(amount) OVER (ORDER BY quantity GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS t,
       count(*) OVER (ORDER BY quantity GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) AS g,
       max(amount) OVER (PARTITION BY state ORDER BY quantity RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS c,
       min(quantity) OVER (ORDER BY customer_id RANGE UNBOUNDED PRECEDING EXCLUDE GROUP) AS m,
       avg(amount) FILTER (WHERE id > 2) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE GROUP) AS a,
       count(*) OVER (RANGE BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE TIES) AS one,
       count(amount) OVER (PARTITION BY quantity RANGE UNBOUNDED PRECEDING EXCLUDE GROUP) AS none,
       first_value(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS f,
       last_value(amount) OVER (PARTITION BY customer_id ORDER BY id GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES) AS l,
       nth_value(id, 2) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE GROUP) AS n
FROM orders;

-- name: window_of_equal_rows_exclude
SELECT customer_id, event, count(*) OVER (ORDER BY customer_id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) AS c,
       sum(weight) OVER (ORDER BY event COLLATE "C" GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING EXCLUDE TIES) AS s FROM log;

-- name: window_empty_frame
SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) AS c,
       sum(amount) OVER (ORDER BY quantity RANGE BETWEEN 1 PRECEDING AND 2 PRECEDING) AS s,
       max(amount) OVER (ORDER BY amount RANGE BETWEEN 0.75 FOLLOWING AND 0.5 FOLLOWING) AS m,
       first_value(id) OVER (ORDER BY quantity, id GROUPS BETWEEN 3 FOLLOWING AND 1 FOLLOWING) AS f
FROM orders;

-- name: window_range_float
SELECT id, count(*) OVER (ORDER BY score RANGE BETWEEN 0.5 PRECEDING AND CURRENT ROW) AS c,
       max(id) OVER (ORDER BY score DESC RANGE BETWEEN 0.25 PRECEDING AND 1 FOLLOWING) AS m,
       count(*) OVER (ORDER BY score::real RANGE BETWEEN CURRENT ROW AND 0.75 FOLLOWING) AS r FROM customer;

-- name: window_range_months
SELECT id, count(*) OVER (ORDER BY delivered RANGE BETWEEN '1 month' PRECEDING AND CURRENT ROW) AS c,
       sum(quantity) OVER (PARTITION BY state ORDER BY delivered DESC RANGE BETWEEN '1 year 2 days' PRECEDING AND '5 mons' FOLLOWING) AS s,
       count(*) OVER (ORDER BY placed NULLS FIRST RANGE BETWEEN UNBOUNDED PRECEDING AND '3 mons' PRECEDING) AS u,
       min(amount) OVER (ORDER BY delivered::date RANGE BETWEEN '30 days' FOLLOWING AND '18 mons' FOLLOWING EXCLUDE GROUP) AS m,
       count(*) OVER (ORDER BY placed DESC RANGE BETWEEN CURRENT ROW AND '400 days' FOLLOWING) AS d
FROM orders;

-- name: window_lists
SELECT id, array_agg(quantity) OVER (PARTITION BY customer_id ORDER BY id) AS a,
       string_agg(state, ',') OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s,
       jsonb_agg(quantity) OVER (PARTITION BY quantity RANGE UNBOUNDED PRECEDING) AS j,
       stddev(quantity) OVER (ORDER BY id ROWS 3 PRECEDING) AS d, bit_xor(quantity) OVER (ORDER BY customer_id) AS x,
       sum(quantity::float8) OVER (ORDER BY id) AS f, avg(amount::float8) OVER (PARTITION BY state) AS g,
       var_pop(amount) FILTER (WHERE quantity > 0) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS v
FROM orders;

-- name: window_over_groups
SELECT region, sum(credit) AS total, rank() OVER (ORDER BY sum(credit) DESC NULLS LAST) AS r,
       sum(count(*)) OVER (ORDER BY region) AS running
FROM customer GROUP BY region HAVING count(*) > 1;

-- name: window_in_expression
SELECT o.id, o.amount - coalesce(lag(o.amount) OVER (PARTITION BY c.id ORDER BY o.id), 0) AS step, c.name
FROM orders o JOIN customer c ON c.id = o.customer_id;

-- name: window_filtered_above
SELECT id, name FROM (SELECT id, name, row_number() OVER (PARTITION BY region ORDER BY born DESC, id) AS n FROM customer) t
WHERE n <= 2;

-- name: window_of_equal_rows
SELECT region, row_number() OVER (ORDER BY region) AS n FROM customer;

-- name: window_distinct
SELECT DISTINCT region, count(*) OVER (PARTITION BY region) AS n FROM customer;

-- name: window_limit
SELECT id, rank() OVER (ORDER BY quantity) AS r FROM orders ORDER BY rank() OVER (ORDER BY quantity), id LIMIT 5;

-- name: window_no_columns
SELECT count(*) OVER () AS n FROM log;

-- name: window_first_of_peers
SELECT customer_id, state, first_value(customer_id) OVER (ORDER BY customer_id) AS f,
       last_value(customer_id) OVER (PARTITION BY customer_id) AS l FROM orders;

-- name: values
SELECT v, w FROM (VALUES (1, 'one'), (2, NULL), (2, NULL)) t(v, w);

-- name: values_alone
VALUES (1, true), (2, NULL);

-- name: values_joined
SELECT c.id, t.label FROM customer c LEFT JOIN (VALUES ('N', 'north'), ('S', 'south')) t(code, label) ON t.code = c.region;

-- name: values_computed
SELECT v FROM (VALUES (1 + 1), (abs(-3))) t(v) WHERE v > 2;

-- name: no_from
SELECT 1 AS one, 'a' AS a WHERE 1 < 2;

-- name: no_from_counted
SELECT count(*) AS n FROM (SELECT 1 AS one) t, customer c;

-- name: in_values
SELECT id FROM customer WHERE region IN (VALUES ('N'), ('S'));

-- name: series
SELECT g FROM generate_series(1, 10, 3) g;

-- name: series_joined
SELECT g.n, count(o.id) AS orders FROM generate_series(0, 4) AS g(n) LEFT JOIN orders o ON o.quantity = g.n GROUP BY g.n;

-- name: series_lateral
SELECT c.id, g FROM customer c, generate_series(1, c.id, 2) g WHERE g <> 3;

-- name: series_ordinality
SELECT c.id, t.n, t.o FROM customer c CROSS JOIN LATERAL generate_series(c.id, 0, -1) WITH ORDINALITY AS t(n, o);

-- name: series_left
SELECT c.id, g FROM customer c LEFT JOIN LATERAL generate_series(4, c.id) g ON true;

-- name: series_of_join
SELECT o.id, g, c.name FROM orders o JOIN customer c ON c.id = o.customer_id, generate_series(o.quantity::bigint, c.id::bigint) g;

-- name: unnest_listed
SELECT c.id, t.v, t.o FROM customer c, unnest(ARRAY[c.name, c.region::text, 'x']) WITH ORDINALITY AS t(v, o);

-- name: unnest_constant
SELECT u, count(c.id) AS n FROM unnest(ARRAY['N', 'S', NULL]) u LEFT JOIN customer c ON c.region = u GROUP BY u;

-- name: values_of_types
SELECT v FROM (VALUES (1), (2.5)) t(v);

-- name: union_all_of_carriers
SELECT credit FROM customer UNION ALL SELECT wealth FROM customer;

-- name: numeric_division
SELECT id, amount / 3 AS third FROM orders;

-- name: float_arithmetic
SELECT score + 1.5 AS more FROM customer;

-- name: cast_to_text
SELECT amount::text FROM orders;

-- name: numeric_nan
SELECT id FROM customer WHERE credit <> 'NaN';

-- name: long_literal
SELECT id FROM orders WHERE amount < 1234567890123456789012345678901234567890;

-- name: too_many_digits
SELECT id, amount * amount * amount * amount AS v FROM orders;

-- name: unbounded_comparison
SELECT id FROM customer WHERE wealth > 5;

-- name: stable_cast
SELECT id, placed::date AS day FROM orders;

-- name: stable_comparison
SELECT id FROM orders WHERE placed > delivered;

-- name: upper
SELECT upper(name) FROM customer;

-- name: regex
SELECT id FROM customer WHERE name ~ '^a';

-- name: extract_epoch
SELECT id, extract(epoch FROM delivered) AS e FROM orders;

-- name: interval
SELECT id FROM orders WHERE delivered > placed + interval '1 day';

-- name: interval_literal
SELECT id, interval '1 day' AS day FROM orders;

-- name: like_trailing_escape
SELECT id FROM customer WHERE name LIKE 'a\';

-- name: like_column
SELECT id FROM customer WHERE name LIKE region;

-- name: like_char_n
SELECT id FROM customer WHERE code LIKE 'a%';

-- name: lateral
SELECT c.id, o.n, o.total FROM customer c, LATERAL (SELECT count(*) AS n, sum(amount) AS total FROM orders WHERE customer_id = c.id) o;

-- name: lateral_rows
SELECT c.id, o.number, o.more FROM customer c, LATERAL (SELECT o.id AS number, o.quantity + c.id AS more FROM orders o
  WHERE o.customer_id = c.id AND o.amount < c.credit AND o.state = 'open') o WHERE o.number > 1;

-- name: lateral_left
SELECT c.id, o.n FROM customer c LEFT JOIN LATERAL (SELECT o.quantity + 1 AS n FROM orders o WHERE o.customer_id = c.id) o ON true;

-- name: lateral_top
SELECT c.id, t.number, t.amount FROM customer c CROSS JOIN LATERAL
  (SELECT o.id AS number, o.amount FROM orders o WHERE o.customer_id = c.id ORDER BY o.amount DESC NULLS LAST, o.id LIMIT 2) t;

-- name: lateral_top_left
SELECT c.id, c.name, t.state FROM customer c LEFT JOIN LATERAL
  (SELECT o.state FROM orders o WHERE o.customer_id = c.id AND o.quantity > 0 ORDER BY o.placed, o.id OFFSET 1 LIMIT 1) t ON true;

-- name: lateral_top_ties
SELECT c.id, t.quantity FROM customer c, LATERAL
  (SELECT quantity, id FROM orders WHERE customer_id = c.id ORDER BY quantity FETCH FIRST 1 ROW WITH TIES) t;

-- name: lateral_distinct_on
SELECT c.id, t.state, t.number FROM customer c, LATERAL
  (SELECT DISTINCT ON (state) state, id AS number FROM orders WHERE customer_id = c.id ORDER BY state, id DESC) t;

-- name: lateral_having
SELECT c.id, t.total FROM customer c LEFT JOIN LATERAL
  (SELECT sum(o.amount) AS total FROM orders o WHERE o.customer_id = c.id HAVING count(*) > 2) t ON true;

-- name: lateral_having_inner
SELECT c.id, t.n FROM customer c, LATERAL (SELECT count(o.id) AS n FROM orders o WHERE o.customer_id = c.id HAVING count(*) < 2) t;

-- name: lateral_groups
SELECT c.id, t.state, t.n FROM customer c LEFT JOIN LATERAL
  (SELECT o.state, count(*) AS n FROM orders o WHERE o.customer_id = c.id GROUP BY o.state HAVING sum(o.quantity) > 1) t ON true;

-- name: lateral_of_lateral
SELECT c.id, o.number, l.units FROM customer c, LATERAL (SELECT id AS number FROM orders WHERE customer_id = c.id) o,
  LATERAL (SELECT sum(units) AS units FROM line WHERE order_id = o.number) l WHERE l.units IS NOT NULL;

-- name: lateral_with_exists
SELECT c.id, o.number FROM customer c, LATERAL (SELECT o.id AS number FROM orders o WHERE o.customer_id = c.id
  AND EXISTS (SELECT 1 FROM line l WHERE l.order_id = o.id)) o;

-- name: array
SELECT ARRAY[id] AS ids FROM customer;

-- name: any_array
SELECT id FROM customer WHERE id = ANY ('{1,2}'::int[]);

-- name: row_comparison
SELECT id FROM customer WHERE (id, name) < (1, 'a');

-- name: jsonb_operator
SELECT notes ->> 'a' AS a FROM customer;

-- name: jsonb_equality
SELECT a.id FROM customer a JOIN customer b ON a.notes = b.notes;

-- name: recursive
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n, n * n AS square FROM r;

-- name: recursive_reachable
WITH RECURSIVE reached(a, b) AS (SELECT customer_id, quantity::int FROM orders
  UNION SELECT r.a, o.quantity::int FROM reached r JOIN orders o ON o.customer_id = r.b) SELECT a, b FROM reached;

-- name: recursive_levels
WITH RECURSIVE t AS (SELECT id, name, 1 AS lvl, name AS path FROM customer WHERE id = 0
  UNION ALL SELECT c.id, c.name, t.lvl + 1, t.path || '/' || c.name FROM customer c JOIN t ON c.id = t.id + 1)
SELECT lvl, path, o.amount FROM t LEFT JOIN orders o ON o.customer_id = t.id;

-- name: recursive_anti
WITH RECURSIVE r AS (SELECT id FROM customer WHERE vip
  UNION SELECT o.quantity::int FROM r JOIN orders o ON o.customer_id = r.id WHERE NOT EXISTS (SELECT 1 FROM log l WHERE l.customer_id = o.quantity))
SELECT count(*) AS n FROM r;

-- name: recursive_twice
WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 2 FROM r WHERE n < 6) SELECT a.n, b.n AS m FROM r a JOIN r b ON a.n < b.n;

-- name: window_range_interval
SELECT id, count(*) OVER (ORDER BY delivered RANGE BETWEEN '40 days 12:00' PRECEDING AND CURRENT ROW) AS c,
       sum(quantity) OVER (ORDER BY delivered::date DESC RANGE BETWEEN '1 day' PRECEDING AND '400 days' FOLLOWING) AS s FROM orders;

-- name: series_of_days
SELECT g.d, count(o.id) AS n FROM generate_series('2018-01-01'::timestamp, '2025-12-31 12:00', '30 days 06:00') AS g(d)
LEFT JOIN orders o ON o.delivered >= g.d AND o.delivered < g.d + interval '30 days 06:00' GROUP BY g.d;

-- name: unnest_of_column
SELECT c.id, t.u, t.o FROM customer c, unnest(string_to_array(c.name, 'b')) WITH ORDINALITY AS t(u, o);

-- name: unnest_left
SELECT c.id, u FROM customer c LEFT JOIN LATERAL unnest(ARRAY[c.id, NULL] || '{7}'::int[]) u ON true;

-- name: jsonb_elements
SELECT c.id, e FROM customer c, jsonb_array_elements(jsonb_build_array(c.id, c.notes)) e;

-- name: user_function
SELECT twice(id) FROM customer;

-- name: user_function_in_disguise
SELECT int4pl(name, name) FROM customer;

-- name: greatest
SELECT greatest(wealth, 1) FROM customer;
