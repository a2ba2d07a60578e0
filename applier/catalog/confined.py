"""A transaction and a role in; a place to run text of users with that role's rights, which the text cannot leave, out.

SET ROLE is no wall: a function that a query calls can RESET ROLE and go on with the rights of the session. Even the
analysis of a query may call functions: a literal of an array of a domain is checked when it is read. Inside a SECURITY
DEFINER function PostgreSQL refuses every change of the role and of the session's user, whatever is called. So text of
users runs in a temporary function that belongs to the role. The role may replace that function, so each call has its
own, which is made right before it: nothing of users runs in between, and none is called again.

The call ends; what the text left behind does not. Settings, cursors and prepared statements: the transaction is rolled
back, or `clear` is called before anything else. Tables and types in pg_temp: statements of our own have a search path
that names pg_temp last. Functions and operators are never looked up there. What is left: a text can hold advisory locks
in the session, and release its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from secrets import token_hex
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from shared_schema import session_pins

_DEFINE: LiteralString = (
    "CREATE FUNCTION {}(statement pg_catalog.text, query pg_catalog.text) RETURNS pg_catalog.void LANGUAGE plpgsql"
    " SECURITY DEFINER AS $$DECLARE probe pg_catalog.refcursor; BEGIN"
    " IF query IS NOT NULL THEN OPEN probe FOR EXECUTE query; CLOSE probe; END IF; EXECUTE statement; END$$"
)
"""Neither making nor running it looks up a name that is not qualified, or an operator: the search path in force is that
of the text."""

_BECOME: LiteralString = "SET LOCAL ROLE {}"

_UNDO = sql.SQL("ROLLBACK TO SAVEPOINT pgt_role; RELEASE SAVEPOINT pgt_role")

_OWNER: LiteralString = (
    "SELECT pg_catalog.pg_get_userbyid(relowner)::pg_catalog.text FROM pg_catalog.pg_class WHERE oid = %s::int8::oid"
)


class Confined:
    """Runs statements with the rights of one role, in the open transaction of a connection.

    Without a role, with those of the session. A role that the session may not become is InsufficientPrivilege.
    """

    def __init__(self, connection: psycopg.Connection[Any], role: str | None = None) -> None:
        self._connection = connection
        # A text could replace a prepared statement that is run by its name later.
        connection.prepare_threshold = None
        self._define: list[sql.Composable] = []
        self._return: list[sql.Composable] = []
        if role is not None:
            become = sql.SQL(_BECOME).format(sql.Identifier(role))
            # Whether the session may become the role is known before anything is run.
            tried = (sql.SQL("SELECT current_user::pg_catalog.text; SAVEPOINT pgt_role"), become, _UNDO)
            found = connection.execute(sql.SQL("; ").join(tried)).fetchone()
            self._define = [become]
            self._return = [sql.SQL(_BECOME).format(sql.Identifier(str(found[0]) if found else ""))]

    def run(self, statement: str | sql.Composable, *, probe: str | None = None, read_only: bool = False) -> None:
        """Run a statement under the present search path; its rows are thrown away.

        With `read_only` it may write temporary tables and nothing else.
        With a query as `probe`, PostgreSQL first checks that it is one SELECT and that the role may read what it names;
        it raises InvalidCursorDefinition or InsufficientPrivilege, and reads nothing.
        """
        text = statement if isinstance(statement, str) else statement.as_string(self._connection)
        function = sql.Identifier("pg_temp", f"pgt_confined_{token_hex(16)}")
        define = (*self._define, sql.SQL(_DEFINE).format(function), *self._return)
        self._connection.execute(sql.SQL("; ").join(define))
        call = sql.SQL("SELECT {}(%s, %s)").format(function)
        with self._connection.transaction() if read_only else nullcontext():
            if read_only:
                self._connection.execute("SET TRANSACTION READ ONLY")
            self._connection.execute(call, (text, probe), prepare=False)

    def clear(self) -> None:
        """Undo what outlives a call, where the transaction goes on. Runs no function until the pins are back."""
        undo = f"CLOSE ALL; DEALLOCATE ALL; UNLISTEN *; SET client_encoding = {session_pins.CLIENT_ENCODING}"
        self._connection.execute(f"{undo}; {session_pins.set_statements()}".encode())


def owner_of(connection: psycopg.Connection[Any], relid: int) -> str | None:
    """Return the role that owns a relation; None if there is no such relation."""
    found = connection.execute(_OWNER, (relid,)).fetchone()
    return None if found is None else str(found[0])
