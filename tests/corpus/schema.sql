-- Set 1: TPC-H (8 tables). Set 2: small, NULL- and duplicate-heavy tables of many types.

CREATE TABLE region  (r_regionkey int PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152));
CREATE TABLE nation  (n_nationkey int PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey int NOT NULL, n_comment varchar(152));
CREATE TABLE supplier(s_suppkey int PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey int NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment varchar(101) NOT NULL);
CREATE TABLE part    (p_partkey int PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size int NOT NULL, p_container char(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL);
CREATE TABLE partsupp(ps_partkey int, ps_suppkey int, ps_availqty int NOT NULL, ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE customer(c_custkey int PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey int NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL);
CREATE TABLE orders  (o_orderkey int PRIMARY KEY, o_custkey int NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, o_clerk char(15) NOT NULL, o_shippriority int NOT NULL, o_comment varchar(79) NOT NULL);
CREATE TABLE lineitem(l_orderkey int, l_partkey int NOT NULL, l_suppkey int NOT NULL, l_linenumber int, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber));

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE dept (id int PRIMARY KEY, name text NOT NULL, budget bigint, loc text, parent int);
CREATE TABLE emp  (id int PRIMARY KEY, name text, dept_id int, mgr_id int, salary numeric(10,2), bonus numeric, hired date, rate double precision, active boolean, tags text[], attrs jsonb, code char(5), note varchar(20), m mood);
CREATE TABLE ev   (id bigint PRIMARY KEY, emp_id int, kind text, ts timestamp, tstz timestamptz, d date, amt int, qty smallint, big bigint, val float8, f4 real, n2 numeric(12,4), payload jsonb, u uuid, nums int[]);
CREATE TABLE a    (k int, v int, s text);          -- no key, duplicates and NULLs
CREATE TABLE b    (k int, w int, s text);
CREATE TABLE edge (src int, dst int, cost int);
CREATE VIEW  emp_v AS SELECT e.*, d.name AS dept_name, d.loc FROM emp e LEFT JOIN dept d ON d.id = e.dept_id WHERE e.active IS NOT FALSE;

CREATE AGGREGATE product(numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
CREATE FUNCTION joined_by_dash(text, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$SELECT $1 || '-' || $2$$;
CREATE AGGREGATE dashed(text) (SFUNC = joined_by_dash, STYPE = text, FINALFUNC = reverse);
