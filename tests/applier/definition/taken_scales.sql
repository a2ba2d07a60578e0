-- Numerics with different numbers of decimals that meet in one column: each keeps its own, as in PostgreSQL.

-- name: scales_coalesced
SELECT c.id, coalesce(sum(o.amount), 0) AS total, coalesce(sum(o.amount), c.credit * 1.5, 0) AS more
FROM customer c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id, c.credit;

-- name: scales_of_cases
SELECT id, CASE WHEN quantity > 2 THEN amount WHEN quantity = 2 THEN 0.125 ELSE 0 END AS shown,
    (CASE WHEN quantity > 2 THEN amount ELSE 0 END)::text AS printed FROM orders;

-- name: scales_of_extremes
SELECT id, greatest(amount, 1.5, 0) AS most, least(amount, amount * amount, 3) AS least FROM orders;

-- name: scales_of_branches
SELECT amount AS n FROM orders UNION ALL SELECT amount * 0.5 FROM orders UNION ALL SELECT id FROM customer;

-- name: scales_of_values
SELECT * FROM (VALUES (1, 1.5), (2, 2.25), (3, 0)) AS v (id, n);

-- name: sum_of_scales
SELECT customer_id, sum(CASE WHEN state = 'open' THEN amount ELSE 0 END) AS total,
    avg(CASE WHEN state = 'open' THEN amount ELSE 0 END) AS mean,
    sum(coalesce(amount, 0)) AS all_of_them,
    sum(coalesce(amount, 0.1234)) FILTER (WHERE quantity > 1) AS some,
    sum(CASE WHEN state = 'open' THEN NULL WHEN quantity > 1 THEN 7 WHEN quantity = 1 THEN 0.5 END) AS few
FROM orders GROUP BY customer_id;

-- name: sum_of_computed_scales
SELECT state, sum(coalesce(amount, 0) * quantity) AS product, sum(coalesce(amount, 0) * (1 - coalesce(cost, 0.5))) AS net,
    sum(-(amount - coalesce(cost, 0))) AS difference, avg(abs(coalesce(amount, 0) + 1.125)) AS mean
FROM orders GROUP BY state;

-- name: sum_of_all_scales
SELECT sum(coalesce(amount, 0)) AS total, avg(coalesce(amount, 0)) AS mean FROM orders WHERE id < 3;

-- name: other_aggregates_of_scales
SELECT customer_id, count(DISTINCT coalesce(amount, 0)) AS n, stddev(coalesce(amount, 0)) AS spread,
    min(coalesce(amount, 7)) AS least FROM orders GROUP BY customer_id;

-- name: windows_of_scales
SELECT id, sum(coalesce(amount, 0)) OVER (PARTITION BY customer_id ORDER BY id) AS running,
    lag(amount, 1, 0) OVER (ORDER BY id) AS before FROM orders;

-- name: sum_over_a_column_of_scales
SELECT state, sum(n) AS total, max(n) AS most FROM (SELECT state, coalesce(amount, 0) AS n FROM orders) AS o GROUP BY state;

-- name: compared_scales
SELECT o.id, coalesce(o.amount, 0) > 1.5 AS large FROM orders o WHERE coalesce(o.amount, 0) IN (0, 1.5, 2.25, 7);

-- name: joined_by_scales_of_equals
SELECT c.id, coalesce(o.amount, 0) AS n FROM customer c JOIN orders o ON coalesce(o.amount, 0) = c.credit * 1.0;

-- name: grouped_by_scales_of_equals
SELECT coalesce(amount, 0) AS n, count(*) AS orders FROM orders GROUP BY coalesce(amount, 0);

-- name: quotients_of_scales
SELECT id, coalesce(amount, 0) / 3 AS third, coalesce(sqrt(abs(amount)), 0) AS root, round(coalesce(amount, 0), 1) AS r
FROM orders;

-- name: sum_of_no_scales
SELECT customer_id, sum(CASE WHEN quantity > 1 THEN NULL::numeric END) AS nothing FROM orders GROUP BY customer_id;

-- name: recursive_scales
WITH RECURSIVE r(n) AS (SELECT 1.5 UNION ALL SELECT n * 1.5 FROM r WHERE n < 5) SELECT n FROM r;

-- name: recursive_sums_of_scales
WITH RECURSIVE r(id, n) AS (
    SELECT id, credit::numeric FROM customer UNION ALL SELECT r.id, r.n + 1.125 FROM r WHERE r.n < 3) SELECT id, n FROM r;
