-- Dependencies between tables and stream tables.

CREATE OR REPLACE FUNCTION pgtrickle._list_sources(name text, caller_path text)
RETURNS TABLE (source text, source_type text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables := pgtrickle._stream_table(name, caller_path);
BEGIN
    RETURN QUERY SELECT format('%I.%I', d.source_schema, d.source_name), d.source_type
                 FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = st.pgt_id ORDER BY 1;
END $$;

CREATE OR REPLACE FUNCTION pgtrickle.list_sources(
    name text,
    search_path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS TABLE (source text, source_type text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM pgtrickle._list_sources(name, search_path);
END $$;
COMMENT ON FUNCTION pgtrickle.list_sources IS 'List the tables and stream tables that a stream table reads.';

CREATE OR REPLACE FUNCTION pgtrickle.dependency_tree()
RETURNS TABLE (tree_line text, node text, node_type text, depth integer, status text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE nodes(relid, node, node_type, depth, path) AS (
        SELECT DISTINCT d.source_relid, format('%I.%I', d.source_schema, d.source_name), d.source_type, 0,
               ARRAY[format('%I.%I', d.source_schema, d.source_name)]
        FROM pgtrickle.pgt_dependencies d WHERE d.source_type = 'TABLE'
        UNION ALL
        SELECT s.pgt_relid, format('%I.%I', s.pgt_schema, s.pgt_name), 'STREAM_TABLE', n.depth + 1,
               n.path || format('%I.%I', s.pgt_schema, s.pgt_name)
        FROM nodes n JOIN pgtrickle.pgt_dependencies d ON d.source_relid = n.relid
        JOIN pgtrickle.pgt_stream_tables s ON s.pgt_id = d.pgt_id
    )
    SELECT repeat('  ', n.depth) || n.node, n.node, n.node_type, n.depth, s.status
    FROM nodes n LEFT JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = n.relid
    ORDER BY n.path
$$;
COMMENT ON FUNCTION pgtrickle.dependency_tree IS
    'Show every table with the stream tables that read it, indented. One that is read on several paths appears on each.';

CREATE OR REPLACE FUNCTION pgtrickle.explain_dag(format text DEFAULT 'mermaid') RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    edges text;
BEGIN
    IF explain_dag.format NOT IN ('mermaid', 'dot') THEN
        RAISE EXCEPTION 'format % is not known', explain_dag.format
            USING HINT = 'Use mermaid or dot.', ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT string_agg(
        CASE explain_dag.format
            WHEN 'mermaid' THEN format(E'    r%s["%s"] --> r%s["%s"]', d.source_relid,
                replace(pg_catalog.format('%s.%s', d.source_schema, d.source_name), '"', '#quot;'), s.pgt_relid,
                replace(pg_catalog.format('%s.%s', s.pgt_schema, s.pgt_name), '"', '#quot;'))
            ELSE format('    "%s" -> "%s";',
                replace(pg_catalog.format('%s.%s', d.source_schema, d.source_name), '"', '\"'),
                replace(pg_catalog.format('%s.%s', s.pgt_schema, s.pgt_name), '"', '\"')) END,
        E'\n' ORDER BY s.pgt_id, d.source_schema, d.source_name) INTO edges
    FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (pgt_id);
    RETURN CASE explain_dag.format WHEN 'mermaid' THEN E'graph TD\n' || coalesce(edges, '')
           ELSE E'digraph stream_tables {\n' || coalesce(edges || E'\n', '') || '}' END;
END $$;
COMMENT ON FUNCTION pgtrickle.explain_dag IS 'Return the graph of tables and stream tables as mermaid or dot text.';

-- A diamond: a stream table that reads another one on more than one path.
CREATE OR REPLACE FUNCTION pgtrickle.diamond_groups() RETURNS TABLE (diamond_top text, shared text, members text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE ways(top, relid, path) AS (
        SELECT s.pgt_relid, s.pgt_relid, ARRAY[s.pgt_relid] FROM pgtrickle.pgt_stream_tables s
        UNION ALL
        SELECT w.top, d.source_relid, w.path || d.source_relid
        FROM ways w JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = w.relid
        JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = s.pgt_id AND d.source_type = 'STREAM_TABLE'
    ),
    diamonds AS (
        SELECT w.top, w.relid AS bottom FROM ways w WHERE w.top <> w.relid
        GROUP BY w.top, w.relid HAVING count(DISTINCT w.path[array_upper(w.path, 1) - 1]) > 1
    ),
    named AS (SELECT s.pgt_relid, format('%I.%I', s.pgt_schema, s.pgt_name) AS name FROM pgtrickle.pgt_stream_tables s)
    SELECT t.name, b.name,
           ARRAY(SELECT DISTINCT n.name FROM ways w JOIN named n ON n.pgt_relid = ANY (w.path)
                 WHERE w.top = d.top AND w.relid = d.bottom ORDER BY 1)
    FROM diamonds d JOIN named t ON t.pgt_relid = d.top JOIN named b ON b.pgt_relid = d.bottom ORDER BY 1, 2
$$;
COMMENT ON FUNCTION pgtrickle.diamond_groups IS
    'List stream tables that read another one on several paths. All members are at one frontier, so they always agree.';
