-- A shop: customers, products, orders with lines, payments and returns. Chains and diamonds above them.

-- @tables
CREATE TABLE w_customers (id int PRIMARY KEY, name text NOT NULL, country char(2), segment text, since date);
CREATE TABLE w_products (id int PRIMARY KEY, title text, category text, price numeric(10,2) NOT NULL, stock int);
CREATE TABLE w_orders (id int PRIMARY KEY, customer int, placed timestamptz, status text NOT NULL, note varchar(20));
CREATE TABLE w_lines (order_id int, product int, quantity int, discount numeric(4,3), PRIMARY KEY (order_id, product));
CREATE TABLE w_returns (order_id int, product int, quantity int, reason text);
CREATE OR REPLACE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
    'SELECT low + floor(random() * (high - low + 1))::int';
INSERT INTO w_customers SELECT i, 'customer ' || i, (ARRAY['DE','FR','NO',NULL])[1 + i % 4],
    (ARRAY['retail','online','partner'])[1 + i % 3], date '2020-01-01' + i FROM generate_series(1, 60) i;
INSERT INTO w_products SELECT i, 'thing ' || i, (ARRAY['toys','tools','food',NULL])[1 + i % 4], 1 + i * 3.17, 100 + i
    FROM generate_series(1, 40) i;
INSERT INTO w_orders SELECT i, pick(1, 60), timestamptz '2024-01-01 00:00+00' + i * interval '1 hour',
    (ARRAY['open','paid','sent'])[1 + i % 3], NULL FROM generate_series(1, 200) i;
INSERT INTO w_lines SELECT i, 1 + (i * 7 + j * 3) % 40, 1 + (i + j) % 5, (i % 4) * 0.05
    FROM generate_series(1, 200) i, generate_series(1, 2) j ON CONFLICT DO NOTHING;

-- @stream_table w_open_orders
SELECT id, customer, placed, note FROM w_orders WHERE status = 'open'
-- @stream_table w_line_values
SELECT l.order_id, l.product, l.quantity * p.price * (1 - l.discount) AS value, p.category
FROM w_lines l JOIN w_products p ON p.id = l.product
-- @stream_table w_order_totals
SELECT order_id, count(*) AS lines, sum(value) AS total FROM w_line_values GROUP BY order_id
-- @stream_table w_customer_totals
SELECT o.customer, count(*) AS orders, sum(t.total) AS total, max(o.placed) AS latest
FROM w_orders o JOIN w_order_totals t ON t.order_id = o.id GROUP BY o.customer
-- @stream_table w_categories
SELECT category, sum(value) AS revenue, count(DISTINCT product) AS products FROM w_line_values GROUP BY category
-- @stream_table w_best_customers
SELECT customer, total FROM w_customer_totals WHERE total IS NOT NULL ORDER BY total DESC, customer LIMIT 10
-- @stream_table w_idle_customers
SELECT c.id, c.name, c.country FROM w_customers c WHERE NOT EXISTS (SELECT FROM w_orders o WHERE o.customer = c.id)
-- @stream_table w_segments
SELECT c.segment, c.country, count(t.customer) AS buying, coalesce(sum(t.total), 0) AS total
FROM w_customers c LEFT JOIN w_customer_totals t ON t.customer = c.id GROUP BY c.segment, c.country
-- @stream_table w_returned
SELECT l.order_id, l.product, l.quantity AS sold, sum(r.quantity) AS returned
FROM w_lines l JOIN w_returns r ON r.order_id = l.order_id AND r.product = l.product
GROUP BY l.order_id, l.product, l.quantity HAVING sum(r.quantity) > 0
-- @stream_table w_reasons
SELECT reason, quantity FROM w_returns WHERE quantity > 0
-- @stream_table w_ranked
SELECT order_id, product, value, row_number() OVER (PARTITION BY order_id ORDER BY value DESC, product) AS place
FROM w_line_values
-- @stream_table w_known_words
SELECT country AS word FROM w_customers UNION SELECT status FROM w_orders UNION SELECT reason FROM w_returns

-- @transaction 4
INSERT INTO w_orders VALUES (pick(1, 300), pick(1, 60), timestamptz '2024-02-01 00:00+00' + pick(0, 10000) * interval '1 second',
    (ARRAY['open','paid','sent'])[pick(1, 3)], (ARRAY[NULL, '', 'gift', E'tab\there'])[pick(1, 4)])
ON CONFLICT (id) DO UPDATE SET status = excluded.status, note = excluded.note, customer = excluded.customer
-- @transaction 4
INSERT INTO w_lines SELECT pick(1, 300), pick(1, 40), pick(1, 9), pick(0, 3) * 0.05 FROM generate_series(1, pick(1, 4))
ON CONFLICT (order_id, product) DO UPDATE SET quantity = excluded.quantity
-- @transaction 2
UPDATE w_products SET price = price + pick(-20, 20) * 0.01, stock = stock - 1 WHERE id = (SELECT pick(1, 40))
-- @transaction 2
INSERT INTO w_returns SELECT order_id, product, pick(0, quantity), (ARRAY['broken','late',NULL])[pick(1, 3)]
FROM w_lines WHERE order_id = (SELECT pick(1, 300))
-- @transaction 1
DELETE FROM w_lines WHERE order_id = (SELECT pick(1, 300)); DELETE FROM w_orders WHERE id = (SELECT pick(1, 300))
-- @transaction 1
DELETE FROM w_returns WHERE ctid IN (SELECT ctid FROM w_returns LIMIT 2)
-- @transaction 1
SAVEPOINT a; UPDATE w_customers SET segment = 'lost' WHERE id = (SELECT pick(1, 60)); ROLLBACK TO a;
UPDATE w_customers SET segment = (ARRAY['retail','online',NULL])[pick(1, 3)] WHERE id = (SELECT pick(1, 60))
-- @transaction 1
UPDATE w_orders SET id = (SELECT pick(301, 400)) WHERE id = (SELECT pick(1, 400))
    AND NOT EXISTS (SELECT FROM w_orders o WHERE o.id BETWEEN 301 AND 400)
