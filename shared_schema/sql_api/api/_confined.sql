-- Text that a stream table's owner wrote is analysed and run with the rights of that owner, whoever calls. SET ROLE is no
-- wall: a function in the text could RESET ROLE. Inside a SECURITY DEFINER function PostgreSQL refuses every change of the role.

-- Makes a temporary function of that owner; returns the text that calls it with a statement, a query and whether a value is
-- wanted. With a query, PostgreSQL first checks that it is one SELECT and that the owner may read what it names.
-- The caller undoes everything afterwards: what the text wrote, and the settings that it left.
CREATE OR REPLACE FUNCTION pgtrickle._confine(owner oid) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    role_before  text := current_setting('role');
    name         text := 'pgt_confined_' || replace(gen_random_uuid()::text, '-', '');
BEGIN
    PERFORM set_config('role', pg_get_userbyid(owner), true);
    -- It calls no function and no operator of its own: the search path in force is that of the text.
    EXECUTE format($f$
        CREATE FUNCTION pg_temp.%I(statement pg_catalog.text, query pg_catalog.text, wanted pg_catalog.bool)
        RETURNS pg_catalog.text LANGUAGE plpgsql SECURITY DEFINER AS $body$
        DECLARE
            probe   pg_catalog.refcursor;
            answer  pg_catalog.text;
        BEGIN
            IF query IS NOT NULL THEN
                OPEN probe FOR EXECUTE query;
                CLOSE probe;
            END IF;
            IF wanted THEN
                EXECUTE statement INTO answer;
            ELSE
                EXECUTE statement;
            END IF;
            RETURN answer;
        END $body$ $f$, name);
    PERFORM set_config('role', role_before, true);
    RETURN format('SELECT pg_temp.%I($1, $2, $3)', name);
END $$;

-- As _analyse, with the rights of an owner. To be called in a block that is rolled back after the view was looked at: not even
-- a deferred trigger that the text has set off then runs with the rights of the caller.
CREATE OR REPLACE FUNCTION pgtrickle._analyse_as(owner oid, query text, caller_path text) RETURNS oid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    view_name  text := 'pgt_analysed_' || replace(gen_random_uuid()::text, '-', '');
    statement  text := format('CREATE TEMPORARY VIEW %I AS %s', view_name, query);
    call       text := pgtrickle._confine(owner);
BEGIN
    PERFORM set_config('search_path', caller_path, true);
    EXECUTE call USING statement, query, false;
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    RETURN format('pg_temp.%I', view_name)::regclass::oid;
END $$;
