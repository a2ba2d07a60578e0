"""Compares the captured tables with the catalog, on a separate thread: what their rows rest on besides the log.

The order of a look makes it sound, as in the applier: first the end of the log, then the sessions whose commit may be
under way, then the catalog. A commit before that position is either seen in the catalog or its session is seen. The
catalog is read as a digest; only when that is not the one with which the tables were compared are they compared again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import psycopg

from cdc_consumer.snapshot.watch import check_publications, is_new
from cdc_consumer.wal.catalog import Connection, PublishedTable, connect, published_tables
from cdc_consumer.wal.catalog_digest import read_digest
from cdc_consumer.wal.diagnosis import diagnose_exception
from cdc_consumer.wal.horizon import NO_HORIZON, Horizon
from cdc_consumer.wal.slot import insert_position, server_position
from cdc_consumer.wal.table_facts import (
    find_all_left_out,
    find_outdated_tables,
    read_table_facts,
    sources_of_applier,
)
from shared_schema.commits import SESSIONS, SessionAtWork, find_commits, session_of
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class SeenCatalog:
    """What was seen of the tables that were captured when the look began."""

    reached: Lsn
    """Everything that was seen is before this position of the log."""
    leaves: Mapping[int, Mapping[int, str]]
    """The leaf partitions of each partitioned table by its oid, with what identifies their attachment."""
    horizon: Horizon
    """Which transactions `leaves` surely contain."""
    facts: Mapping[int, str]
    """What the rows of each table rest on besides the log, by its oid."""
    unpublished: Mapping[TableId, str]
    """Tables whose changes are not streamed any more, and why."""
    outdated: Mapping[TableId, str]
    """Those whose rows changed behind the log, and why."""
    left_out: Mapping[TableId, str]
    """Those of which the publications leave something out, and what."""
    is_copy_missing: bool
    """Whether one of them must be captured again, because its changes were not streamed for some time."""
    is_uncaptured: bool
    """Whether the publications have a table that waits to be captured, under this name for the first time or again."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one look."""

    position: Lsn
    """The end of the log before the look."""
    captured: Mapping[TableId, Capture]
    digest: str
    members: str
    """A digest of the tables that the publications name."""
    is_committing: bool
    """Whether a commit may have been under way that alters one of the tables."""
    of_applier: frozenset[int]
    """Tables that an applier of this database compares too: it requests copies of them itself."""
    seconds: float
    """How long the server worked for it."""
    seen: SeenCatalog | None
    """None if the catalog is the one with which the tables were compared before."""


class CatalogComparison:
    """Looks at the catalog, one look at a time."""

    def __init__(self, database_url: str, publications: tuple[str, ...]) -> None:
        self._database_url = database_url
        self._publications = publications
        self._look: Future[Comparison] | None = None
        self._catalog: Connection | None = None
        self._closed = False
        self._objects: Collection[int] = frozenset()
        """What the last look was about."""
        self._committing: Sequence[SessionAtWork] = ()
        self._paused_s = 0.0
        """How long the last look waited for commits of others to end."""

    @property
    def is_running(self) -> bool:
        """Whether a look is under way, or has a result that was not taken."""
        return self._look is not None

    def start(self, captured: Mapping[TableId, Capture], compared: str | None) -> None:
        """Start a look; only while none is running. `compared` is the digest with which the tables were compared."""
        self._look = Future()
        given = (self._look, dict(captured), compared)
        # A daemon thread: a server that hangs must not delay the end of the process.
        threading.Thread(target=self._run, args=given, name="compare", daemon=True).start()

    def take_result(self) -> Comparison | None:
        """Return the result of a finished look once; None if there is none. Raises the look's exception."""
        if self._look is None or not self._look.done():
            return None
        finished, self._look = self._look, None
        return finished.result()

    def close(self) -> None:
        """Stop looking; a look that is under way closes its own connection when it ends."""
        self._closed = True
        if self._look is None or self._look.done():
            self._release()

    def _release(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _run(self, outcome: Future[Comparison], captured: Mapping[TableId, Capture], compared: str | None) -> None:
        try:
            outcome.set_result(self._compare(captured, compared))
        except Exception as error:
            outcome.set_exception(error)
        if self._closed:
            self._release()

    def _compare(self, captured: Mapping[TableId, Capture], compared: str | None) -> Comparison:
        began = time.monotonic()
        if self._catalog is None or self._catalog.closed:
            self._catalog = connect(self._database_url)
        catalog = self._catalog
        position = server_position(catalog)
        self._committing = self._find_commits(catalog)
        digest = read_digest(catalog, self._publications, [capture.relid for capture in captured.values()])
        # Sessions were looked at for the objects of the last look. Others are known from now on.
        is_committing = bool(self._committing) or not digest.objects <= set(self._objects)
        self._objects = digest.objects
        return Comparison(
            position,
            captured,
            digest.text,
            digest.members,
            is_committing,
            sources_of_applier(catalog),
            time.monotonic() - began - self._paused_s,
            None if digest.text == compared else self._see(catalog, captured),
        )

    def _find_commits(self, catalog: Connection) -> list[SessionAtWork]:
        worked_s = 0.0

        def look() -> list[SessionAtWork]:
            nonlocal worked_s
            began = time.monotonic()
            found = [session_of(row) for row in catalog.execute(SESSIONS.encode(), prepare=True)]
            worked_s += time.monotonic() - began
            return found

        began = time.monotonic()
        try:
            return find_commits(look, self._committing, self._objects)
        except psycopg.Error as error:
            raise diagnose_exception(error) from error
        finally:
            self._paused_s = time.monotonic() - began - worked_s

    def _see(self, catalog: Connection, captured: Mapping[TableId, Capture]) -> SeenCatalog:
        check_publications(catalog, self._publications)
        published = published_tables(catalog, self._publications)
        known = {t.relid: t for t in published if t.table in captured and not is_new(t, captured)}
        facts = read_table_facts(catalog, self._publications, known)
        left_out = find_all_left_out(known.values(), facts)
        return SeenCatalog(
            insert_position(catalog),
            {t.relid: t.joined for t in published if t.partitioned},
            published[0].horizon if published else NO_HORIZON,
            facts,
            find_unpublished(published, captured),
            find_outdated_tables({relid: captured[t.table] for relid, t in known.items()}, facts, left_out),
            left_out,
            any(t.table in captured and t.relid not in known for t in published),
            len(known) < len(published),
        )


def find_unpublished(published: Sequence[PublishedTable], captured: Mapping[TableId, Capture]) -> dict[TableId, str]:
    """Return captured tables whose changes are not streamed any more, with the reason; without those that say so."""
    streamed, names = {t.table for t in published}, {t.relid: t.table for t in published}
    return {
        table: f"it is now called {names[capture.relid]}"
        if capture.relid in names
        else "it is in none of the publications any more"
        for table, capture in captured.items()
        if not capture.left_out and table not in streamed
    }
