"""Which sessions may be committing something that the catalog does not show yet."""

from __future__ import annotations

import pytest

from shared_schema.commits import SessionAtWork, commits_under_way


def session(
    query: str, *, state: str | None = "active", wait: str = "", locked: tuple[int, ...] = (), blocked: bool = False
) -> SessionAtWork:
    return SessionAtWork(7, "100", state, wait, query, "client backend", frozenset(locked), blocked)


@pytest.mark.parametrize(
    ("seen", "blocks"),
    [
        # In the commit itself, or a statement that commits at once.
        (session("COMMIT"), True),
        (session("ALTER TABLE t ADD COLUMN c int", locked=(5,)), True),
        (session("create or replace function f() returns int language sql as 'select 1; select 2'"), True),
        (session("INSERT INTO t VALUES (1); SELECT pg_sleep(100)"), False),
        (session("CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'"), True),
        # The client has not said COMMIT yet.
        (session("ALTER TABLE t ADD COLUMN c int", state="idle in transaction", locked=(5,)), False),
        # Long statements: still at work after the pause, so not committing.
        (session("UPDATE t SET v = 1"), False),
        (session("CALL load_everything()"), False),
        (session("VACUUM FULL t", locked=(5,)), False),
        (session("CREATE UNIQUE INDEX CONCURRENTLY ON t (v)", locked=(5,)), False),
        (session("ALTER TABLE t VALIDATE CONSTRAINT v_is_there", locked=(5,)), False),
        (session('alter table if exists only "my; t".t\nvalidate constraint "a ""b"" c" ;', locked=(5,)), True),
        (session('alter table if exists only "my t".t\nvalidate constraint "a ""b"" c" ;', locked=(5,)), False),
        (session("ALTER TABLE t VALIDATE CONSTRAINT c, ALTER v TYPE bigint", locked=(5,)), True),
        (session("ALTER TABLE t VALIDATE CONSTRAINT c; ALTER TABLE t DROP v", locked=(5,)), True),
        (session("ALTER TABLE t ALTER v TYPE bigint, VALIDATE CONSTRAINT c", locked=(5,)), True),
        (session("ALTER TABLE t VALIDATE CONSTRAINT c", wait="SyncRep", locked=(5,)), True),
        (session("ALTER TABLE p ATTACH PARTITION t FOR VALUES IN (1)", locked=(5,)), True),
        (session("DROP INDEX CONCURRENTLY t_v", locked=(5,)), True),
        (session("create unlogged table copy as select * from t"), False),
        (session("ALTER TABLE other ALTER COLUMN v TYPE bigint", locked=(6,)), False),
        (session("ALTER TABLE t ALTER COLUMN v TYPE bigint", locked=(5,)), True),
        (session("CREATE INDEX ON other (v); CREATE OR REPLACE FUNCTION f() RETURNS int …", locked=(6,)), True),
        # It waits for a lock, so it does not commit.
        (session("ALTER TABLE t ADD COLUMN c int", locked=(5,), blocked=True), False),
        # A standby is away: the commit is in the log.
        (session("CALL load_everything()", wait="SyncRep"), True),
        (session("SELECT alters()", wait="SyncRep", locked=(5,)), True),
        (session("UPDATE t SET v = 1", wait="SyncRep"), False),
        # The role may not see what others do: locks alone tell.
        (session("<insufficient privilege>", state=None, locked=(5,)), True),
        (session("<insufficient privilege>", state=None), False),
        (session("", state="disabled", locked=(5,)), True),
    ],
)
def test_who_may_have_altered_an_object(seen: SessionAtWork, blocks: bool) -> None:
    assert any(s.concerns({5}) for s in commits_under_way([seen], [seen])) is blocks


def test_a_session_that_ended_between_both_looks_is_visible_now() -> None:
    assert commits_under_way([session("COMMIT")], []) == []
    later = SessionAtWork(7, "101", "active", "", "COMMIT", "client backend", frozenset())
    assert commits_under_way([session("COMMIT")], [later]) == []


def test_locks_on_other_objects_concern_nobody() -> None:
    altering = session("SELECT alters()", wait="SyncRep", locked=(6,))
    assert not altering.concerns({5}) and altering.concerns({6})
