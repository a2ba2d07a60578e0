"""A transaction and a role in; a place to run text of users with that role's rights, which the text cannot leave, out.

SET ROLE is no wall: a function that a query calls can RESET ROLE and go on with the rights of the session. Even the
analysis of a query may call functions: a literal of an array of a domain is checked when it is read. Inside a SECURITY
DEFINER function PostgreSQL refuses every change of the role and of the session's user, whatever is called. So text of
users runs in a temporary function that belongs to the role. The call ends; settings, cursors and prepared statements
that the text left behind do not. The transaction is therefore rolled back, or `clear` is called before anything else.
"""

from __future__ import annotations

from itertools import count
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from shared_schema import session_pins

_numbers = count()

_DEFINE: LiteralString = (
    "CREATE FUNCTION {}(statement pg_catalog.text, query pg_catalog.text) RETURNS pg_catalog.void LANGUAGE plpgsql"
    " SECURITY DEFINER AS $$DECLARE probe pg_catalog.refcursor; BEGIN"
    " IF query IS NOT NULL THEN OPEN probe FOR EXECUTE query; CLOSE probe; END IF; EXECUTE statement; END$$"
)
"""It calls no function and no operator of its own: the search path in force is that of the text."""

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
        self._function = sql.Identifier("pg_temp", f"pgt_confined_{next(_numbers)}")
        define = [sql.SQL(_DEFINE).format(self._function)]
        if role is not None:
            found = connection.execute("SELECT current_user::pg_catalog.text").fetchone()
            become = sql.SQL("SET LOCAL ROLE {}")
            own = sql.Identifier(str(found[0]) if found else "")
            define = [become.format(sql.Identifier(role)), *define, become.format(own)]
        connection.execute(sql.SQL("; ").join(define))

    def run(self, statement: str | sql.Composable, *, probe: str | None = None) -> None:
        """Run a statement under the present search path; its rows are thrown away.

        With a query as `probe`, PostgreSQL first checks that it is one SELECT and that the role may read what it names;
        it raises InvalidCursorDefinition or InsufficientPrivilege, and reads nothing.
        """
        text = statement if isinstance(statement, str) else statement.as_string(self._connection)
        self._connection.execute(sql.SQL("SELECT {}(%s, %s)").format(self._function), (text, probe), prepare=False)

    def clear(self) -> None:
        """Undo what outlives a call, where the transaction goes on. Runs no function until the pins are back."""
        self._connection.execute(f"CLOSE ALL; DEALLOCATE ALL; {session_pins.set_statements()}".encode())


def owner_of(connection: psycopg.Connection[Any], relid: int) -> str | None:
    """Return the role that owns a relation; None if there is no such relation."""
    found = connection.execute(_OWNER, (relid,)).fetchone()
    return None if found is None else str(found[0])
