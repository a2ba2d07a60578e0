"""Installing, upgrading and removing the catalog: who may do it, and that a name is never executed as SQL."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors, sql

from applier.catalog.install import install_catalog, migrations, uninstall_catalog
from applier.cli import main
from applier.errors import InstallError
from cdc_consumer.wal.catalog import stored_settings

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def one(db: Connection, query: str, *arguments: object) -> object:
    row = db.execute(query.encode(), arguments or None).fetchone()
    return row[0] if row else None


def test_a_dry_run_says_what_it_would_do_and_leaves_nothing(db: Connection, database: str) -> None:
    run = CliRunner().invoke(main, ["install", "--dry-run", "--database-url", database])
    assert run.exit_code == 0 and run.output.startswith("would install: 0001_catalog.sql, ")
    assert one(db, "SELECT to_regnamespace('pgtrickle')") is None
    run = CliRunner().invoke(main, ["install", "--database-url", database])
    assert run.output.startswith("installed: 0001_catalog.sql, ")
    run = CliRunner().invoke(main, ["install", "--database-url", database])
    assert run.output == "already up to date; functions renewed\n"


def test_the_upgrade_drops_functions_of_an_older_version(db: Connection) -> None:
    install_catalog(db)
    db.execute("CREATE FUNCTION pgtrickle.drop_stream_table(name text) RETURNS void LANGUAGE sql AS ''")
    db.execute("CREATE FUNCTION public.drop_stream_table(name text) RETURNS void LANGUAGE sql AS ''")
    assert install_catalog(db) == []
    assert one(db, "SELECT count(*) FROM pg_proc WHERE proname = 'drop_stream_table'") == 2
    db.execute("CREATE FUNCTION pgtrickle.old() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    db.execute("CREATE VIEW uses_old AS SELECT pgtrickle.old()")
    with pytest.raises(InstallError, match="uses_old"):
        install_catalog(db)


def test_removing_asks_what_becomes_of_the_stream_tables(db: Connection, database: str) -> None:
    assert uninstall_catalog(db) == []
    install_catalog(db)
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
    db.execute("CREATE VIEW watches AS SELECT * FROM pgtrickle.pgt_status()")
    with pytest.raises(InstallError, match="watches"):
        uninstall_catalog(db, keep_stream_tables=True)
    db.execute("DROP VIEW watches")
    run = CliRunner().invoke(main, ["uninstall", "--database-url", database])
    assert run.exit_code == 1 and "public.st" in run.output and "--keep-stream-tables" in run.output
    assert "schema pgtrickle" in uninstall_catalog(db, keep_stream_tables=True)
    assert one(db, "SELECT to_regclass('st')") == "st"
    assert one(db, "SELECT count(*) FROM pg_publication WHERE pubname = 'pg_trickle'") == 0
    install_catalog(db)
    db.execute("SELECT pgtrickle.create_stream_table('st2', 'SELECT id FROM t')")
    assert "stream table public.st2" in uninstall_catalog(db, drop_stream_tables=True)
    assert one(db, "SELECT to_regclass('st2')") is None


def test_every_function_pins_its_search_path_and_every_public_one_says_what_it_does(db: Connection) -> None:
    install_catalog(db)
    of_ours = "FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace"
    count = one(db, f"SELECT count(*) {of_ours}")
    assert isinstance(count, int) and count > 40
    pinned = "coalesce(proconfig::text, '') LIKE '%\"search_path=pg_catalog, pg_temp\"%'"
    assert db.execute(f"SELECT oid::regprocedure::text {of_ours} AND NOT {pinned}".encode()).fetchall() == []
    silent = f"SELECT proname {of_ours} AND proname NOT LIKE '\\_%' AND obj_description(oid, 'pg_proc') IS NULL"
    assert db.execute(silent.encode()).fetchall() == []
    definer = f"SELECT proname, has_function_privilege('public', oid, 'EXECUTE') {of_ours} AND prosecdef ORDER BY 1"
    assert db.execute(definer.encode()).fetchall() == [
        ("_announce", False),
        ("_ask", True),
        ("_ddl_ended", False),
        ("_dropped", False),
        ("_emit_signed", False),
        ("_on_ddl_end", True),
        ("_on_drop", True),
        ("_signature", False),
        ("note_resync", False),
    ]


def test_a_key_that_a_dump_left_out_is_made_again(db: Connection) -> None:
    """pg_dump of a role that the policy hides the key from works with --enable-row-security, without the key."""
    install_catalog(db)
    key = one(db, "SELECT secret FROM pgtrickle.pgt_secret")
    install_catalog(db)
    assert one(db, "SELECT secret FROM pgtrickle.pgt_secret") == key
    db.execute("DELETE FROM pgtrickle.pgt_secret")
    install_catalog(db)
    assert one(db, "SELECT length(secret) FROM pgtrickle.pgt_secret") == 32
    assert one(db, "SELECT secret FROM pgtrickle.pgt_secret") != key
    role = sql.Identifier(f"dumps_{secrets.token_hex(4)}")
    db.execute(sql.SQL("CREATE ROLE {} IN ROLE pg_read_all_data").format(role))
    try:
        db.execute(sql.SQL("SET ROLE {}; SET row_security = off").format(role))
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            one(db, "SELECT secret FROM pgtrickle.pgt_secret")
        db.execute("SET row_security = on")
        assert one(db, "SELECT count(*) FROM pgtrickle.pgt_secret") == 0
    finally:
        db.execute("RESET ROLE; RESET row_security")
        db.execute(sql.SQL("DROP ROLE {}").format(role))


def test_partitions_are_not_published_anew_under_an_older_consumer(db: Connection, database: str) -> None:
    """It would drop their rows without a word: they are of tables that it does not know."""
    install_catalog(db)
    db.execute("CREATE TABLE rooted (id int) PARTITION BY LIST (id)")
    db.execute("CREATE PUBLICATION pg_trickle FOR TABLE rooted WITH (publish_via_partition_root = true)")
    slot = f"older_{secrets.token_hex(4)}"
    db.execute("INSERT INTO pgtrickle.pgt_consumer_settings_in_use VALUES (%s, 'slot', %s, 'default')", (slot, slot))
    db.execute("DELETE FROM pgtrickle.pgt_schema_version WHERE version = 11")
    via_root = "SELECT pubviaroot FROM pg_publication"
    with psycopg.connect(database, autocommit=True) as consumer:
        consumer.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", (slot,))
        with pytest.raises(InstallError, match="older pg-trickle-cdc streams") as refused:
            install_catalog(db)
        assert "Stop it" in (refused.value.hint or "")
        assert one(db, via_root) is True
    until_free = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    while db.execute(until_free, (slot,)).fetchone() != (0,):
        time.sleep(0.05)
    assert install_catalog(db) == ["0011_leaf_partitions.sql"]
    assert one(db, via_root) is False


def test_what_a_caller_puts_before_the_system_is_not_called(db: Connection) -> None:
    install_catalog(db)
    db.execute("CREATE TABLE public.t (id int PRIMARY KEY); CREATE SCHEMA evil")
    for signature in ("format(text, variadic text[])", "parse_ident(text)", "upper(text)", "quote_literal(text)"):
        db.execute(
            f"CREATE FUNCTION evil.{signature} RETURNS text LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'called'; END$$".encode()
        )
    db.execute(
        "CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$"
    )
    db.execute("CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never)")
    db.execute("SET search_path = evil, public, pg_catalog")
    db.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
    stored = "SELECT pgt_schema, search_path FROM pgtrickle.pgt_stream_tables"
    assert db.execute(stored.encode()).fetchall() == [("evil", "evil, public, pg_catalog")]
    db.execute("SELECT pgtrickle.alter_stream_table('st', schedule => '5s')")
    db.execute("SELECT * FROM pgtrickle.list_sources('st'), pgtrickle.pgt_status(), pgtrickle.health_check()")
    db.execute("SELECT pgtrickle.drop_stream_table('st')")


HOSTILE = ("x'); DROP TABLE prey; --", 'q"uo"te', "$$; SELECT 1/0; $$", "%I %L %s", "Ünï code", "a.b", "back\\slash")


def test_a_name_is_never_more_than_a_name(db: Connection) -> None:
    install_catalog(db)
    db.execute("CREATE TABLE prey (id int PRIMARY KEY)")
    for n, name in enumerate(HOSTILE):
        schema = HOSTILE[(n + 1) % len(HOSTILE)]
        table, own = sql.Identifier(schema, "src" + name), sql.Identifier(schema, name)
        db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        db.execute(sql.SQL("CREATE TABLE {} ({} int PRIMARY KEY)").format(table, sql.Identifier(name)))
        query = sql.SQL("SELECT {} FROM {}").format(sql.Identifier(name), table).as_string(db)
        quoted = own.as_string(db)
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (quoted, query))
        db.execute("SELECT pgtrickle.create_stream_table_if_not_exists(%s, %s)", (quoted, query))
        assert one(db, "SELECT pgtrickle.create_or_replace_stream_table(%s, %s)", quoted, query) == "no-op"
        assert one(db, "SELECT source FROM pgtrickle.list_sources(%s)", quoted) == table.as_string(db)
        for call in ("alter_stream_table(%s, schedule => '2s')", "pause_stream_table(%s)", "resume_stream_table(%s)"):
            db.execute(f"SELECT pgtrickle.{call}".encode(), (quoted,))
        other = sql.SQL("SELECT {} FROM {} WHERE {} > 1").format(sql.Identifier(name), table, sql.Identifier(name))
        alter = "SELECT pgtrickle.alter_stream_table(%s, query => %s)"
        assert one(db, alter, quoted, other.as_string(db)) == "compatible"
        wider = sql.SQL("SELECT {} AS a, 1 AS {} FROM {}").format(sql.Identifier(name), sql.Identifier(name), table)
        db.execute(sql.SQL("CREATE INDEX {} ON {} ({})").format(sql.Identifier("i" + name), own, sql.Identifier(name)))
        assert one(db, alter, quoted, wider.as_string(db)) == "rebuild"
        assert one(db, alter, quoted, query) == "no-op"
        db.execute("SELECT * FROM pgtrickle.explain_stream_table(%s), pgtrickle.explain_json(%s)", (quoted, quoted))
        definition = one(db, "SELECT pgtrickle.export_definition(%s)", quoted)
        db.execute("SELECT pgtrickle.drop_stream_table(%s)", (quoted,))
        db.execute(str(definition).encode())
        # The text is a name that does not exist, or not a valid name; never a command.
        for call in ("drop_stream_table(%s)", "pause_stream_table(%s)", "stream_table_spec(%s)", "wait_for(%s)"):
            with pytest.raises((errors.UndefinedTable, errors.InvalidParameterValue)):
                db.execute(f"SELECT pgtrickle.{call}".encode(), ("nope" + name,))
    drawn = str(one(db, "SELECT pgtrickle.explain_dag()"))
    assert drawn.count("-->") == len(HOSTILE)
    db.execute("SELECT * FROM pgtrickle.dependency_tree(), pgtrickle.wal_source_status(), pgtrickle.pgt_status()")
    assert one(db, "SELECT to_regclass('prey')") == "prey"


def test_a_query_is_one_select_of_what_the_caller_may_read(db: Connection) -> None:
    install_catalog(db)
    db.execute("CREATE TABLE prey (id int PRIMARY KEY); INSERT INTO prey VALUES (1)")
    for query in ("SELECT id FROM prey; DELETE FROM prey", "DELETE FROM prey RETURNING id", "TRUNCATE prey", ""):
        with pytest.raises(errors.SyntaxError):
            db.execute("SELECT pgtrickle.create_stream_table('st', %s)", (query,))
    assert one(db, "SELECT count(*) FROM prey") == 1
    assert one(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == 0


@pytest.fixture
def roles(db: Connection) -> Iterator[dict[str, str]]:
    """Create the roles of docs/roles.md under unique names."""
    suffix = secrets.token_hex(4)
    names = {r: f"{r}_{suffix}" for r in ("trickle_owner", "trickle_applier", "trickle_reader", "trickle_cdc")}
    owner, applier, reader, cdc = (sql.Identifier(name) for name in names.values())
    db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' REPLICATION").format(cdc))
    db.execute(sql.SQL("CREATE ROLE {}").format(owner))
    db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' IN ROLE {}").format(applier, owner))
    db.execute(sql.SQL("ALTER ROLE {} SET role = {}").format(applier, owner))
    db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(reader))
    db.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(db.info.dbname), owner))
    yield names
    db.execute("RESET ROLE")
    for role in (reader, cdc, applier, owner):
        db.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        db.execute(sql.SQL("DROP ROLE {}").format(role))


def test_no_superuser_is_needed_and_others_may_do_nothing(db: Connection, database: str, roles: dict[str, str]) -> None:
    def url_of(role: str) -> str:
        url = urlsplit(database)
        host = f"{url.hostname or ''}:{url.port}" if url.port else url.hostname or ""
        return urlunsplit(url._replace(netloc=f"{roles[role]}:x@{host}"))

    def as_role(role: str) -> Connection:
        return psycopg.connect(url_of(role), autocommit=True)

    db.execute(sql.SQL("CREATE SCHEMA app AUTHORIZATION {}").format(sql.Identifier(roles["trickle_owner"])))
    db.execute("CREATE TABLE public.secret (id int PRIMARY KEY)")
    with as_role("trickle_applier") as connection:
        connection.execute("SET search_path = app")
        install_catalog(connection)
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount int)")
        connection.execute("SELECT pgtrickle.create_stream_table('big', 'SELECT id FROM orders WHERE amount > 1')")
        connection.execute("SELECT * FROM pgtrickle.health_check(), pgtrickle.wal_source_status()")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SELECT pgtrickle.create_stream_table('leak', 'SELECT id FROM public.secret')")
        reader = sql.Identifier(roles["trickle_reader"])
        connection.execute("SELECT pgtrickle.set_setting('linger_ms', '9')")
        assert stored_settings(url_of("trickle_cdc")) == {}
        cdc = sql.Identifier(roles["trickle_cdc"])
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA pgtrickle, app TO {}").format(cdc))
        connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle, app TO {}").format(cdc))
        assert stored_settings(url_of("trickle_cdc")) == {"linger_ms": ("9", "setting")}
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA pgtrickle, app TO {}").format(reader))
        connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {}").format(reader))
        connection.execute(sql.SQL("GRANT SELECT ON app.big TO {}").format(reader))
    with as_role("trickle_reader") as connection:
        connection.execute("SELECT * FROM app.big, pgtrickle.pgt_status()")
        assert one(connection, "SELECT count(*) FROM pgtrickle.health_check()") == 11
        for statement in (
            "SELECT pgtrickle.drop_stream_table('app.big')",
            "SELECT pgtrickle.pause_stream_table('app.big')",
            "SELECT pgtrickle.alter_stream_table('app.big', schedule => '9s')",
            "SELECT pgtrickle.alter_stream_table('app.big', query => 'SELECT 1 AS id')",
            "SELECT pgtrickle.set_setting('linger_ms', '1')",
            "SELECT pgtrickle.create_stream_table('pg_temp.mine', 'SELECT id FROM app.big')",
            "SELECT id FROM app.orders",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement.encode())


READERS = ("pgt_status()", "health_check()", "fuse_status()", "sla_summary()", "source_gates()", "canary_status()")


@pytest.mark.parametrize("version", [0, 6], ids=["the views are new", "everything after the first version is new"])
def test_who_was_granted_before_an_upgrade_may_read_what_it_brings(
    db: Connection, roles: dict[str, str], version: int
) -> None:
    """A role that has SELECT on all tables of the schema has it on those that an upgrade creates, too."""
    everything = (
        "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'pgtrickle'::regnamespace"
        ' AND c.relkind = ANY (%s::"char"[]) ORDER BY 1'
    )
    if version:
        db.execute("CREATE SCHEMA pgtrickle")
        db.execute("CREATE TABLE pgtrickle.pgt_schema_version (version int, name text, applied_at timestamptz)")
        for number, file in migrations().items():
            if number <= version:
                db.execute(file.read_bytes())
                db.execute("INSERT INTO pgtrickle.pgt_schema_version VALUES (%s, %s, now())", (number, file.name))
    else:
        install_catalog(db)
        for (view,) in db.execute(everything, ("{v}",)).fetchall():
            db.execute(f"DROP VIEW IF EXISTS {view} CASCADE".encode())
    reader = sql.Identifier(roles["trickle_reader"])
    db.execute(sql.SQL("GRANT USAGE ON SCHEMA pgtrickle TO {}").format(reader))
    db.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {}").format(reader))
    install_catalog(db)
    views = [str(row[0]) for row in db.execute(everything, ("{v}",)).fetchall()]
    assert len(views) > 6
    db.execute(sql.SQL("SET ROLE {}").format(reader))
    refused = []
    for readable in [*views, *(f"pgtrickle.{function}" for function in READERS)]:
        try:
            db.execute(f"SELECT * FROM {readable}".encode()).fetchall()
        except errors.InsufficientPrivilege as error:
            refused.append(f"{readable}: {error.diag.message_primary}")
    assert refused == []
