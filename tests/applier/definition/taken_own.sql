-- Aggregates of users.

-- name: own_total
SELECT total(id) AS t, total(id) FILTER (WHERE vip) AS f, total(DISTINCT length(name)) AS d FROM customer;

-- name: own_groups
SELECT customer_id, product(amount) AS p, total(quantity) AS t, squares(quantity) AS s, squares_of_some(quantity) AS o, total_or_none(quantity) AS n
FROM orders GROUP BY customer_id;

-- name: own_product_of_computed
SELECT region, product(credit * 2) AS p, product(wealth) AS w FROM customer WHERE wealth <> 'NaN' GROUP BY region;

-- name: own_ordered
SELECT customer_id, listed(state, quantity ORDER BY id DESC) AS l, mean(quantity ORDER BY id) AS m, gathered(quantity ORDER BY id) AS g, gathered(state ORDER BY id) AS h, never_five(quantity ORDER BY id) AS n
FROM orders GROUP BY customer_id;

-- name: own_of_none
SELECT listed(name, id ORDER BY id) AS l, mean(id ORDER BY id) AS m, gathered(id ORDER BY id) AS g, total_or_none(id) AS n, squares_of_some(id) AS s
FROM customer WHERE id < 0;

-- name: own_largest
SELECT customer_id, largest(state) AS l FROM orders GROUP BY customer_id;

-- name: own_over_window
SELECT id, total(quantity) OVER (PARTITION BY customer_id) AS t, listed(state, quantity) OVER (PARTITION BY customer_id ORDER BY id) AS l FROM orders;

-- name: own_correlated
SELECT c.id, (SELECT product(o.amount) FROM orders o WHERE o.customer_id = c.id) AS p FROM customer c;
