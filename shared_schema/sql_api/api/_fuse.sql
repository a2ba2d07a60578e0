-- What the fuses of stream tables did. Over tables alone: whoever may read pg_stat_stream_tables needs no other right.

-- A blown one waits for reset_fuse, whatever becomes of its status meanwhile. Those that read a blown one, directly or through
-- others, stay where they are, unless somebody asks to compute them as a whole. Those that read one with skipped changes go on:
-- they are computed from the same sources, so they have these changes, and differ from what their query returns over it.
CREATE OR REPLACE VIEW pgtrickle._fuse_states AS
WITH RECURSIVE repaired AS (
    SELECT r.pgt_id FROM pgtrickle.pgt_reinitializations r
    WHERE r.refused_at IS NULL AND r.initiated_by OPERATOR(pg_catalog.=) 'MANUAL'
), origin AS (
    SELECT s.pgt_id, s.pgt_relid, pg_catalog.format('%I.%I', s.pgt_schema, s.pgt_name) AS name, true AS is_blown,
           s.fuse_blown_at AS since
    FROM pgtrickle.pgt_stream_tables s
    WHERE s.fuse_blown_at IS NOT NULL
    UNION ALL
    SELECT s.pgt_id, s.pgt_relid, pg_catalog.format('%I.%I', s.pgt_schema, s.pgt_name), false, s.fuse_skipped_at
    FROM pgtrickle.pgt_stream_tables s WHERE s.fuse_skipped_at IS NOT NULL
), reader(pgt_id, pgt_relid, name, is_blown, since) AS (
    SELECT s.pgt_id, s.pgt_relid, o.name, o.is_blown, o.since
    FROM origin o JOIN pgtrickle.pgt_dependencies d ON d.source_relid OPERATOR(pg_catalog.=) o.pgt_relid
    JOIN pgtrickle.pgt_stream_tables s ON s.pgt_id OPERATOR(pg_catalog.=) d.pgt_id
    UNION
    SELECT s.pgt_id, s.pgt_relid, r.name, r.is_blown, r.since
    FROM reader r JOIN pgtrickle.pgt_dependencies d ON d.source_relid OPERATOR(pg_catalog.=) r.pgt_relid
    JOIN pgtrickle.pgt_stream_tables s ON s.pgt_id OPERATOR(pg_catalog.=) d.pgt_id
), told AS (
    SELECT r.pgt_id,
           pg_catalog.string_agg(DISTINCT r.name, ', ')
               FILTER (WHERE r.is_blown AND r.pgt_id NOT IN (SELECT p.pgt_id FROM repaired p)) AS held_by,
           pg_catalog.string_agg(DISTINCT r.name, ', ') FILTER (WHERE NOT r.is_blown) AS unlike,
           pg_catalog.min(r.since) FILTER (WHERE r.is_blown) AS held_since,
           pg_catalog.min(r.since) FILTER (WHERE NOT r.is_blown) AS unlike_since
    FROM reader r GROUP BY r.pgt_id
)
SELECT s.pgt_id, b.pgt_id IS NOT NULL AS is_blown, t.held_by, t.held_since, t.unlike, t.unlike_since,
       s.fuse_skipped_at IS NOT NULL OR t.unlike IS NOT NULL AS is_unequal,
       nullif(pg_catalog.concat_ws('; ',
           CASE WHEN b.pgt_id IS NOT NULL THEN 'blown' END,
           CASE WHEN s.fuse_skips_until IS NOT NULL THEN 'skipping changes' END,
           CASE WHEN s.fuse_skipped_at IS NOT NULL THEN 'not equal: changes were skipped' END,
           'not equal: changes were skipped of ' OPERATOR(pg_catalog.||) t.unlike,
           'held: the fuse is blown of ' OPERATOR(pg_catalog.||) t.held_by), '') AS state
FROM pgtrickle.pgt_stream_tables s
LEFT JOIN origin b ON b.pgt_id OPERATOR(pg_catalog.=) s.pgt_id AND b.is_blown
LEFT JOIN told t ON t.pgt_id OPERATOR(pg_catalog.=) s.pgt_id;
SELECT pgtrickle._grant_to_readers_of('pgtrickle.pgt_stream_tables', 'pgtrickle._fuse_states');

CREATE OR REPLACE FUNCTION pgtrickle._is_fuse_blown(st pgtrickle.pgt_stream_tables) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT st.fuse_blown_at IS NOT NULL
$$;

-- Refuses what would go past the range that a blown fuse stopped.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_blown(st pgtrickle.pgt_stream_tables, what text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = st.pgt_id;
    IF pgtrickle._is_fuse_blown(st) THEN
        RAISE EXCEPTION 'stream table % cannot be %: %', st.pgt_relid::regclass, what, st.fuse_blown_detail
            USING HINT = (pgtrickle._remedy('FuseBlown', st)).remedy, ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;

-- What is to be known beside the error of a suspension: why a reader stays where it is, and that changes were skipped.
CREATE OR REPLACE FUNCTION pgtrickle._fuse_findings(stream_table bigint)
RETURNS TABLE (since timestamptz, class text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.fuse_skipped_at, 'ChangesSkipped',
           format('it is not equal to its query: %s change rows were skipped by reset_fuse',
                  coalesce(s.fuse_skipped_changes::text, 'an unknown number of')),
           format('SELECT pgtrickle.reinitialize_stream_table(%L) makes it equal again.', format('%I.%I', s.pgt_schema, s.pgt_name))
    FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table AND s.fuse_skipped_at IS NOT NULL
    UNION ALL
    SELECT f.unlike_since, 'ChangesSkipped',
           format('it has changes that were skipped by reset_fuse of %s, which it reads: it is equal to its query over the sources, not over what it reads', f.unlike),
           format('SELECT pgtrickle.reinitialize_stream_table(…) of %s.', f.unlike)
    FROM pgtrickle._fuse_states f WHERE f.pgt_id = stream_table AND f.unlike IS NOT NULL
    UNION ALL
    SELECT f.held_since, 'FuseOfSource',
           format('it stays at its frontier: the fuse is blown of %s, which it reads', f.held_by),
           'SELECT * FROM pgtrickle.fuse_status() shows why; then SELECT pgtrickle.reset_fuse(…) of what it reads.'
    FROM pgtrickle._fuse_states f WHERE f.pgt_id = stream_table AND f.held_by IS NOT NULL
$$;

-- NULL leaves an option as it is.
CREATE OR REPLACE FUNCTION pgtrickle._set_fuse(
    name text, new_fuse text, new_ceiling double precision, new_sensitivity double precision, caller_path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
BEGIN
    IF num_nulls(new_fuse, new_ceiling, new_sensitivity) = 3 THEN
        RETURN;
    END IF;
    st := pgtrickle._stream_table(name, caller_path);
    IF lower(new_fuse) NOT IN ('off', 'on', 'auto') THEN
        RAISE EXCEPTION 'fuse % is not known', quote_literal(new_fuse)
            USING HINT = 'Use off, on or auto.', ERRCODE = 'invalid_parameter_value';
    ELSIF NOT (new_ceiling > 0 AND new_ceiling <= 1e12 AND (new_ceiling < 1 OR new_ceiling = trunc(new_ceiling))) THEN
        RAISE EXCEPTION 'fuse_ceiling % is out of bounds', new_ceiling
            USING HINT = 'Give a whole number of change rows, from 1, or below 1 a share of the rows of the sources.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF NOT (new_sensitivity > 0 AND new_sensitivity <= 1000) THEN
        RAISE EXCEPTION 'fuse_sensitivity % is out of bounds', new_sensitivity
            USING HINT = 'It is k in mean + k standard deviations: more than 0, up to 1000.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    st.fuse := coalesce(lower(new_fuse), st.fuse);
    st.fuse_ceiling := coalesce(new_ceiling, st.fuse_ceiling);
    st.fuse_sensitivity := coalesce(new_sensitivity, st.fuse_sensitivity);
    IF st.fuse = 'on' AND num_nulls(st.fuse_ceiling, st.fuse_sensitivity) = 2
       AND coalesce(pgtrickle._setting('fuse_default_ceiling')::double precision, 0) = 0 THEN
        RAISE EXCEPTION 'the fuse of stream table % has nothing to compare with', name
            USING HINT = 'Give fuse_ceiling or fuse_sensitivity, or use fuse => ''auto''.', ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE pgtrickle.pgt_stream_tables s
    SET fuse = st.fuse, fuse_ceiling = st.fuse_ceiling, fuse_sensitivity = st.fuse_sensitivity WHERE s.pgt_id = st.pgt_id;
END $$;
