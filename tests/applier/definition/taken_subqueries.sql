-- name: scalar_subquery
SELECT id, (SELECT max(amount) FROM orders) AS top, (SELECT count(*) FROM log) AS n FROM customer;

-- name: scalar_subquery_in_where
SELECT id, amount FROM orders WHERE amount > (SELECT max(credit) FROM customer WHERE region = 'N');

-- name: scalar_subquery_correlated
SELECT c.id, (SELECT sum(o.amount) + 1 FROM orders o WHERE o.customer_id = c.id) AS total,
    (SELECT count(*) FROM orders o WHERE o.customer_id = c.id AND o.state = 'open') AS n,
    (SELECT coalesce(sum(o.amount), 0) FROM orders o WHERE o.customer_id = c.id) AS zero
FROM customer c;

-- name: scalar_subquery_compared
SELECT o.id FROM orders o WHERE o.amount = (SELECT max(i.amount) FROM orders i WHERE i.customer_id = o.customer_id);

-- name: scalar_subquery_of_a_range
SELECT c.id, (SELECT count(*) FROM customer d WHERE d.credit > c.credit) AS above FROM customer c;

-- name: scalar_subquery_by_key
SELECT o.id, (SELECT c.name FROM customer c WHERE c.id = o.customer_id) AS name FROM orders o;

-- name: scalar_subquery_first_row
SELECT c.id, (SELECT o.state FROM orders o WHERE o.customer_id = c.id ORDER BY o.amount DESC, o.id LIMIT 1) AS latest
FROM customer c;

-- name: scalar_subquery_in_having
SELECT state, sum(amount) AS total FROM orders GROUP BY state HAVING sum(amount) > (SELECT min(credit) FROM customer);

-- name: scalar_subquery_beside_groups
SELECT customer_id, count(*) AS n, (SELECT c.name FROM customer c WHERE c.id = o.customer_id) AS name
FROM orders o
GROUP BY customer_id;

-- name: scalar_subquery_inside_an_aggregate
SELECT customer_id, sum(quantity * (SELECT max(l.units) FROM line l WHERE l.order_id = o.id)) AS total
FROM orders o
GROUP BY customer_id;

-- name: scalar_subquery_over_using
SELECT id, (SELECT count(*) FROM log l WHERE l.customer_id = id) AS n FROM customer FULL JOIN orders USING (id);

-- name: exists_selected
SELECT id, EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id) AS ordered FROM customer c;

-- name: exists_under_or
SELECT id FROM customer c WHERE vip OR NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.amount > 0);

-- name: exists_of_anything
SELECT id, EXISTS (SELECT 1 FROM log) AS logged FROM customer;

-- name: in_selected
SELECT id, region, region IN (SELECT event FROM log) AS a, region NOT IN (SELECT state FROM orders) AS b,
    id IN (SELECT customer_id FROM orders) AS c, region IN (SELECT event FROM log l WHERE l.customer_id = c.id) AS d
FROM customer c;

-- name: in_under_or
SELECT id FROM customer WHERE vip OR region IN (SELECT event FROM log WHERE weight > 0);

-- name: in_having
SELECT region FROM customer GROUP BY region HAVING region IN (SELECT event FROM log) IS NOT FALSE;

-- name: all_of_subquery
SELECT id FROM customer c WHERE id <> ALL (SELECT customer_id FROM log)
    AND credit >= ALL (SELECT amount FROM orders o WHERE o.customer_id = c.id);

-- name: any_selected
SELECT id, credit < ANY (SELECT amount FROM orders o WHERE o.customer_id = c.id) AS a,
    credit > ALL (SELECT amount FROM orders) AS b
FROM customer c;

-- name: in_two_columns_selected
SELECT id, (id, region) IN (SELECT customer_id, event FROM log) AS a FROM customer;

-- name: subquery_in_subquery
SELECT id FROM customer c
WHERE id IN (SELECT o.customer_id FROM orders o
    WHERE o.quantity >= (SELECT sum(l.units) FROM line l WHERE l.order_id = o.id));

-- name: averages
SELECT customer_id, avg(amount) AS a, avg(quantity) AS b, avg(id) AS c, avg(DISTINCT quantity) AS d,
    avg(amount) FILTER (WHERE state = 'open') AS e
FROM orders
GROUP BY customer_id;

-- name: average_arithmetic
SELECT customer_id, round(avg(amount), 2) AS a, avg(amount) * 2 AS b, 0.5 * avg(quantity) + 1 AS c
FROM orders
GROUP BY customer_id
HAVING avg(amount) > 0 OR avg(amount) IS NULL;

-- name: deviations
SELECT customer_id, stddev(amount) AS a, variance(quantity) AS b, stddev_pop(id) AS c, var_pop(amount) AS d
FROM orders
GROUP BY customer_id;

-- name: unbounded_numerics
SELECT sum(wealth) AS a, avg(wealth) AS b, max(wealth) AS c, count(wealth) AS d, var_samp(wealth) AS e FROM customer;

-- name: floats_summed
SELECT region, sum(score) AS a, avg(score) AS b, max(score) AS c, stddev(score) AS d, corr(score, id) AS e
FROM customer
GROUP BY region;
