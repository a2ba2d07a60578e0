"""A small schema for queries: every physical type, with and without keys, views, partitions, refused objects."""

from __future__ import annotations

from typing import LiteralString

SCHEMA: LiteralString = """
CREATE DOMAIN price AS numeric(10,2);
CREATE TABLE customer (
    id int PRIMARY KEY, name text NOT NULL, code char(4), region varchar(10), vip bool, born date,
    credit numeric(10,2), score float8, tag uuid, notes jsonb, wealth numeric
);
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer_id int NOT NULL, amount numeric(10,2), quantity smallint,
    placed timestamptz, delivered timestamp, state text COLLATE "C", cost price
);
CREATE TABLE log (customer_id int, event text, weight bigint);
CREATE TABLE line (order_id bigint, number int, sku text, units int, PRIMARY KEY (order_id, number));
CREATE TABLE measure (day date NOT NULL, place int NOT NULL, value int, PRIMARY KEY (day, place))
    PARTITION BY RANGE (day);
CREATE TABLE measure_old PARTITION OF measure FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
CREATE TABLE measure_new PARTITION OF measure FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
CREATE VIEW open_orders AS SELECT id, customer_id, amount FROM orders WHERE state = 'open';
CREATE VIEW open_totals AS
    SELECT customer_id, sum(amount) AS total, count(*) AS n FROM open_orders GROUP BY customer_id;

CREATE TABLE guarded (id int PRIMARY KEY);
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE UNLOGGED TABLE scratch (id int);
CREATE TABLE spread (id int) PARTITION BY LIST (id);
CREATE UNLOGGED TABLE spread_1 PARTITION OF spread FOR VALUES IN (1);
CREATE MATERIALIZED VIEW stored AS SELECT 1 AS one;
CREATE VIEW barrier WITH (security_barrier) AS SELECT id FROM customer;
CREATE VIEW drawn AS SELECT id, random() AS luck FROM customer;
CREATE TABLE computed (a int, b int GENERATED ALWAYS AS (a * 2) STORED);
CREATE FUNCTION int4pl(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE AGGREGATE total(int) (SFUNC = pg_catalog.int4pl, STYPE = int, INITCOND = '0');
CREATE AGGREGATE product(numeric) (SFUNC = numeric_mul, STYPE = numeric);
CREATE FUNCTION with_square(bigint, int) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT
    AS 'SELECT $1 + $2::bigint * $2';
CREATE AGGREGATE squares(int) (SFUNC = with_square, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE squares_of_some(int) (SFUNC = with_square, STYPE = bigint, INITCOND = '-7', FINALFUNC = int8abs);
CREATE FUNCTION behind(text, text, int) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$SELECT coalesce($1 || ',', '') || coalesce($2, '-') || coalesce($3, 0)$$;
CREATE AGGREGATE listed(text, int) (SFUNC = behind, STYPE = text);
CREATE FUNCTION counted(bigint[], int) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT
    AS 'SELECT ARRAY[$1[1] + $2, $1[2] + 1]';
CREATE FUNCTION divided(bigint[]) RETURNS numeric LANGUAGE sql IMMUTABLE
    AS 'SELECT CASE WHEN $1[2] > 0 THEN $1[1]::numeric / $1[2] ELSE -1 END';
CREATE AGGREGATE mean(int) (SFUNC = counted, STYPE = bigint[], FINALFUNC = divided, INITCOND = '{0,0}');
CREATE AGGREGATE gathered(anycompatible)
    (SFUNC = array_append, STYPE = anycompatiblearray, INITCOND = '{}');
CREATE FUNCTION unless_five(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT nullif($1 + $2, 5)';
CREATE AGGREGATE never_five(int) (SFUNC = unless_five, STYPE = int);
CREATE FUNCTION larger(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT greatest($1, $2)';
CREATE AGGREGATE largest(text) (SFUNC = larger, STYPE = text);
CREATE FUNCTION or_none(int, int) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT coalesce($1::text, 'none')$$;
CREATE AGGREGATE total_or_none(int) (SFUNC = pg_catalog.int4pl, STYPE = int, FINALFUNC = or_none, FINALFUNC_EXTRA);
CREATE AGGREGATE own_float(float8) (SFUNC = float8mul, STYPE = float8);
CREATE FUNCTION procedural(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 + $2; END';
CREATE AGGREGATE own_procedure(int) (SFUNC = procedural, STYPE = int);
"""
