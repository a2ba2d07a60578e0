-- Queries that PostgreSQL would run and we refuse; the reasons are in plan/golden/refusals.txt.

-- name: left_join_that_may_raise
SELECT c.id FROM customer c LEFT JOIN orders o ON o.customer_id = c.id AND 10 / c.id > o.quantity;

-- name: except_of_json
SELECT notes FROM customer EXCEPT SELECT notes FROM customer;

-- name: union_all_of_types
SELECT score FROM customer UNION ALL SELECT amount FROM orders;

-- name: with_of_with
WITH w0 AS (SELECT x.id FROM customer x, customer y), w1 AS (SELECT x.id FROM w0 x, w0 y), w2 AS (SELECT x.id FROM w1 x, w1 y), w3 AS (SELECT x.id FROM w2 x, w2 y), w4 AS (SELECT x.id FROM w3 x, w3 y), w5 AS (SELECT x.id FROM w4 x, w4 y), w6 AS (SELECT x.id FROM w5 x, w5 y), w7 AS (SELECT x.id FROM w6 x, w6 y)
SELECT id FROM w7;

-- name: row_number_undecided
SELECT id, row_number() OVER (ORDER BY name) FROM customer;

-- name: rows_frame_undecided
SELECT id, sum(credit) OVER (ORDER BY name ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM customer;

-- name: lag_undecided
SELECT id, lag(name) OVER (PARTITION BY region ORDER BY born) FROM customer;

-- name: two_numbers_of_equal_rows
SELECT region, row_number() OVER (ORDER BY region) AS n, row_number() OVER (ORDER BY region DESC) AS m FROM customer;

-- name: window_frame_computed
SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN 1 + 1 PRECEDING AND CURRENT ROW) FROM customer;

-- name: ntile_computed
SELECT id, ntile(1 + 1) OVER (ORDER BY id) FROM customer;

-- name: no_columns
SELECT FROM customer;

-- name: for_update
SELECT id FROM customer FOR UPDATE;

-- name: check_option
SELECT id FROM customer WITH CHECK OPTION;

-- name: tablesample
SELECT id FROM customer TABLESAMPLE SYSTEM (10);

-- name: string_agg
SELECT string_agg(name, ',') FROM customer;

-- name: array_agg_with_ties
SELECT array_agg(id ORDER BY customer_id) FROM orders;

-- name: array_agg_of_floats
SELECT array_agg(score ORDER BY id) FROM customer;

-- name: any_percentile
SELECT percentile_disc(amount) WITHIN GROUP (ORDER BY customer_id) FROM orders GROUP BY amount;

-- name: random
SELECT id, random() AS luck FROM customer;

-- name: nextval
SELECT id, pg_backend_pid() AS who, clock_timestamp() AS moment FROM customer;

-- name: now
SELECT id FROM orders WHERE placed > now();

-- name: current_date
SELECT id FROM customer WHERE born < CURRENT_DATE;

-- name: today
SELECT id FROM customer WHERE born < 'today';

-- name: tomorrow_midnight
SELECT id FROM orders WHERE placed < 'tomorrow 00:00'::timestamptz;

-- name: cast_text_to_char
SELECT name::char(3) FROM customer;

-- name: cast_to_domain
SELECT amount::price AS p FROM orders;

-- name: infinite_date
SELECT id FROM customer WHERE born < 'infinity';

-- name: system_column
SELECT ctid AS place FROM customer;

-- name: generated_column
SELECT b FROM computed;

-- name: catalog_table
SELECT relname FROM pg_class;

-- name: catalog_view
SELECT table_name FROM information_schema.tables;

-- name: materialized_view
SELECT one FROM stored;

-- name: unlogged
SELECT id FROM scratch;

-- name: row_security
SELECT id FROM guarded;

-- name: inheritance
SELECT id FROM parent;

-- name: partition
SELECT value FROM measure_old;

-- name: unlogged_partition
SELECT id FROM spread;

-- name: only_partitioned
SELECT value FROM ONLY measure;

-- name: security_barrier
SELECT id FROM barrier;

-- name: inside_view
SELECT luck FROM drawn;

-- name: limit_without_order
SELECT id FROM customer LIMIT 3;

-- name: limit_of_expression
SELECT id FROM customer ORDER BY id LIMIT (SELECT 3);

-- name: limit_computed
SELECT id FROM customer ORDER BY id LIMIT 1 + 2;

-- name: distinct_on_undecided
SELECT DISTINCT ON (region) region, id FROM customer ORDER BY region, name;

-- name: order_by_jsonb_limit
SELECT id, notes FROM customer ORDER BY notes, id LIMIT 3;

-- name: json_path
SELECT jsonb_path_query_first(notes, '$.a.double()') AS a FROM customer;

-- name: json_path_computed
SELECT notes @? name::jsonpath AS a FROM customer;

-- name: lateral_undecided
SELECT c.id, o.amount FROM customer c, LATERAL (SELECT amount FROM orders WHERE customer_id = c.id ORDER BY quantity LIMIT 1) o;

-- name: recursive_search
WITH RECURSIVE r(n) AS (SELECT id FROM customer UNION ALL SELECT n + 1 FROM r WHERE n < 3) SEARCH DEPTH FIRST BY n SET o SELECT n FROM r ORDER BY o LIMIT 2;

-- name: recursive_cycle_with_texts
WITH RECURSIVE r(n) AS (SELECT id FROM customer UNION ALL SELECT n + 1 FROM r WHERE n < 3) CYCLE n SET c TO 'Y' DEFAULT 'N' USING w SELECT n, c FROM r;

-- name: recursive_cycle_of_numerics
WITH RECURSIVE r(n) AS (SELECT credit FROM customer UNION ALL SELECT n FROM r) CYCLE n SET c USING w SELECT n FROM r;

-- name: recursive_jsonb
WITH RECURSIVE r(n) AS (SELECT notes FROM customer UNION SELECT n FROM r) SELECT n FROM r;

-- name: json_agg
SELECT json_agg(id) FROM customer;

-- name: cube_of_seven
SELECT count(*) FROM customer GROUP BY CUBE (id, name, code, region, vip, born, credit);

-- name: rollup_beside_a_key
SELECT id, name, count(*) AS n FROM customer GROUP BY GROUPING SETS ((id), (id, region));

-- name: whole_row_that_may_be_missing
SELECT c.id, l FROM customer c LEFT JOIN log l ON l.customer_id = c.id;

-- name: whole_row_renamed
SELECT to_jsonb(renamed) FROM log AS renamed (a, b, c);

-- name: order_by_jsonb_limit
SELECT id FROM customer ORDER BY notes, id LIMIT 3;

-- name: json_agg_of_floats
SELECT jsonb_agg(score ORDER BY id) FROM customer;

-- name: json_agg_in_no_order
SELECT json_object_agg(id, name) FROM customer;

-- name: json_key_of_truth
SELECT jsonb_build_object(vip, id) FROM customer;

-- name: imagined_row_of_a_column
SELECT rank(quantity) WITHIN GROUP (ORDER BY quantity) FROM orders GROUP BY quantity;

-- name: except_of_unbounded
SELECT wealth FROM customer EXCEPT ALL SELECT wealth FROM customer;

-- name: window_less_than_nothing
SELECT id, count(*) OVER (ORDER BY id RANGE BETWEEN -1 PRECEDING AND CURRENT ROW) FROM customer;

-- name: window_rows_of_less_than_nothing
SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM customer;

-- name: window_minus_a_month
SELECT id, count(*) OVER (ORDER BY born RANGE BETWEEN '-1 month' PRECEDING AND CURRENT ROW) FROM customer;

-- name: window_bits_excluded
SELECT id, bit_and(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM customer;

-- name: window_list_undecided
SELECT id, string_agg(name, ',') OVER (ORDER BY vip) FROM customer;

-- name: window_range_interval
SELECT id, count(*) OVER (ORDER BY born - '2020-01-01'::timestamp RANGE BETWEEN '1 day' PRECEDING AND CURRENT ROW) FROM customer;

-- name: distinct_rows_of_json
SELECT array_agg(DISTINCT notes) FROM customer;

-- name: own_aggregate_in_no_order
SELECT never_five(id) FROM customer;

-- name: own_aggregate_of_floats
SELECT own_float(score ORDER BY id) FROM customer;

-- name: own_aggregate_of_a_procedure
SELECT own_procedure(id) FROM customer;

-- name: own_aggregate_of_no_rows
SELECT c.id, (SELECT squares(o.quantity) FROM orders o WHERE o.customer_id = c.id) AS s FROM customer c;

-- name: xml_aggregate_of_column
SELECT xmlagg(name::xml ORDER BY id) FROM customer;

-- name: range_aggregate
SELECT range_agg(numrange(credit, NULL)) FROM customer;

-- name: least_address
SELECT min('10.0.0.1'::inet) FROM customer;

-- name: json_constructor
SELECT JSON_OBJECT('a': id WITH UNIQUE KEYS) AS j FROM customer;

-- name: json_aggregate_as_text
SELECT JSON_ARRAYAGG(name ORDER BY id RETURNING text) AS j FROM customer;

-- name: json_path_function
SELECT JSON_VALUE(notes, '$.a' RETURNING interval) AS v FROM customer;

-- name: json_value_of_null
SELECT JSON_VALUE(notes, '$.a' DEFAULT 'none' ON EMPTY) AS v FROM customer;

-- name: array_cast_that_changes
SELECT regexp_split_to_array(name, 'b')::int[] AS a FROM customer;

-- name: series_forth_and_back
SELECT g FROM generate_series('2024-01-31'::timestamp, '2024-06-01', '1 month -1 day') g;

-- name: array_of_subquery_unordered
SELECT id, ARRAY(SELECT state FROM orders) AS a FROM customer;

-- name: on_of_both_sides
SELECT c.id FROM customer c LEFT JOIN orders o ON o.customer_id = c.id AND EXISTS (SELECT 1 FROM line l WHERE l.order_id = o.id AND l.units = c.id);

-- name: exists_of_grouping_sets
SELECT id FROM customer c WHERE EXISTS (SELECT count(*) FROM orders o WHERE o.customer_id = c.id GROUP BY ROLLUP (o.state));

-- name: recursion_that_reads_outside
SELECT id, (WITH RECURSIVE r(n) AS (SELECT c.id UNION SELECT n - 1 FROM r WHERE n > 0) SELECT count(*) FROM r) AS n FROM customer c;

-- name: below_a_full_join
SELECT c.id, (SELECT count(*) FROM orders o FULL JOIN line l ON l.order_id = o.id AND l.units = c.id) AS n FROM customer c;

-- name: left_lateral_that_may_raise
SELECT c.id, o.n FROM customer c LEFT JOIN LATERAL (SELECT o.quantity AS n FROM orders o WHERE o.customer_id = c.id) o ON 10 / c.id > o.n;

-- name: field_of_a_row
SELECT (ROW(id, name)).f1 FROM customer;

-- name: exists_that_may_raise
SELECT id FROM customer c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = 10 / c.id);

-- name: scalar_subquery_that_may_raise
SELECT c.id, (SELECT count(*) FROM orders o WHERE o.customer_id = 10 / c.id) AS n FROM customer c;

-- name: set_beside_a_window
SELECT id, generate_series(1, 2) AS g, row_number() OVER (ORDER BY id) AS n FROM customer;

-- name: set_of_sets
SELECT generate_series(1, generate_series(1, 2)) AS g FROM customer;

-- name: set_of_rows_selected
SELECT jsonb_each(notes)::text AS e FROM customer;

-- name: record_set
SELECT r.a FROM customer c, json_to_recordset(json_build_array(c.notes)) AS r(a int);

-- name: record_set_of_intervals
SELECT r.a FROM customer c, jsonb_to_recordset(jsonb_build_array(c.notes)) AS r(a interval);

-- name: format_of_names
SELECT format('%I', name) AS f FROM customer;
