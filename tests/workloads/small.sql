-- Little work, every kind of it: a filter, a bag, sums over a join, a chain, a top list. For runs of many short rounds.

-- @tables
CREATE TABLE s_groups (id int PRIMARY KEY, label text);
CREATE TABLE s_items (id int PRIMARY KEY, grp int, v numeric(10,2), note text);
CREATE OR REPLACE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
    'SELECT low + floor(random() * (high - low + 1))::int';
INSERT INTO s_groups SELECT i, 'group ' || i FROM generate_series(1, 8) i;
INSERT INTO s_items SELECT i, 1 + i % 9, i, 'x' FROM generate_series(1, 200) i;

-- @stream_table s_bag
SELECT grp, note FROM s_items WHERE v > 5
-- @stream_table s_sums DIFFERENTIAL
SELECT g.id, g.label, count(*) AS n, sum(i.v) AS total FROM s_groups g JOIN s_items i ON i.grp = g.id GROUP BY g.id, g.label
-- @stream_table s_top
SELECT id, total FROM s_sums ORDER BY total DESC NULLS LAST, id LIMIT 3
-- @stream_table s_outer
SELECT i.id, i.v, g.label FROM s_items i LEFT JOIN s_groups g ON g.id = i.grp

-- @transaction 6
INSERT INTO s_items SELECT pick(1, 300), pick(1, 9), pick(-500, 5000) * 0.01, (ARRAY['a', NULL, E'\\ \t'])[pick(1, 3)]
FROM generate_series(1, (ARRAY[1, 3, 40])[pick(1, 3)]) ON CONFLICT DO NOTHING
-- @transaction 4
UPDATE s_items SET v = v + 1, note = note || '.' WHERE id BETWEEN (SELECT pick(1, 290)) AND (SELECT pick(1, 300))
-- @transaction 2
DELETE FROM s_items WHERE id = (SELECT pick(1, 300)) OR length(note) > 12
-- @transaction 1
UPDATE s_groups SET label = label || '!' WHERE id = (SELECT pick(1, 8)) AND length(label) < 20
-- @transaction 1
DELETE FROM s_groups WHERE id = (SELECT pick(1, 8)); INSERT INTO s_groups VALUES (pick(1, 8), 'again') ON CONFLICT DO NOTHING
