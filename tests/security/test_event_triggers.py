"""Event triggers run in everybody's DDL. An author, who is a member of the catalog's owner, gains nothing by them.

The catalog belongs to an owner; a superuser installs once more, for the event triggers, and later does DDL. Advisory
locks, which outlive a rollback, tell with whose rights a function ran then.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from applier.catalog.install import install_catalog

Connection = psycopg.Connection[tuple[object, ...]]

AS_THE_OWNER, AS_A_SUPERUSER = 1, 2

BODY = f"""
DECLARE
    is_super bool := (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
BEGIN
    PERFORM pg_catalog.pg_advisory_lock_shared(CASE WHEN is_super THEN {AS_A_SUPERUSER} ELSE {AS_THE_OWNER} END);
END
"""


@dataclass(frozen=True)
class Scene:
    """A superuser's session, and one of an author."""

    admin: Connection
    author: Connection

    def replace(self, signature: str, returns: str, rights: str) -> None:
        """Let the author put a function of his own in the place of one of the catalog."""
        self.author.execute(
            f"CREATE OR REPLACE FUNCTION pgtrickle.{signature} RETURNS {returns} LANGUAGE plpgsql"
            f" SECURITY {rights} AS $f${BODY}$f$".encode()
        )

    def ran(self) -> set[object]:
        """Do DDL as the superuser; return the locks that functions have taken meanwhile."""
        self.admin.execute("CREATE TABLE public.one (id int); DROP TABLE public.one")
        self.admin.execute("CREATE TEMP TABLE one (id int); DROP TABLE one")
        found = self.admin.execute(
            "SELECT objid::int8::int FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        ).fetchall()
        self.admin.execute("SELECT pg_advisory_unlock_all()")
        return {number for (number,) in found}


@pytest.fixture
def scene(database: str) -> Iterator[Scene]:
    mark = secrets.token_hex(4)
    names = {name: sql.Identifier(f"{name}_{mark}") for name in ("owner", "author")}
    with psycopg.connect(database, autocommit=True) as admin:
        try:
            for statement in (
                "CREATE ROLE {owner}",
                "CREATE ROLE {author} LOGIN PASSWORD 'hush' IN ROLE {owner}",
                "GRANT CREATE ON DATABASE {database} TO {owner}",
                "SET ROLE {owner}",
            ):
                admin.execute(sql.SQL(statement).format(database=sql.Identifier(admin.info.dbname), **names))
            install_catalog(admin)
            admin.execute("RESET ROLE")
            install_catalog(admin)
            url = make_conninfo(database, user=f"author_{mark}", password="hush")
            with psycopg.connect(url, autocommit=True) as author:
                author.execute(sql.SQL("SET ROLE {owner}").format(**names))
                yield Scene(admin, author)
        finally:
            admin.execute("RESET ROLE")
            admin.execute(
                sql.SQL("DROP OWNED BY {owner}, {author} CASCADE; DROP ROLE {owner}, {author}").format(**names)
            )


def test_an_author_cannot_replace_what_the_triggers_run(scene: Scene) -> None:
    assert scene.ran() == set()
    for function in ("_on_ddl_end()", "_on_drop()"):
        try:
            scene.replace(function, "event_trigger", "INVOKER")
        except errors.InsufficientPrivilege:
            continue
        assert scene.ran() == set(), "a superuser's DDL has run an author's function with a superuser's rights"
    for rights in ("INVOKER", "DEFINER"):
        for function in ("_ddl_ended(tg_tag text)", "_dropped(tg_tag text)"):
            scene.replace(function, "void", rights)
        assert scene.ran() == (set() if rights == "INVOKER" else {AS_THE_OWNER}), rights


def test_a_name_does_not_become_another_function(scene: Scene) -> None:
    """A function that takes anything, or one in a schema of the same name, is not the one that was looked at."""
    scene.author.execute("DROP FUNCTION pgtrickle._ddl_ended(text)")
    scene.replace("_ddl_ended(tg_tag anyelement)", "void", "INVOKER")
    scene.replace("_ddl_ended(tg_tag text, more int DEFAULT 1)", "void", "INVOKER")
    assert scene.ran() == set()
    scene.author.execute("ALTER SCHEMA pgtrickle RENAME TO aside; CREATE SCHEMA pgtrickle")
    for function in ("_ddl_ended(tg_tag text)", "_dropped(tg_tag text)"):
        scene.replace(function, "void", "INVOKER")
    assert scene.ran() == set()


def test_nobody_waits_and_nothing_changes_between_look_and_call(scene: Scene) -> None:
    scene.admin.execute("SET statement_timeout = '5s'")
    with scene.author.transaction():
        scene.replace("_ddl_ended(tg_tag text)", "void", "INVOKER")
        assert scene.ran() == set(), "others wait for who replaces the function"
    scene.replace("_ddl_ended(tg_tag text)", "void", "DEFINER")
    scene.author.execute("SET lock_timeout = '100ms'")
    with scene.admin.transaction():
        scene.admin.execute("CREATE TABLE public.locked (id int)")
        with pytest.raises(errors.LockNotAvailable):
            scene.replace("_ddl_ended(tg_tag text)", "void", "INVOKER")
        with pytest.raises(errors.LockNotAvailable):
            scene.author.execute("ALTER SCHEMA pgtrickle RENAME TO aside")


def test_the_owner_can_install_after_the_superuser(scene: Scene) -> None:
    assert install_catalog(scene.author) == []
    found = scene.admin.execute(
        "SELECT count(*) FROM pg_event_trigger t JOIN pg_proc p ON p.oid = t.evtfoid"
        " JOIN pg_roles r ON r.oid = p.proowner AND r.rolsuper WHERE t.evtname LIKE 'pgtrickle%'"
    ).fetchone()
    assert found == (2,)
