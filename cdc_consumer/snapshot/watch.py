"""Finds tables that were added to the publications and prepares their export, on a separate thread.

Creating a slot can wait for transactions of other sessions, and the stream must continue meanwhile. Only one check runs
at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from cdc_consumer.errors import PublicationMissing
from cdc_consumer.snapshot.export import Export, prepare_export
from cdc_consumer.wal.catalog import Connection, PublishedTable, connect, missing_publications, published_tables
from cdc_consumer.wal.slot import server_position
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

GROUP_BYTES = 64 * 1024 * 1024
"""Total size of small tables that are copied together; a larger table is copied alone."""


@dataclass(frozen=True, slots=True)
class SeenTables:
    """The result of one check: the end of the server's log, and an export if there are tables to capture."""

    position: Lsn
    export: Export | None


class CaptureWatch:
    """Checks the publications on a separate thread."""

    def __init__(self, database_url: str, publications: tuple[str, ...]) -> None:
        self._database_url = database_url
        self._publications = publications
        self._round: Future[SeenTables] | None = None
        self._catalog: Connection | None = None
        self._closed = False
        self.exporting = threading.Event()
        """Set while an export is being prepared."""

    def start(self, captured: Mapping[TableId, Capture], *, together: bool) -> bool:
        """Start a check unless one is running -> whether it was started; `together` exports all tables at one point."""
        if self._round is not None:
            return False
        outcome: Future[SeenTables] = Future()
        # A daemon thread: a check may wait for another session's transaction and must not delay the end of the process.
        given = (outcome, dict(captured), together)
        thread = threading.Thread(target=self._run, args=given, name="capture", daemon=True)
        self._round = outcome
        thread.start()
        return True

    def take_result(self, timeout_s: float = 0.0) -> SeenTables | None:
        """Return the result of a finished check once; None if there is none. Raises the check's exception."""
        if self._round is None:
            return None
        if not self._round.done():
            try:
                self._round.exception(timeout_s)
            except TimeoutError:
                return None
        finished, self._round = self._round, None
        return finished.result()

    def close(self) -> None:
        """Stop checking; a running check closes its own connections when it ends."""
        self._closed = True
        if self._round is None or self._round.done():
            self._release()

    def _release(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _run(self, outcome: Future[SeenTables], captured: Mapping[TableId, Capture], together: bool) -> None:
        try:
            seen = self._check(captured, together=together)
        except Exception as error:
            outcome.set_exception(error)
        else:
            if self._closed and seen.export is not None:
                seen.export.close()
            outcome.set_result(seen)
        if self._closed:
            self._release()

    def _check(self, captured: Mapping[TableId, Capture], *, together: bool) -> SeenTables:
        if self._catalog is None or self._catalog.closed:
            self._catalog = connect(self._database_url)
        if missing := missing_publications(self._catalog, self._publications):
            raise PublicationMissing(
                f"publication {missing[0]} was dropped: changes of its tables are no longer streamed",
                hint="start again, which creates the publication without tables; then add the tables",
            )
        new = [t for t in published_tables(self._catalog, self._publications) if is_new(t, captured)]
        if not new:
            return SeenTables(server_position(self._catalog), None)
        self.exporting.set()
        try:
            group = new if together else first_capture_group(new)
            export = prepare_export(self._database_url, self._publications, group, captured)
        finally:
            self.exporting.clear()
        return SeenTables(server_position(self._catalog), export)


def first_capture_group(new: list[PublishedTable]) -> list[PublishedTable]:
    """Return the tables to copy at one point: small ones together, because the frontier waits while they are copied."""
    group: list[PublishedTable] = []
    room = GROUP_BYTES
    for table in sorted(new, key=lambda t: (t.bytes, t.table)):
        room -= table.bytes
        if group and room < 0:
            break
        group.append(table)
    return group


def is_new(table: PublishedTable, captured: Mapping[TableId, Capture]) -> bool:
    """Return whether a table must be captured.

    It is not captured yet, was dropped and created again under the same name, or was in none of the publications for
    some time.
    """
    known = captured.get(table.table)
    if known is None or known.relid != table.relid:
        return True
    return not set(known.membership.split(",")) & set(table.membership.split(","))
