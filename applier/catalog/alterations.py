"""New queries that wait for their stream tables (`pgt_alterations`): adopted, exchanged or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from applier.catalog.database import Connection, Database
from applier.errors import Superseded
from shared_schema.errors import TrickleError


class PendingAlterations:
    """Carries an alteration out in the catalog; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    @contextmanager
    def adopting(self, pgt_id: int, expected: str | None = None) -> Iterator[None]:
        """A transaction in which the stream table has the query that waits for it; it does not wait long itself.

        Superseded when that is not the `expected` one any more.
        """
        with self._connection.transaction():
            # Shorter than deadlock_timeout: where somebody drops it meanwhile, it is we who give way.
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._adopt(%s)", (pgt_id,))
            adopted = self._connection.execute(
                "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (pgt_id,)
            ).fetchone()
            if expected is not None and adopted != (expected,):
                raise Superseded(f"stream table {pgt_id} was altered again or dropped")
            yield

    def exchange(self, pgt_id: int) -> None:
        """A stream table that was built beside another takes its place; a reader of the old one is not waited for."""
        with self._connection.transaction():
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._exchange(%s)", (pgt_id,))

    def refuse(self, pgt_id: int, error: TrickleError) -> None:
        """The old query stays; say why, where people look and to whoever listens."""
        self._connection.execute(
            "SELECT pgtrickle._refuse_alteration(%s, %s, %s, %s)",
            (pgt_id, type(error).__name__, error.problem, error.hint),
        )
