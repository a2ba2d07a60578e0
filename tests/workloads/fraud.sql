-- Fraud: cards, devices, payments; velocity, shared devices, a network that is followed to any depth, alerts upon alerts.

-- @tables
CREATE TABLE f_cards (id int PRIMARY KEY, holder text NOT NULL, country text, risk real, tags text[]);
CREATE TABLE f_devices (id int PRIMARY KEY, kind text, first_seen timestamptz);
CREATE TABLE f_uses (card int NOT NULL, device int NOT NULL, PRIMARY KEY (card, device));
CREATE TABLE f_payments (id bigint PRIMARY KEY, card int, merchant text, country text, amount numeric(12,2), at timestamp,
    details jsonb);
CREATE TABLE f_refers (card int PRIMARY KEY, by_card int);
CREATE OR REPLACE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
    'SELECT low + floor(random() * (high - low + 1))::int';
INSERT INTO f_cards SELECT i, 'holder ' || i % 30, (ARRAY['DE','US','NG',NULL])[1 + i % 4], i % 7, ARRAY['t' || i % 3]
    FROM generate_series(1, 40) i;
INSERT INTO f_devices SELECT i, (ARRAY['phone','web'])[1 + i % 2], timestamptz '2024-01-01 00:00+00' FROM generate_series(1, 25) i;
INSERT INTO f_uses SELECT i, 1 + i * 3 % 25 FROM generate_series(1, 40) i;
INSERT INTO f_payments SELECT i, 1 + i * 11 % 40, 'm' || i % 9, (ARRAY['DE','US','NG'])[1 + i % 3], i % 400 + 0.5,
    timestamp '2024-03-01 12:00' + i * interval '90 seconds', jsonb_build_object('channel', i % 4) FROM generate_series(1, 300) i;
INSERT INTO f_refers SELECT i, NULLIF(i / 3, 0) FROM generate_series(1, 40) i;

-- @stream_table f_abroad
SELECT p.id, p.card, p.amount FROM f_payments p JOIN f_cards c ON c.id = p.card WHERE p.country <> c.country
-- @stream_table f_large
SELECT id, card, amount FROM f_payments WHERE amount > 350
-- @stream_table f_velocity
SELECT card, date_trunc('hour', at) AS hour, count(*) AS n, sum(amount) AS total FROM f_payments GROUP BY card, 2
-- @stream_table f_bursts
SELECT card, max(n) AS most FROM f_velocity GROUP BY card HAVING max(n) >= 2
-- @stream_table f_shared_devices
SELECT device, count(*) AS cards FROM f_uses GROUP BY device HAVING count(*) > 1
-- @stream_table f_neighbours
SELECT a.card, b.card AS other FROM f_uses a JOIN f_uses b ON b.device = a.device AND b.card <> a.card
-- @stream_table f_suspects
SELECT card FROM f_large UNION SELECT card FROM f_abroad INTERSECT SELECT card FROM f_bursts
-- @stream_table f_near_suspects
SELECT DISTINCT n.other AS card FROM f_neighbours n WHERE n.card IN (SELECT card FROM f_suspects)
-- @stream_table f_network
WITH RECURSIVE tree(card, root) AS (SELECT card, card FROM f_refers WHERE by_card IS NULL
    UNION SELECT r.card, t.root FROM f_refers r JOIN tree t ON r.by_card = t.card) SELECT card, root FROM tree
-- @stream_table f_roots
SELECT n.root, count(*) AS cards, sum(p.amount) AS total FROM f_network n JOIN f_payments p ON p.card = n.card GROUP BY n.root
-- @stream_table f_alerts
SELECT c.id, c.holder, s.card IS NOT NULL AS suspect, n.card IS NOT NULL AS near
FROM f_cards c LEFT JOIN f_suspects s ON s.card = c.id LEFT JOIN f_near_suspects n ON n.card = c.id
WHERE s.card IS NOT NULL OR n.card IS NOT NULL
-- @stream_table f_gaps
SELECT id, card, at - lag(at) OVER (PARTITION BY card ORDER BY at, id) AS gap FROM f_payments
-- @stream_table f_merchants
SELECT merchant, count(DISTINCT card) AS cards, min(amount) AS least, max(amount) AS most FROM f_payments GROUP BY merchant

-- @transaction 6
INSERT INTO f_payments VALUES (pick(1, 600), pick(1, 45), 'm' || pick(0, 12), (ARRAY['DE','US','NG',NULL])[pick(1, 4)],
    pick(1, 50000) * 0.01, timestamp '2024-03-02' + pick(0, 20000) * interval '1 second', '{"channel": 9}')
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, country = excluded.country, at = excluded.at
-- @transaction 2
INSERT INTO f_uses VALUES (pick(1, 45), pick(1, 25)) ON CONFLICT DO NOTHING;
DELETE FROM f_uses WHERE card = (SELECT pick(1, 45)) AND device > (SELECT pick(1, 25))
-- @transaction 1
UPDATE f_refers SET by_card = (SELECT NULLIF(pick(0, 12), card)) WHERE card = (SELECT pick(13, 40))
-- @transaction 2
DELETE FROM f_payments WHERE id = (SELECT pick(1, 600))
-- @transaction 1
UPDATE f_cards SET country = (ARRAY['DE','US',NULL])[(SELECT pick(1, 3))], risk = risk + 1 WHERE id = (SELECT pick(1, 40))
-- @transaction 1
INSERT INTO f_cards VALUES (pick(41, 50), 'new', 'DE', 0, '{}') ON CONFLICT (id) DO UPDATE SET holder = f_cards.holder || '!'
