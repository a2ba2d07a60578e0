-- An auction site after Nexmark: people, auctions, bids, and the benchmark's questions asked of the tables.

-- @tables
CREATE TABLE n_people (id int PRIMARY KEY, name text, city text, state text, joined timestamp);
CREATE TABLE n_auctions (id int PRIMARY KEY, item text, category int, seller int, reserve int, opened timestamp, expires timestamp);
CREATE TABLE n_bids (auction int, bidder int, price bigint, channel text, at timestamp);
CREATE OR REPLACE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
    'SELECT low + floor(random() * (high - low + 1))::int';
INSERT INTO n_people SELECT i, 'person ' || i, (ARRAY['Oslo','Rome','Kyiv'])[1 + i % 3], (ARRAY['OR','ID','CA','NY'])[1 + i % 4],
    timestamp '2024-01-01' + i * interval '1 minute' FROM generate_series(1, 50) i;
INSERT INTO n_auctions SELECT i, 'item ' || i, 10 + i % 5, 1 + i * 7 % 50, i % 100, timestamp '2024-01-02' + i * interval '1 minute',
    timestamp '2024-01-02' + (i + 30 + i % 20) * interval '1 minute' FROM generate_series(1, 80) i;
INSERT INTO n_bids SELECT 1 + i * 13 % 80, 1 + i * 17 % 50, 1 + i * 31 % 900, (ARRAY['web','app'])[1 + i % 2],
    timestamp '2024-01-02' + i * interval '15 seconds' FROM generate_series(1, 400) i;

-- @stream_table n_currency
SELECT auction, bidder, price * 89 / 100 AS euro, at FROM n_bids
-- @stream_table n_chosen
SELECT auction, price FROM n_bids WHERE auction IN (7, 21, 42) OR auction % 20 = 0
-- @stream_table n_local
SELECT p.name, p.city, p.state, a.id FROM n_auctions a JOIN n_people p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
-- @stream_table n_closing
SELECT a.id, a.category, a.seller, max(b.price) AS final FROM n_auctions a
JOIN n_bids b ON b.auction = a.id AND b.at BETWEEN a.opened AND a.expires GROUP BY a.id, a.category, a.seller
-- @stream_table n_categories
SELECT category, sum(final) AS total, count(*) AS closed FROM n_closing GROUP BY category
-- @stream_table n_hot
SELECT auction, n FROM (SELECT auction, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place FROM n_bids GROUP BY auction) h
WHERE place <= 3
-- @stream_table n_sellers
SELECT seller, sum(final) AS total, count(*) AS sold FROM n_closing GROUP BY seller
-- @stream_table n_highest
SELECT b.auction, b.price, b.bidder FROM n_bids b
JOIN (SELECT auction, max(price) AS price FROM n_bids GROUP BY auction) m ON m.auction = b.auction AND m.price = b.price
-- @stream_table n_new_sellers
SELECT p.id, p.name, count(*) AS opened FROM n_people p JOIN n_auctions a ON a.seller = p.id
    AND a.opened < p.joined + interval '1 day 2 hours' GROUP BY p.id, p.name
-- @stream_table n_winners
SELECT p.id, p.city, h.auction, h.price FROM n_highest h JOIN n_people p ON p.id = h.bidder
-- @stream_table n_windows
SELECT date_trunc('minute', at) AS minute, channel, count(*) AS bids, max(price) AS most FROM n_bids GROUP BY 1, 2
-- @stream_table n_unsold
SELECT id, item FROM n_auctions a WHERE NOT EXISTS (SELECT FROM n_bids b WHERE b.auction = a.id)

-- @transaction 10
INSERT INTO n_bids SELECT pick(1, 100), pick(1, 60), pick(1, 2000), (ARRAY['web','app',NULL])[pick(1, 3)],
    timestamp '2024-01-02' + pick(0, 8000) * interval '1 second' FROM generate_series(1, pick(1, 5))
-- @transaction 2
INSERT INTO n_auctions VALUES (pick(81, 120), 'new', pick(10, 14), pick(1, 60), pick(0, 100),
    timestamp '2024-01-02 01:00', timestamp '2024-01-02 03:00')
ON CONFLICT (id) DO UPDATE SET category = excluded.category, seller = excluded.seller
-- @transaction 1
INSERT INTO n_people VALUES (pick(51, 70), 'late', 'Oslo', 'OR', timestamp '2024-01-02') ON CONFLICT (id) DO UPDATE SET state = 'NY'
-- @transaction 2
DELETE FROM n_bids WHERE ctid IN (SELECT ctid FROM n_bids ORDER BY ctid LIMIT (SELECT pick(1, 4)))
-- @transaction 1
UPDATE n_auctions SET expires = expires + interval '5 minutes' WHERE id = (SELECT pick(1, 80))
-- @transaction 1
DELETE FROM n_auctions WHERE id = (SELECT pick(1, 120))
