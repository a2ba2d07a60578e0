"""What the owner of a stream table wrote runs with his rights, whoever analyses or diagnoses it: one test per place.

The text tries to leave its role. Whether it could is told by an advisory lock, which outlives a rollback.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from applier.catalog.install import install_catalog

Connection = psycopg.Connection[tuple[object, ...]]

SETUP = """
CREATE ROLE {owner}; CREATE ROLE {author} IN ROLE {owner};
GRANT CREATE ON DATABASE {database} TO {owner}; GRANT CREATE ON SCHEMA public TO {owner};
SET ROLE {owner}; CREATE PUBLICATION pg_trickle
"""

TRAP = """
SET ROLE {author};
CREATE TABLE public.src (id int PRIMARY KEY, v int);
CREATE FUNCTION public.escape(v int) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $f$
BEGIN
    PERFORM pg_catalog.pg_advisory_lock(1);
    BEGIN
        RESET ROLE;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    IF (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) THEN
        PERFORM pg_catalog.pg_advisory_lock(2);
    END IF;
    RETURN true;
END $f$;
CREATE DOMAIN public.checked AS int CHECK (public.escape(VALUE));
RESET ROLE
"""

RAN, ESCAPED = 1, 2

IN_ANALYSIS = "SELECT *, '{1}'::public.checked[] AS one FROM public.src"
"""A literal of an array of a domain is checked when the query is read."""

IN_EXECUTION = "SELECT id, public.escape(id) AS one FROM public.src"


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    """Yield a superuser's session: that of an administrator, or of an applier with many rights."""
    mark = secrets.token_hex(4)
    with psycopg.connect(database, autocommit=True) as connection:
        names = {
            "owner": sql.Identifier(f"owner_{mark}"),
            "author": sql.Identifier(f"author_{mark}"),
            "database": sql.Identifier(connection.info.dbname),
        }
        for statement in SETUP.split(";"):
            connection.execute(sql.SQL(statement).format(**names))
        install_catalog(connection)
        connection.execute(sql.SQL(TRAP).format(**names))
        connection.execute(sql.SQL("SET SESSION AUTHORIZATION {author}").format(**names))
        yield connection
        connection.execute("RESET ROLE")
        connection.execute(
            sql.SQL("DROP OWNED BY {owner}, {author} CASCADE; DROP ROLE {owner}, {author}").format(**names)
        )


def create(db: Connection, query: str, mode: str = "FULL") -> None:
    """Create the stream table as its author, then go on as a superuser."""
    db.execute("SELECT pgtrickle.create_stream_table('public.st', %s, refresh_mode => %s)", (query, mode))
    db.execute("RESET SESSION AUTHORIZATION; RESET ROLE")
    assert not has_lock(db, ESCAPED)
    db.execute("SELECT pg_advisory_unlock_all()")


def has_lock(db: Connection, number: int) -> bool:
    found = db.execute(
        "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND pid = pg_backend_pid()", (number,)
    )
    return found.rowcount > 0


def assert_confined(db: Connection) -> None:
    assert has_lock(db, RAN), "the text was not run at all"
    assert not has_lock(db, ESCAPED), "the text ran with the rights of the caller"


def test_reinitialize_analyses_as_the_owner(db: Connection) -> None:
    create(db, IN_ANALYSIS)
    db.execute("SELECT pgtrickle.reinitialize_stream_table('public.st')")
    assert_confined(db)


def test_a_diagnosis_analyses_as_the_owner(db: Connection) -> None:
    create(db, IN_ANALYSIS)
    db.execute("SELECT pgtrickle.diagnose_errors('public.st')")
    assert_confined(db)


def test_a_diagnosis_runs_the_query_as_the_owner_and_without_writing(db: Connection) -> None:
    db.execute("INSERT INTO public.src VALUES (1, 1)")
    create(db, IN_EXECUTION)
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_code = 'CalculationError'")
    db.execute("SELECT pgtrickle.diagnose_errors('public.st')")
    assert_confined(db)
    # What the query would write is refused, and that is a finding, not an error of the call.
    db.execute("ALTER FUNCTION public.escape(int) RENAME TO before; CREATE SEQUENCE public.counted")
    db.execute("GRANT USAGE ON SEQUENCE public.counted TO PUBLIC")
    db.execute(
        "CREATE OR REPLACE FUNCTION public.before(v int) RETURNS boolean LANGUAGE sql AS"
        " $$ SELECT nextval('public.counted') > 0 $$"
    )
    db.execute("ALTER FUNCTION public.before(int) RENAME TO escape")
    found = db.execute("SELECT error_message FROM pgtrickle.diagnose_errors('public.st')").fetchall()
    assert any("read-only" in str(message) for (message,) in found), found


def test_a_path_that_a_diagnosis_leaves_behind_is_not_used(db: Connection) -> None:
    """A function that calls itself immutable runs when the query is planned; the next statement is ours."""
    db.execute(
        "CREATE FUNCTION public.leave(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN"
        " PERFORM pg_catalog.set_config('search_path', 'public, pg_catalog', false); RETURN v; END $f$"
    )
    db.execute(
        "CREATE FUNCTION public.format(text, text) RETURNS text LANGUAGE plpgsql AS"
        " $f$ BEGIN PERFORM public.escape(1); RETURN pg_catalog.format($1, $2); END $f$"
    )
    create(db, "SELECT id, public.leave(1) AS one FROM public.src")
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_code = 'CalculationError'")
    db.execute("SELECT pgtrickle.diagnose_errors('public.st')")
    assert not has_lock(db, ESCAPED), "a function of the author ran with the rights of the caller"


def test_columns_that_are_added_are_looked_for_as_the_owner(db: Connection) -> None:
    create(db, IN_ANALYSIS)
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET auto_evolve = true")
    db.execute("ALTER TABLE public.src ADD COLUMN w int")
    begun = db.execute("SELECT pgtrickle._evolve(ARRAY(SELECT pgt_id FROM pgtrickle.pgt_stream_tables))").fetchone()
    assert begun == (1,)
    assert_confined(db)


def test_the_text_cannot_leave_settings_or_views_behind(db: Connection) -> None:
    """The search path after an analysis is that of the session, and nothing of the analysis stays."""
    create(db, IN_ANALYSIS)
    db.execute("SET search_path = public")
    db.execute("SELECT pgtrickle.reinitialize_stream_table('public.st')")
    assert db.execute("SHOW search_path").fetchone() == ("public",)
    assert db.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'pgt_analysed%'").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM pg_proc WHERE proname LIKE 'pgt_confined%'").fetchone() == (0,)
