"""Looks for tables that joined the publications and prepares their export, in a thread of its own.

Creating a slot can wait for other people's transactions, so the stream must go on meanwhile. One round at a time.
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
"""What small tables that are copied together may have in all; a larger table is copied alone."""


@dataclass(frozen=True, slots=True)
class SeenTables:
    """What one round saw: where the server's log ends, and an export if tables are to be captured."""

    position: Lsn
    export: Export | None


class CaptureWatch:
    """Rounds of looking at the publications."""

    def __init__(self, database_url: str, publications: tuple[str, ...], *, together: bool = False) -> None:
        self.together = together
        """Export everything at one point, because no frontier may be published before all of it is copied."""
        self._database_url = database_url
        self._publications = publications
        self._round: Future[SeenTables] | None = None
        self._catalog: Connection | None = None
        self._closed = False
        self.exporting = threading.Event()
        """Set while a consistent point is being found."""

    def look(self, captured: Mapping[TableId, Capture]) -> bool:
        """Start a round unless one is under way."""
        if self._round is not None:
            return False
        outcome: Future[SeenTables] = Future()
        # A daemon: a round may wait for somebody's transaction and must not hold up the end of the process.
        thread = threading.Thread(target=self._run, args=(outcome, dict(captured)), name="capture", daemon=True)
        self._round = outcome
        thread.start()
        return True

    def sighting(self, timeout_s: float = 0.0) -> SeenTables | None:
        """The finished round's result, once; None while there is none. Raises what the round raised."""
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
        """Stop looking; a round under way closes its own connections when it ends."""
        self._closed = True
        if self._round is None or self._round.done():
            self._release()

    def _release(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _run(self, outcome: Future[SeenTables], captured: Mapping[TableId, Capture]) -> None:
        try:
            sighting = self._look(captured)
        except Exception as error:
            outcome.set_exception(error)
        else:
            if self._closed and sighting.export is not None:
                sighting.export.close()
            outcome.set_result(sighting)
        if self._closed:
            self._release()

    def _look(self, captured: Mapping[TableId, Capture]) -> SeenTables:
        if self._catalog is None or self._catalog.closed:
            self._catalog = connect(self._database_url)
        if missing := missing_publications(self._catalog, self._publications):
            raise PublicationMissing(
                f"publication {missing[0]} was dropped: its tables' changes are no longer streamed",
                hint="start again to create it empty, then add the tables",
            )
        wanted = [t for t in published_tables(self._catalog, self._publications) if is_new(t, captured)]
        if not wanted:
            return SeenTables(server_position(self._catalog), None)
        self.exporting.set()
        try:
            group = wanted if self.together else first_capture_group(wanted)
            export = prepare_export(self._database_url, self._publications, group, captured)
        finally:
            self.exporting.clear()
        return SeenTables(server_position(self._catalog), export)


def first_capture_group(wanted: list[PublishedTable]) -> list[PublishedTable]:
    """The tables to copy at one point, small ones together: the frontier waits while they are copied."""
    group: list[PublishedTable] = []
    room = GROUP_BYTES
    for table in sorted(wanted, key=lambda t: (t.bytes, t.table)):
        room -= table.bytes
        if group and room < 0:
            break
        group.append(table)
    return group


def is_new(table: PublishedTable, captured: Mapping[TableId, Capture]) -> bool:
    """Not captured yet, made again under the same name, or away from all its publications for a while."""
    known = captured.get(table.table)
    if known is None or known.relid != table.relid:
        return True
    return not set(known.membership.split(",")) & set(table.membership.split(","))
