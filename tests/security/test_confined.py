"""Text of users runs with the rights of its owner: no function that it calls gets at those of the applier.

The applier's login may read `vault`, the author may not. Every way out is tried in a query that PostgreSQL runs, in the
analysis of a query, in the body of a function that is looked into, and in a comparison.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from applier.catalog.catalog import Catalog
from applier.catalog.confined import Confined
from applier.catalog.database import Database, connect
from applier.catalog.install import install_catalog
from applier.errors import CalculationError, SourceChanged
from applier.plan.depth import Thresholds
from applier.plan.stream_table import PostgresQuery
from applier.refresh.check import check_once
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.sql.analyze.analyze import canonical_query
from applier.sql.plan_query import plan_query
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[Any]

TREASURE = "the treasure"

WAYS_OUT = [
    "RESET ROLE",
    "SET ROLE NONE",
    "SET LOCAL ROLE NONE",
    "SELECT set_config('role', 'none', false)",
    "RESET SESSION AUTHORIZATION",
    "SET SESSION AUTHORIZATION DEFAULT",
    "SELECT set_config('session_authorization', session_user, true)",
    "SET ROLE {applier}",
    "SET SESSION AUTHORIZATION {applier}",
    "RESET ALL",
    "DISCARD ALL",
]


@dataclass(frozen=True)
class Scene:
    """A database of an applier whose login may read `vault`, and of an author who may not."""

    admin: Connection
    author: Connection
    applier_url: str
    applier: str

    def define(self, body: str) -> None:
        """Let the author define function `grab`, which tries a way out and returns what it can read then.

        Queries call `look`: a volatile function is refused, but one that says that it is stable may call one.
        """
        self.author.execute(
            f"CREATE OR REPLACE FUNCTION mine.grab(int) RETURNS pg_catalog.text LANGUAGE plpgsql AS $f$"
            " DECLARE found pg_catalog.text; BEGIN"
            f" BEGIN {body} EXCEPTION WHEN OTHERS THEN NULL; END;"
            " BEGIN SELECT treasure INTO found FROM public.vault; EXCEPTION WHEN OTHERS THEN found := 'nothing'; END;"
            " IF found <> 'nothing' THEN PERFORM pg_advisory_lock(99);"
            " BEGIN PERFORM setval('mine.leaked', 99); EXCEPTION WHEN OTHERS THEN NULL; END; END IF;"
            " RETURN found; END $f$".encode()
        )
        self.author.execute(
            "CREATE OR REPLACE FUNCTION mine.look(int) RETURNS text LANGUAGE plpgsql STABLE AS"
            " 'BEGIN RETURN mine.grab($1); END'"
        )

    def leaked(self) -> bool:
        """Whether some call could read the treasure. Sequences do not roll back, nor do locks of open sessions."""
        row = self.admin.execute(
            "SELECT last_value = 99 OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 99"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) FROM mine.leaked"
        ).fetchone()
        return row == (True,)


@pytest.fixture
def scene(database: str) -> Iterator[Scene]:
    applier, author = (f"{name}_{secrets.token_hex(4)}" for name in ("applier", "author"))
    names = {"applier": sql.Identifier(applier), "author": sql.Identifier(author)}
    with psycopg.connect(database, autocommit=True) as admin:
        try:
            for statement in (
                "CREATE ROLE {author} LOGIN PASSWORD 'hush'",
                "CREATE ROLE {applier} LOGIN PASSWORD 'hush' REPLICATION IN ROLE {author}",
                "CREATE TABLE vault (id int PRIMARY KEY, treasure text)",
                f"INSERT INTO vault VALUES (1, '{TREASURE}')",
                "GRANT SELECT ON vault TO {applier}",
                "CREATE SCHEMA mine AUTHORIZATION {author}",
            ):
                admin.execute(sql.SQL(statement).format(**names))
            install_catalog(admin)
            for role in ("{author}", "{applier}"):
                for right in ("ALL ON SCHEMA", "ALL ON ALL TABLES IN SCHEMA"):
                    admin.execute(sql.SQL(f"GRANT {right} pgtrickle TO {role}").format(**names))
            admin.execute(
                sql.SQL("GRANT CREATE ON DATABASE {} TO {author}").format(sql.Identifier(admin.info.dbname), **names)
            )
            url = make_conninfo(database, user=author, password="hush")
            with psycopg.connect(url, autocommit=True) as own:
                own.execute("CREATE TABLE mine.source (id int PRIMARY KEY); INSERT INTO mine.source VALUES (1)")
                own.execute("CREATE SEQUENCE mine.leaked")
                yield Scene(admin, own, make_conninfo(database, user=applier, password="hush"), applier)
        finally:
            admin.execute("DROP PUBLICATION IF EXISTS pg_trickle")
            admin.execute(
                sql.SQL("DROP OWNED BY {author}, {applier} CASCADE; DROP ROLE {author}, {applier}").format(**names)
            )


def create(scene: Scene, query: str, mode: str = "FULL") -> None:
    scene.author.execute("SELECT pgtrickle.create_stream_table('mine.st', %s, refresh_mode => %s)", (query, mode))


def plan(scene: Scene) -> Any:
    database = Database(scene.applier_url)
    try:
        catalog = Catalog(database)
        [row] = catalog.stream_tables.all()
        return StreamTablePlanner(database, catalog, Thresholds())(row)
    finally:
        database.close()


def test_a_query_that_postgresql_runs_stays_its_owners(scene: Scene) -> None:
    """A function in the query can RESET ROLE and go on as the applier."""
    scene.define("NULL;")
    create(scene, "SELECT id, mine.look(id) AS found FROM mine.source")
    table = plan(scene)
    assert isinstance(table.plan, PostgresQuery)
    runner = FullInPostgres(scene.applier_url, 1000)
    for way in WAYS_OUT:
        scene.define(f"EXECUTE $w${way.format(applier=scene.applier)}$w$;")
        found = runner.run(table, ORIGIN).rows
        assert found["c1"].to_pylist() == ["nothing"], way
    assert not scene.leaked()


def test_a_query_that_postgresql_runs_writes_nothing(scene: Scene) -> None:
    """What it writes could fire a deferred trigger at the commit, with the rights of the applier."""
    scene.author.execute(
        "CREATE TABLE mine.log (id int);"
        "CREATE FUNCTION mine.late() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM mine.grab(1); RETURN NULL; END $$"
    )
    scene.define("NULL;")
    scene.author.execute(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mine.log DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION mine.late()"
    )
    scene.author.execute(
        "CREATE FUNCTION mine.writes(int) RETURNS int LANGUAGE sql AS 'INSERT INTO mine.log VALUES ($1) RETURNING id'"
    )
    scene.author.execute(
        "CREATE FUNCTION mine.calls(int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN mine.writes($1); END'"
    )
    create(scene, "SELECT id, mine.calls(id) AS found FROM mine.source")
    # A limit of no rows: the difference is staged, and the transaction commits.
    with pytest.raises(CalculationError, match="read-only"):
        FullInPostgres(scene.applier_url, 0).run(plan(scene), ORIGIN)
    assert scene.author.execute("SELECT count(*) FROM mine.log").fetchone() == (0,)


def test_what_a_query_leaves_behind_is_not_run_by_the_applier(scene: Scene) -> None:
    """A cursor WITH HOLD runs at the commit, a replaced prepared statement and a search path at the next use."""
    scene.define("NULL;")
    create(scene, "SELECT id, mine.look(id) AS found FROM mine.source")
    table = plan(scene)
    scene.author.execute(
        "CREATE FUNCTION mine.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT mine.grab(1); SELECT null::timestamptz'"
    )
    for way in (
        "DECLARE held CURSOR WITH HOLD FOR SELECT mine.grab(2)",
        "DEALLOCATE ALL; PREPARE _pg3_0 AS SELECT mine.grab(3)",
        "SET search_path = mine, pg_catalog",
    ):
        scene.define(f"EXECUTE $w${way}$w$;")
        # The difference is staged, so the transaction commits after the query.
        FullInPostgres(scene.applier_url, 0).run(table, ORIGIN).lease().close()
        assert not scene.leaked(), way


def test_the_analysis_of_a_text_stays_its_owners(scene: Scene) -> None:
    """A literal of an array of a domain is checked when it is read: that calls functions, although nothing is run."""
    scene.define("EXECUTE 'SET ROLE NONE';")
    scene.author.execute("CREATE DOMAIN mine.checked AS int CHECK (mine.grab(VALUE) IS NOT NULL)")
    literal = "SELECT id, '{1}'::mine.checked[] AS found FROM mine.source"
    create(scene, literal, "DIFFERENTIAL")
    with connect(scene.applier_url) as session, session.transaction(force_rollback=True):
        # Without a wall the check is run as whoever analyses, so this would be a way in.
        session.execute("SELECT '{1}'::mine.checked[]")
    assert scene.leaked()
    scene.author.execute("SELECT setval('mine.leaked', 1)")
    # Whether such columns and functions are supported does not matter here.
    with contextlib.suppress(TrickleError):
        plan(scene)
    assert not scene.leaked()
    scene.author.execute(
        "CREATE FUNCTION mine.simple(int) RETURNS int LANGUAGE sql IMMUTABLE AS"
        " $$ SELECT $1 + cardinality('{1}'::mine.checked[]) $$"
    )
    author = scene.author.info.user
    with connect(scene.applier_url) as session, contextlib.suppress(TrickleError):
        plan_query(session, "SELECT id FROM mine.source WHERE mine.simple(id) > 1", "pg_catalog", role=author)
    assert not scene.leaked()


PLANTS = {
    "a view in place of a catalog table": " ".join(
        f"BEGIN EXECUTE 'CREATE TEMP VIEW {name} AS SELECT * FROM pg_catalog.{name} WHERE mine.grab(1) IS NOT NULL';"
        " EXCEPTION WHEN OTHERS THEN NULL; END;"
        for name in ("pg_class", "pg_rewrite", "pg_proc", "pg_attribute", "pg_type", "pg_namespace", "pg_settings")
    ),
    "a type in place of PostgreSQL's": " ".join(
        f"BEGIN EXECUTE 'CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} CHECK (mine.grab(1) IS NOT NULL)';"
        " EXCEPTION WHEN OTHERS THEN NULL; END;"
        for name in ("int8", "oid", "regclass", "json")
    ),
    "another body for the confined function": """
        FOR place IN SELECT p.proname FROM pg_catalog.pg_proc p WHERE p.proname LIKE 'pgt_confined%'
                     AND p.pronamespace = pg_catalog.pg_my_temp_schema() AND p.pronargs = 2 LOOP
            EXECUTE pg_catalog.format(
                'CREATE OR REPLACE FUNCTION pg_temp.%I(statement pg_catalog.text, query pg_catalog.text)'
                ' RETURNS pg_catalog.void LANGUAGE plpgsql SECURITY INVOKER AS %L',
                place, 'BEGIN EXECUTE statement; PERFORM mine.grab(1); END');
        END LOOP;""",
}
"""What a text may leave in the session's temporary schema, which PostgreSQL searches first for tables and types."""


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_what_an_analysis_leaves_behind_is_not_run_by_the_applier(scene: Scene, plant: str) -> None:
    """The check of a domain runs while the text is parsed, and may create objects. They wait for our next statement."""
    scene.define("NULL;")
    scene.author.execute(
        "CREATE FUNCTION mine.plant(int) RETURNS bool LANGUAGE plpgsql AS $f$ DECLARE place text; BEGIN"
        f" {plant} RETURN true; END $f$".encode()
    )
    scene.author.execute(
        "CREATE DOMAIN mine.planted AS int CHECK (mine.plant(VALUE));"
        "CREATE FUNCTION mine.simple(int) RETURNS int LANGUAGE sql IMMUTABLE AS"
        " $$ SELECT $1 + cardinality('{1}'::mine.planted[]) $$"
    )
    # As a question, and what the author's own session does, it does no harm: both run with his rights.
    query = "SELECT id, cardinality('{1}'::mine.planted[]) AS n FROM mine.source WHERE mine.simple(id) > 1"
    create(scene, query, "DIFFERENTIAL")
    scene.author.execute("SELECT pgtrickle.create_stream_table('mine.above', 'SELECT id FROM mine.st')")
    scene.author.execute("DISCARD TEMP; SELECT setval('mine.leaked', 1)")
    author = scene.author.info.user
    database = Database(scene.applier_url)
    try:
        catalog = Catalog(database)
        for row in catalog.stream_tables.all():
            # Whether such functions are supported does not matter here.
            with contextlib.suppress(TrickleError):
                StreamTablePlanner(database, catalog, Thresholds())(row)
            assert not scene.leaked(), row.pgt_name
    finally:
        database.close()
    with connect(scene.applier_url) as session:
        with contextlib.suppress(TrickleError, psycopg.Error):
            canonical_query(session, query, author)
        assert not scene.leaked(), "the text as it is printed"
        with contextlib.suppress(TrickleError, psycopg.Error):
            check_once(session, TableId("mine", "st"), sample=10)
        assert not scene.leaked(), "a comparison"


def test_a_comparison_stays_its_owners(scene: Scene) -> None:
    scene.define("NULL;")
    create(scene, "SELECT id, mine.look(id) AS found FROM mine.source")
    scene.author.execute("SELECT pgtrickle.allow_direct_dml('mine.st')")
    scene.author.execute("INSERT INTO mine.st VALUES (1, 'old')")
    for way in WAYS_OUT:
        scene.define(f"EXECUTE $w${way.format(applier=scene.applier)}$w$;")
        with connect(scene.applier_url) as session:
            result = check_once(session, TableId("mine", "st"), sample=10)
            assert all(TREASURE not in row for row in result.missing), way
            assert any("nothing" in row for row in result.missing), way
    assert not scene.leaked()


def test_a_path_that_a_comparison_leaves_behind_is_not_used(scene: Scene) -> None:
    """Both sides are compared twice: the second time after the query has run."""
    scene.define("NULL;")
    scene.author.execute("CREATE DOMAIN mine.text AS pg_catalog.text CHECK (mine.grab(1) IS NOT NULL)")
    create(scene, "SELECT id, mine.look(id) AS found FROM mine.source")
    scene.author.execute("SELECT pgtrickle.allow_direct_dml('mine.st')")
    scene.author.execute("INSERT INTO mine.st VALUES (1, 'old')")
    scene.author.execute("SELECT setval('mine.leaked', 1)")
    scene.define("EXECUTE 'SET search_path = mine, pg_catalog';")
    with connect(scene.applier_url) as session:
        result = check_once(session, TableId("mine", "st"), sample=10)
        assert not scene.leaked()
    assert result.missing and result.unexpected


def test_a_cast_of_the_owner_is_not_run_by_a_comparison(scene: Scene) -> None:
    """Values of the key are printed to choose a sample; whoever owns a type may define its cast to text."""
    scene.define("NULL;")
    scene.author.execute(
        "CREATE TYPE mine.mood AS ENUM ('glad');"
        "CREATE FUNCTION mine.print(mine.mood) RETURNS text LANGUAGE plpgsql AS"
        " $f$ BEGIN PERFORM mine.grab(1); RETURN 'glad'; END $f$;"
        "CREATE CAST (mine.mood AS text) WITH FUNCTION mine.print(mine.mood);"
        "ALTER TABLE mine.source ADD COLUMN mood mine.mood DEFAULT 'glad'"
    )
    create(scene, "SELECT mood, id FROM mine.source", "DIFFERENTIAL")
    scene.author.execute("SELECT pgtrickle.allow_direct_dml('mine.st')")
    scene.author.execute("INSERT INTO mine.st VALUES ('glad', 1)")
    scene.author.execute("SELECT setval('mine.leaked', 1)")
    with connect(scene.applier_url) as session:
        assert check_once(session, TableId("mine", "st"), sample=10).equal
    assert not scene.leaked()


def test_a_stream_table_holds_what_its_owner_may_read(scene: Scene) -> None:
    """Whoever may write the catalog could make a stream table of a table that he may not read."""
    create(scene, "SELECT id, NULL::text AS treasure FROM mine.source", "DIFFERENTIAL")
    plan(scene)
    scene.admin.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET defining_query = 'SELECT vault.id, vault.treasure FROM public.vault'"
    )
    with pytest.raises(
        SourceChanged, match=r"owner of mine\.st may not run its query: permission denied for table vault"
    ):
        plan(scene)
    # Not through another stream table either.
    scene.admin.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET defining_query = 'SELECT id, NULL::text AS treasure FROM mine.source'"
    )
    scene.author.execute("SELECT pgtrickle.create_stream_table('mine.above', 'SELECT treasure FROM mine.st')")
    scene.admin.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET defining_query = 'SELECT vault.id, vault.treasure FROM public.vault'"
        " WHERE pgt_name = 'st'"
    )
    database = Database(scene.applier_url)
    catalog = Catalog(database)
    above = next(row for row in catalog.stream_tables.all() if row.pgt_name == "above")
    with pytest.raises(SourceChanged, match="permission denied for table vault"):
        StreamTablePlanner(database, catalog, Thresholds())(above)
    database.close()


def test_a_row_of_the_catalog_is_no_statement(scene: Scene) -> None:
    """Columns that a stream table gets are read from a pending alteration, and added with the rights of the applier."""
    scene.define("NULL;")
    create(scene, "SELECT id FROM mine.source", "DIFFERENTIAL")
    quoted, plain = 'x" int; SELECT mine.grab(1); ALTER TABLE mine.st ADD COLUMN "y', "x int; SELECT mine.grab(1); --"
    for column in (
        {"name": quoted, "type": "integer", "typmod": -1},
        {"name": plain, "type": "integer", "typmod": -1},
        {"name": "x", "type": "int; SELECT mine.grab(1); --", "typmod": -1},
        {"name": "x", "type": "text", "typmod": -1, "collation": '"C"; SELECT mine.grab(1); --'},
    ):
        scene.admin.execute("DELETE FROM pgtrickle.pgt_alterations")
        scene.author.execute(
            "INSERT INTO pgtrickle.pgt_alterations"
            " (pgt_id, original_query, defining_query, search_path, dependencies, added_columns)"
            " SELECT pgt_id, original_query, defining_query, search_path, '[]', %s::jsonb"
            " FROM pgtrickle.pgt_stream_tables",
            (json.dumps([column]),),
        )
        with connect(scene.applier_url) as session, contextlib.suppress(psycopg.Error):
            session.execute("SELECT pgtrickle._adopt(pgt_id, NULL) FROM pgtrickle.pgt_stream_tables")
            assert not scene.leaked()
        assert not scene.leaked()
    names = scene.admin.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'mine.st'::regclass AND attnum > 0"
    ).fetchall()
    assert set(names) == {("id",), (quoted,), (plain,)}


def test_a_role_that_the_session_cannot_become_is_refused(scene: Scene) -> None:
    with connect(scene.applier_url) as session, pytest.raises(errors.InsufficientPrivilege), session.transaction():
        Confined(session, "postgres")
