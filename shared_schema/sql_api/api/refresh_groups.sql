-- Refresh groups. Every tick advances all stream tables that are due to one frontier, so a group changes nothing: it says
-- which of them belong together, and shows whether they are at one frontier.

CREATE OR REPLACE FUNCTION pgtrickle.create_refresh_group(
    name text, members text[], isolation text DEFAULT 'read_committed',
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names    text[];
    another  record;
BEGIN
    IF coalesce(btrim(name), '') = '' THEN
        RAISE EXCEPTION 'a refresh group needs a name'
            USING HINT = 'Give a name that is not blank.', ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce(lower(isolation), '') NOT IN ('read_committed', 'repeatable_read') THEN
        RAISE EXCEPTION 'isolation % is not known', coalesce(quote_literal(isolation), 'NULL')
            USING HINT = 'Use read_committed or repeatable_read: a tick has one frontier in either.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT array_agg(DISTINCT format('%I.%I', s.pgt_schema, s.pgt_name)) INTO names
    FROM unnest(members) m, LATERAL pgtrickle._stream_table(m, search_path) s;
    IF coalesce(cardinality(names), 0) < 2 THEN
        RAISE EXCEPTION 'refresh group % needs at least two different stream tables', name
            USING HINT = 'Name all stream tables whose rows have to agree.', ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT g.group_name, m.member INTO another FROM pgtrickle.pgt_refresh_groups g, unnest(g.members) m(member)
    WHERE m.member = ANY (names) ORDER BY 1, 2 LIMIT 1;
    IF another.member IS NOT NULL THEN
        RAISE EXCEPTION 'stream table % is in refresh group % already', another.member, another.group_name
            USING HINT = 'A stream table is in one group at most; SELECT pgtrickle.drop_refresh_group(name).',
                  ERRCODE = 'duplicate_object';
    END IF;
    INSERT INTO pgtrickle.pgt_refresh_groups (group_name, members, isolation)
    VALUES (name, names, lower(create_refresh_group.isolation)) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'refresh group % exists already', name
            USING HINT = 'SELECT * FROM pgtrickle.refresh_groups() lists them.', ERRCODE = 'duplicate_object';
    END IF;
END $$;
COMMENT ON FUNCTION pgtrickle.create_refresh_group IS
    'Name stream tables that belong together. A tick advances all that are due to one frontier; refresh_groups() shows whether they are there.';

CREATE OR REPLACE FUNCTION pgtrickle.drop_refresh_group(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgtrickle.pgt_refresh_groups g WHERE g.group_name = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no refresh group %', coalesce(name, 'NULL')
            USING HINT = 'SELECT * FROM pgtrickle.refresh_groups() lists them.', ERRCODE = 'undefined_object';
    END IF;
END $$;
COMMENT ON FUNCTION pgtrickle.drop_refresh_group IS 'Remove a refresh group; its stream tables stay as they are.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_groups()
RETURNS TABLE (group_name text, members text[], isolation text, min_frontier pg_lsn, max_frontier pg_lsn,
               is_consistent boolean, problem text, created_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.group_name, g.members, g.isolation, m.low, m.high,
           m.missing IS NULL AND m.unfilled = 0 AND m.low = m.high,
           CASE WHEN m.missing IS NOT NULL THEN 'no longer stream tables: ' || m.missing
                WHEN m.unfilled > 0 THEN 'not all are filled'
                WHEN m.held IS NOT NULL THEN m.held
                WHEN m.schedules > 1 THEN 'their schedules differ'
                WHEN m.low < m.high THEN 'not all have reached the latest frontier' END,
           g.created_at
    FROM pgtrickle.pgt_refresh_groups g, LATERAL (
        SELECT min(f.frontier) AS low, max(f.frontier) AS high, count(DISTINCT s.schedule) AS schedules,
               count(*) FILTER (WHERE s.pgt_id IS NOT NULL AND f.frontier IS NULL) AS unfilled,
               string_agg(x.member, ', ' ORDER BY x.member) FILTER (WHERE s.pgt_id IS NULL) AS missing,
               min((SELECT format('%s is held: %s', x.member, h.reason) FROM pgtrickle._held_by(s.pgt_id) h LIMIT 1)) AS held
        FROM unnest(g.members) x(member)
        LEFT JOIN pgtrickle.pgt_stream_tables s ON format('%I.%I', s.pgt_schema, s.pgt_name) = x.member
        LEFT JOIN pgtrickle.pgt_frontiers f ON f.pgt_id = s.pgt_id) m
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.refresh_groups IS
    'List the refresh groups, the frontiers of their members, whether these are equal, and what keeps them apart.';
