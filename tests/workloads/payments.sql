-- Payments: accounts, transfers with two legs, fees by rule, holds. Money must add up at every position of the log.

-- @tables
CREATE TABLE p_accounts (id bigint PRIMARY KEY, owner text NOT NULL, currency char(3) NOT NULL, opened date, frozen boolean);
CREATE TABLE p_entries (id bigint PRIMARY KEY, account bigint NOT NULL, transfer bigint NOT NULL, amount numeric(14,2) NOT NULL,
    booked timestamp NOT NULL);
CREATE TABLE p_holds (account bigint, amount numeric(14,2), until date);
CREATE TABLE p_rates (currency char(3) PRIMARY KEY, to_eur numeric(12,6));
CREATE TABLE p_limits (owner text PRIMARY KEY, daily numeric(14,2));
CREATE OR REPLACE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
    'SELECT low + floor(random() * (high - low + 1))::int';
CREATE SEQUENCE p_numbers START 10000;
INSERT INTO p_rates VALUES ('EUR', 1), ('USD', 0.921534), ('NOK', 0.086);
INSERT INTO p_accounts SELECT i, 'owner ' || i % 12, (ARRAY['EUR','USD','NOK'])[1 + i % 3], date '2022-03-01' + i, i % 11 = 0
    FROM generate_series(1, 50) i;
INSERT INTO p_limits SELECT 'owner ' || i, 100 * i FROM generate_series(0, 9) i;
INSERT INTO p_entries SELECT 2 * i + leg, 1 + (i * 7 + leg * 3) % 50, i, (CASE leg WHEN 0 THEN -1 ELSE 1 END) * (1 + i % 90),
    timestamp '2024-05-01 08:00' + i * interval '7 minutes' FROM generate_series(1, 250) i, generate_series(0, 1) leg;

-- @stream_table p_balances
SELECT a.id, a.owner, a.currency, coalesce(sum(e.amount), 0) AS balance, count(e.id) AS entries
FROM p_accounts a LEFT JOIN p_entries e ON e.account = a.id GROUP BY a.id, a.owner, a.currency
-- @stream_table p_book
SELECT sum(amount) AS must_be_zero, count(*) AS entries FROM p_entries
-- @stream_table p_unbalanced
SELECT transfer, sum(amount) AS off_by FROM p_entries GROUP BY transfer HAVING sum(amount) <> 0
-- @stream_table p_in_eur
SELECT b.id, b.owner, b.balance * r.to_eur AS eur FROM p_balances b JOIN p_rates r ON r.currency = b.currency
-- @stream_table p_owners
SELECT owner, sum(eur) AS eur, count(*) AS accounts FROM p_in_eur GROUP BY owner
-- @stream_table p_wealth
SELECT o.owner, o.eur, o.eur - l.daily AS above FROM p_owners o LEFT JOIN p_limits l ON l.owner = o.owner
-- @stream_table p_available
SELECT b.id, b.balance - coalesce(h.held, 0) AS available
FROM p_balances b LEFT JOIN (SELECT account, sum(amount) AS held FROM p_holds GROUP BY account) h ON h.account = b.id
-- @stream_table p_overdrawn
SELECT a.id, v.available FROM p_available v JOIN p_accounts a ON a.id = v.id WHERE v.available < 0 AND a.frozen IS NOT TRUE
-- @stream_table p_daily
SELECT date_trunc('day', booked) AS day, account, sum(amount) FILTER (WHERE amount < 0) AS spent, min(amount) AS least
FROM p_entries GROUP BY 1, account
-- @stream_table p_statement
SELECT id, account, amount, sum(amount) OVER (PARTITION BY account ORDER BY booked, id) AS running FROM p_entries
-- @stream_table p_latest
SELECT DISTINCT ON (account) account, id, amount, booked FROM p_entries ORDER BY account, booked DESC, id DESC
-- @stream_table p_idle
SELECT id, owner FROM p_accounts WHERE id NOT IN (SELECT account FROM p_entries)

-- @transaction 6
WITH t AS (SELECT nextval('p_numbers') AS n, pick(1, 50) AS a, pick(1, 50) AS b, pick(1, 9000) * 0.01 AS amount)
INSERT INTO p_entries SELECT 2 * n, a, n, -amount, timestamp '2024-05-03' + pick(0, 200000) * interval '1 second' FROM t
UNION ALL SELECT 2 * n + 1, b, n, amount, timestamp '2024-05-03' FROM t
-- @transaction 2
DELETE FROM p_entries WHERE transfer = (SELECT transfer FROM p_entries OFFSET (SELECT pick(0, 200)) LIMIT 1)
-- @transaction 1
UPDATE p_entries SET amount = amount * 2 WHERE transfer = (SELECT transfer FROM p_entries OFFSET (SELECT pick(0, 200)) LIMIT 1)
-- @transaction 1
UPDATE p_rates SET to_eur = to_eur + pick(-50, 50) * 0.000001 WHERE currency = (ARRAY['USD','NOK'])[(SELECT pick(1, 2))]
-- @transaction 2
INSERT INTO p_holds VALUES (pick(1, 50), pick(1, 100), date '2024-06-01' + pick(0, 20))
-- @transaction 1
DELETE FROM p_holds WHERE ctid IN (SELECT ctid FROM p_holds ORDER BY ctid LIMIT 1)
-- @transaction 1
UPDATE p_accounts SET frozen = (ARRAY[true, false, NULL])[(SELECT pick(1, 3))], owner = 'owner ' || (SELECT pick(0, 14))
WHERE id = (SELECT pick(1, 50))
