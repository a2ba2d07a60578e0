-- The trees beside this file are pg_rewrite.ev_action of this query, as each major stores it.
SELECT c.region, o.state, count(*) AS n, sum(o.amount) + 1 AS total, c.code = 'ab' AS ab,
       CASE c.id WHEN 1 THEN 'a b' ELSE NULL END AS w, coalesce(c.region, 'x\y') AS "odd {name}",
       c.vip IS TRUE AS t, nullif(c.id, 3) AS z, c.id IS DISTINCT FROM 4 AS d
FROM customer c JOIN orders o ON o.customer_id = c.id, (SELECT weight + 1 AS z FROM log WHERE event IS NOT NULL) s
WHERE c.id = s.z AND NOT (o.amount > 1.50 OR o.placed > '2020-01-01') AND o.quantity IN (1, 2)
GROUP BY c.region, o.state, c.code, c.id, c.vip HAVING count(*) > 1;
