-- TPC-H's refresh functions, and updates besides: tables, rows and the 22 queries come from tpch.py.

-- @transaction 3
INSERT INTO orders SELECT o_orderkey + (SELECT max(o_orderkey) FROM orders), o_custkey, o_orderstatus, o_totalprice, o_orderdate,
    o_orderpriority, o_clerk, o_shippriority, o_comment FROM orders WHERE o_orderkey = (SELECT min(o_orderkey) FROM orders
    WHERE o_orderkey >= pick(1, 3000));
INSERT INTO lineitem SELECT (SELECT max(o_orderkey) FROM orders), l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice,
    l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment
FROM lineitem WHERE l_orderkey = (SELECT l_orderkey FROM lineitem WHERE l_orderkey >= (SELECT pick(1, 3000)) ORDER BY 1 LIMIT 1)
-- @transaction 2
DELETE FROM lineitem WHERE l_orderkey = (SELECT o_orderkey FROM orders ORDER BY o_orderkey OFFSET (SELECT pick(0, 500)) LIMIT 1);
DELETE FROM orders o WHERE NOT EXISTS (SELECT FROM lineitem l WHERE l.l_orderkey = o.o_orderkey)
-- @transaction 2
UPDATE lineitem SET l_quantity = l_quantity + 1, l_extendedprice = l_extendedprice + 10, l_returnflag = 'R'
WHERE l_orderkey = (SELECT l_orderkey FROM lineitem ORDER BY l_orderkey OFFSET (SELECT pick(0, 2000)) LIMIT 1)
-- @transaction 1
UPDATE customer SET c_acctbal = c_acctbal + pick(-100, 100), c_mktsegment = 'BUILDING' WHERE c_custkey = (SELECT pick(1, 150))
-- @transaction 1
UPDATE partsupp SET ps_availqty = ps_availqty + pick(-50, 50), ps_supplycost = ps_supplycost + 0.01
WHERE ps_partkey = (SELECT pick(1, 200))
-- @transaction 1
UPDATE supplier SET s_nationkey = (SELECT pick(0, 24)) WHERE s_suppkey = (SELECT pick(1, 10))
