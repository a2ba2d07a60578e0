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
