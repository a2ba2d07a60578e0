-- Subqueries that do more with the query around them than to compare it in WHERE.

-- name: subquery_in_left_on
SELECT c.id, o.id AS oid FROM customer c LEFT JOIN orders o ON o.customer_id=c.id AND EXISTS (SELECT 1 FROM line l
    WHERE l.order_id=o.id);

-- name: in_group_corr
SELECT id FROM orders o WHERE id IN (SELECT max(i.id) FROM orders i WHERE i.customer_id=o.customer_id GROUP BY
    i.state);

-- name: scalar_outer_in_agg
SELECT c.id, (SELECT sum(o.amount * c.credit) FROM orders o WHERE o.customer_id=c.id) AS s FROM customer c;

-- name: scalar_join_inside_corr_on
SELECT c.id, (SELECT count(*) FROM orders o JOIN line l ON l.order_id=o.id AND l.units=c.id) AS s FROM customer c;

-- name: scalar_from_sub_corr
SELECT c.id, (SELECT max(n) FROM (SELECT count(*) AS n FROM orders o WHERE o.customer_id=c.id GROUP BY o.state) q)
    AS s FROM customer c;

-- name: scalar_in_group_by
SELECT (SELECT count(*) FROM orders o WHERE o.customer_id=c.id) AS n, count(*) AS m FROM customer c GROUP BY 1;

-- name: array_subquery_expr
SELECT c.id, array_to_string(ARRAY(SELECT o.state FROM orders o WHERE o.customer_id=c.id ORDER BY o.id), ',') AS a
    FROM customer c;

-- name: lateral_union
SELECT c.id, o.n FROM customer c, LATERAL (SELECT id AS n FROM orders WHERE customer_id=c.id UNION ALL SELECT c.id) o;

-- name: lateral_ineq_top
SELECT c.id, o.n FROM customer c, LATERAL (SELECT id AS n FROM orders WHERE customer_id < c.id ORDER BY id LIMIT 1) o;

-- name: lateral_join_on_outer
SELECT c.id, o.n FROM customer c, LATERAL (SELECT o.id AS n FROM orders o JOIN line l ON l.units=c.id) o;

-- name: lateral_agg_over_top
SELECT c.id, o.s FROM customer c, LATERAL (SELECT sum(amount) AS s FROM (SELECT amount FROM orders WHERE
    customer_id=c.id ORDER BY id DESC LIMIT 3) q) o;

-- name: left_join_func_on
SELECT c.id, g FROM customer c LEFT JOIN generate_series(1, c.id) g ON g > 2;

-- name: any_of_groups_selected
SELECT o.id, o.quantity IN (SELECT max(i.quantity) FROM orders i WHERE i.customer_id = o.customer_id GROUP BY
    i.state) AS a, o.quantity > ALL (SELECT count(*) FROM log l WHERE l.event = o.state GROUP BY l.customer_id) AS
    b, o.quantity <> ALL (SELECT DISTINCT l.customer_id FROM log l WHERE l.event = o.state) AS c FROM orders o;

-- name: not_in_groups
SELECT o.id FROM orders o WHERE o.quantity NOT IN (SELECT max(l.customer_id) FROM log l WHERE l.event = o.state
    GROUP BY l.weight);

-- name: null_outside
SELECT c.id, (SELECT count(*) FROM log l WHERE l.event IS NOT DISTINCT FROM c.region) AS n, (SELECT max(l.weight)
    FROM log l WHERE l.event IS NOT DISTINCT FROM c.region GROUP BY c.region) AS m, EXISTS (SELECT DISTINCT l.event
    FROM log l WHERE l.event IS NOT DISTINCT FROM c.region) AS e FROM customer c;

-- name: counted_with_having
SELECT c.id, (SELECT count(*) + coalesce(sum(o.quantity), c.id) FROM orders o WHERE o.customer_id = c.id HAVING
    count(*) < 3) AS n FROM customer c;

-- name: guess_of_none
SELECT c.id, (SELECT rank(2) WITHIN GROUP (ORDER BY o.quantity) FROM orders o WHERE o.customer_id = c.id) AS r,
    (SELECT cume_dist(2) WITHIN GROUP (ORDER BY o.quantity) FROM orders o WHERE o.customer_id = c.id AND c.vip) AS d
    FROM customer c;

-- name: full_join_asking
SELECT c.id, o.id AS oid FROM customer c FULL JOIN orders o ON o.customer_id = c.id AND EXISTS (SELECT 1 FROM line l
    WHERE l.order_id = o.id) AND c.credit > (SELECT min(amount) FROM orders);

-- name: left_lateral_on_both
SELECT c.id, o.n, o.s FROM customer c LEFT JOIN LATERAL (SELECT o.state AS s, count(*) AS n FROM orders o WHERE
    o.customer_id <= c.id GROUP BY o.state) o ON o.n >= c.id AND o.s > 'a';

-- name: lateral_except
SELECT c.id, o.s FROM customer c, LATERAL (SELECT state AS s FROM orders WHERE customer_id = c.id EXCEPT SELECT
    event FROM log WHERE customer_id = c.id) o;

-- name: lateral_union_distinct_limit
SELECT c.id, o.s FROM customer c LEFT JOIN LATERAL (SELECT state AS s FROM orders WHERE customer_id = c.id UNION
    SELECT event FROM log WHERE customer_id = c.id ORDER BY 1 LIMIT 2) o ON true;

-- name: three_levels
SELECT c.id FROM customer c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND EXISTS (SELECT 1
    FROM line l WHERE l.order_id = o.id AND EXISTS (SELECT 1 FROM log g WHERE g.customer_id = c.id AND g.event =
    o.state AND l.units IS NOT NULL)));

-- name: division
SELECT DISTINCT a.customer_id FROM log a WHERE NOT EXISTS (SELECT 1 FROM line l WHERE l.order_id = 1 AND NOT EXISTS
    (SELECT 1 FROM log b WHERE b.customer_id = a.customer_id AND b.event = l.sku));

-- name: outer_join_inside
SELECT c.id, (SELECT count(l.number) FROM orders o LEFT JOIN line l ON l.order_id = o.id AND l.units > c.id) AS n
    FROM customer c;

-- name: right_join_inside
SELECT c.id, (SELECT count(*) FROM line l RIGHT JOIN orders o ON l.order_id = o.id AND l.units > c.id WHERE
    o.customer_id <> c.id) AS n FROM customer c;

-- name: array_of_first
SELECT c.id, ARRAY(SELECT o.state FROM orders o WHERE o.customer_id = c.id ORDER BY o.id DESC LIMIT 2) AS a,
    ARRAY(SELECT DISTINCT o.quantity FROM orders o WHERE o.customer_id = c.id ORDER BY 1) AS b, ARRAY(SELECT o.id
    FROM orders o WHERE o.customer_id = c.id UNION SELECT 7 ORDER BY 1) AS d FROM customer c;

-- name: array_of_groups
SELECT c.id, ARRAY(SELECT count(*) FROM orders o WHERE o.customer_id = c.id GROUP BY o.state ORDER BY o.state) AS a
    FROM customer c;

-- name: left_lateral_values_on
SELECT c.id, v.k, v.x FROM customer c LEFT JOIN LATERAL (VALUES ('a', c.credit), ('b', c.id::numeric), (NULL, NULL))
    AS v(k, x) ON v.x > 2;

-- name: lateral_values_left
SELECT c.id, v.k, v.x FROM customer c LEFT JOIN LATERAL (VALUES ('a', c.credit), ('b', c.id::numeric)) AS v(k, x) ON
    true;

-- name: values_of_duplicates
SELECT l.event, v.x, count(*) AS n FROM log l, LATERAL (VALUES (l.weight), (l.customer_id), (1)) AS v(x) GROUP BY
    l.event, v.x;

-- name: scalar_in_aggregate_two_up
SELECT c.id, (SELECT sum(o.quantity * (SELECT count(*) FROM line l WHERE l.order_id = o.id AND l.units < c.id)) FROM
    orders o WHERE o.customer_id = c.id) AS n FROM customer c;

-- name: window_inside
SELECT c.id, o.id AS oid, o.r, o.s FROM customer c, LATERAL (SELECT o.id, row_number() OVER (ORDER BY o.id) AS r,
    sum(o.quantity) OVER (ORDER BY o.id) AS s FROM orders o WHERE o.customer_id < c.id) o WHERE o.r < 4;

-- name: distinct_on_inside
SELECT c.id, o.state, o.id AS oid FROM customer c, LATERAL (SELECT DISTINCT ON (o.state) o.state, o.id FROM orders o
    WHERE o.customer_id < c.id ORDER BY o.state, o.id) o;

-- name: lateral_chain
SELECT c.id, a.n, b.m FROM customer c CROSS JOIN LATERAL (SELECT count(*) AS n FROM orders o WHERE o.customer_id <=
    c.id) a LEFT JOIN LATERAL (SELECT max(l.units) AS m FROM line l WHERE l.units < a.n GROUP BY l.order_id) b ON
    true;

-- name: row_of_correlated
SELECT o.id, (o.quantity, o.state) = (SELECT i.quantity, i.state FROM orders i WHERE i.id = o.customer_id) AS same,
    (o.id, o.quantity) < (SELECT i.id, i.quantity FROM orders i WHERE i.id = o.customer_id) AS less FROM orders o;

-- name: subquery_of_grouped
SELECT o.customer_id, count(*) AS n, (SELECT count(*) FROM log l WHERE l.customer_id = o.customer_id GROUP BY
    l.customer_id) AS m, ARRAY(SELECT l.event FROM log l WHERE l.customer_id = o.customer_id AND l.event IS NOT NULL
    ORDER BY l.event) AS e FROM orders o GROUP BY o.customer_id;

-- name: with_inside
WITH w AS (SELECT customer_id, state, amount FROM orders) SELECT c.id, (SELECT count(*) FROM w WHERE w.customer_id =
    c.id GROUP BY w.state ORDER BY w.state LIMIT 1) AS n, ARRAY(SELECT DISTINCT w.state FROM w WHERE w.customer_id =
    c.id ORDER BY 1) AS s FROM customer c;

-- name: intersect_in_exists
SELECT c.id FROM customer c WHERE NOT EXISTS (SELECT state FROM orders WHERE customer_id = c.id INTERSECT SELECT
    event FROM log WHERE customer_id = c.id);

-- name: using_outside
SELECT id, (SELECT count(*) FROM log l WHERE l.customer_id = id GROUP BY l.customer_id) AS n FROM customer FULL JOIN
    orders USING (id);

-- name: in_under_or_groups
SELECT c.id FROM customer c WHERE c.vip OR c.id IN (SELECT o.customer_id FROM orders o WHERE o.amount > c.credit
    GROUP BY o.customer_id HAVING count(*) > 1);

-- name: group_by_int_array
SELECT ARRAY[quantity, customer_id] AS a, count(*) AS n FROM orders GROUP BY 1;

-- name: exists_offset_two
SELECT c.id, EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id LIMIT 5 OFFSET 2) AS e FROM customer c;

-- name: string_agg_of_joined_keys
SELECT c.id, string_agg(l.sku, ',' ORDER BY l.number) AS a FROM customer c JOIN line l ON l.order_id = c.id GROUP BY
    c.id;

-- name: row_of_one_row
SELECT c.id FROM customer c WHERE (c.id, c.name) >= (SELECT o.customer_id, o.state FROM orders o WHERE o.id = 1);

-- name: in_first_of_outside
SELECT id FROM orders o WHERE state IN (SELECT event FROM log l WHERE l.customer_id = o.customer_id ORDER BY event
    LIMIT 1);

-- name: place_of_outside
SELECT c.id, (SELECT o.id FROM orders o WHERE o.customer_id = c.id ORDER BY o.id LIMIT 1 OFFSET 1) AS second,
  (SELECT row_number() OVER (ORDER BY o.state, o.id) + c.id FROM orders o WHERE o.customer_id = c.id ORDER BY o.id LIMIT 1) AS n FROM customer c;

-- name: left_lateral_expression
SELECT c.id, e.x, f.n FROM customer c LEFT JOIN LATERAL (SELECT c.credit * 2 AS x) e ON true
  LEFT JOIN LATERAL (SELECT c.name || o.state AS n FROM orders o WHERE o.customer_id = c.id) f ON f.n > 'b';

-- name: with_that_reads_outside
SELECT c.id, (WITH w AS (SELECT o.state, o.amount FROM orders o WHERE o.customer_id = c.id),
        v AS (SELECT state, sum(amount) AS total FROM w GROUP BY state)
    SELECT count(*) FROM v WHERE total >= (SELECT avg(w.amount) FROM w)) AS n
FROM customer c;
