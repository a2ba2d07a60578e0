"""Pending alterations (`pgt_alterations`) in; stream tables with their new query, or a stored refusal, out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import cast

from applier.catalog.database import Connection, Database
from applier.catalog.service import send_alert
from applier.errors import Superseded
from shared_schema.alerts import AlertEvent
from shared_schema.errors import TrickleError


class PendingAlterations:
    """Carries out alterations in the catalog; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    @contextmanager
    def adopt_query(self, pgt_id: int, expected: str | None = None, request: datetime | None = None) -> Iterator[None]:
        """Run the block in a transaction in which the stream table has its new query; waits for locks only shortly.

        It ends requests to compute the whole up to the one made at `request`; later ones may be about something else.
        Raises Superseded when the new query is no longer the `expected` one.
        """
        with self._connection.transaction():
            # Shorter than deadlock_timeout: when another session drops the table, this one gives way.
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._adopt(%s, %s)", (pgt_id, request))
            adopted = self._connection.execute(
                "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (pgt_id,)
            ).fetchone()
            if expected is not None and adopted != (expected,):
                raise Superseded(f"stream table {pgt_id} was altered again or dropped")
            yield

    def adopt_and_repair(self, pgt_id: int) -> None:
        """Give a suspended stream table its new query, and request that all of it is computed for every sink."""
        with self._connection.transaction():
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._adopt_and_repair(%s)", (pgt_id,))

    def last_request(self, pgt_id: int) -> datetime | None:
        """Return when it was last requested to compute the stream table as a whole, if that is still to be done."""
        row = self._connection.execute(
            "SELECT requested_at FROM pgtrickle.pgt_reinitializations WHERE pgt_id = %s", (pgt_id,)
        ).fetchone()
        return cast(datetime, row[0]) if row else None

    def evolve(self, ids: Collection[int]) -> int:
        """Let these stream tables follow columns that were added to their sources; return how many begin to."""
        row = self._connection.execute("SELECT pgtrickle._evolve(%s)", (list(ids),)).fetchone()
        return int(str(row[0])) if row else 0

    def exchange(self, pgt_id: int) -> None:
        """Replace a stream table by the one that was built for it; does not wait for sessions that read the old one."""
        with self._connection.transaction():
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._exchange(%s)", (pgt_id,))

    def refuse(self, pgt_id: int, error: TrickleError) -> None:
        """Keep the old query; store the reason in the catalog and send it as an alert."""
        with self._connection.transaction():
            row = self._connection.execute(
                "SELECT pgtrickle._refuse_alteration(%s, %s, %s, %s)",
                (pgt_id, type(error).__name__, error.problem, error.hint),
            ).fetchone()
            # The stream table whose query stays; None if it was dropped meanwhile.
            kept = int(str(row[0])) if row and row[0] is not None else pgt_id
            about = {"error": error.problem, "hint": error.hint}
            send_alert(self._connection, AlertEvent.ALTERATION_REFUSED, pgt_id=kept, **about)
