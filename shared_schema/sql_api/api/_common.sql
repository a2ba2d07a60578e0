-- Functions that the other files use. Loaded first.

-- Returns the interval of a schedule; NULL for cron expressions and 'calculated', which the applier evaluates.
CREATE OR REPLACE FUNCTION pgtrickle._check_schedule(schedule text) RETURNS interval
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part   text[];
    total  interval := '0';
BEGIN
    IF lower(schedule) = 'continuous' THEN
        RETURN total;
    ELSIF lower(schedule) IN ('calculated', '@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@annually')
       OR schedule ~ '^\s*([0-9*,/A-Za-z#-]+\s+){4}[0-9*,/A-Za-z#-]+\s*$' THEN
        RETURN NULL;
    ELSIF schedule IS NULL OR schedule !~ '^([0-9]{1,9}(ms|s|m|h|d))+$' THEN
        RAISE EXCEPTION 'schedule % is not understood', coalesce(quote_literal(schedule), 'NULL')
            USING HINT = 'Write a duration (1s, 30s, 5m, 1h30m), a cron expression (*/5 * * * *), continuous or calculated.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR part IN SELECT regexp_matches(schedule, '([0-9]+)(ms|s|m|h|d)', 'g') LOOP
        total := total + part[1]::int * CASE part[2] WHEN 'ms' THEN interval '1 millisecond' WHEN 's' THEN interval '1 second'
            WHEN 'm' THEN interval '1 minute' WHEN 'h' THEN interval '1 hour' ELSE interval '1 day' END;
    END LOOP;
    RETURN total;
END $$;

-- Returns the schemas of a search path that exist and that the caller may use, in order.
CREATE OR REPLACE FUNCTION pgtrickle._schemas(caller_path text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('search_path', caller_path, true);
    RETURN pg_catalog.current_schemas(false);
END $$;

-- Returns the catalog row of a stream table. A name without a schema is looked up in the caller's search path.
CREATE OR REPLACE FUNCTION pgtrickle._stream_table(name text, caller_path text) RETURNS pgtrickle.pgt_stream_tables
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parts text[] := parse_ident(name);
    path  text[];
    st    pgtrickle.pgt_stream_tables;
BEGIN
    IF cardinality(parts) = 2 THEN
        SELECT * INTO st FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_schema = parts[1] AND s.pgt_name = parts[2];
    ELSE
        path := pgtrickle._schemas(caller_path);
        SELECT * INTO st FROM pgtrickle.pgt_stream_tables s
        WHERE s.pgt_schema = ANY (path) AND s.pgt_name = parts[1]
        ORDER BY array_position(path, s.pgt_schema) LIMIT 1;
    END IF;
    IF st.pgt_id IS NULL THEN
        RAISE EXCEPTION 'there is no stream table %', name
            USING HINT = 'SELECT * FROM pgtrickle.pgt_status() lists them.', ERRCODE = 'undefined_table';
    END IF;
    RETURN st;
END $$;

-- Lets every role that may read a table of the catalog read relations of the catalog too. For what an upgrade creates: a
-- role that was granted all tables before it would lack these.
CREATE OR REPLACE FUNCTION pgtrickle._grant_to_readers_of(known regclass, VARIADIC created regclass[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reader text;
    name   regclass;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = known AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner LOOP
        FOREACH name IN ARRAY created LOOP
            EXECUTE format('GRANT SELECT ON %s TO %s', name, reader);
        END LOOP;
    END LOOP;
END $$;
