"""Compares the captured tables with the catalog, on a separate thread: what rows rest on besides the log.

The order of a look makes it sound, as in the applier: first the end of the log, then the sessions whose commit may be
under way, then the catalog. A commit before that position is either seen in the catalog or its session is seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import psycopg

from cdc_consumer.snapshot.watch import check_publications, is_new
from cdc_consumer.wal.catalog import Connection, PublishedTable, connect, published_tables
from cdc_consumer.wal.diagnosis import diagnose_exception
from cdc_consumer.wal.slot import insert_position, server_position
from cdc_consumer.wal.table_facts import find_all_left_out, find_outdated_tables, read_table_facts, sources_of_applier
from cdc_consumer.wal.visibility import Sight, read_sight
from shared_schema.commits import SESSIONS, SessionAtWork, find_commits
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

FACTS_SHARE = 50
"""Reading the facts of all tables may take this part of the time of one session of the server."""

_OBJECTS = """
SELECT p.oid::int8 FROM pg_publication p WHERE p.pubname = ANY (%s)
UNION ALL
SELECT DISTINCT e.enumtypid::int8 FROM pg_enum e
"""

_SNAPSHOT = "SELECT pg_current_snapshot()::text"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one look at the catalog saw of the tables that were captured then."""

    position: Lsn
    """The end of the log before the look."""
    reached: Lsn
    """The end of the log after it: everything that was seen is before this position."""
    captured: Mapping[TableId, Capture]
    leaves: Mapping[int, Mapping[int, str]]
    """The leaf partitions of each partitioned table by its oid, with what identifies their attachment."""
    sight: Sight
    """What the look could see of them."""
    facts: Mapping[int, str] | None
    """What the rows of each table rest on besides the log, by its oid; None if that was not read."""
    unpublished: Mapping[TableId, str]
    """Captured tables whose changes are not streamed any more, and why."""
    outdated: Mapping[TableId, str]
    """Those whose rows changed behind the log, and why."""
    left_out: Mapping[TableId, str]
    """Those of which the publications leave something out, and what."""
    of_applier: frozenset[int]
    """Tables that an applier of this database compares too: it requests copies itself."""
    is_settled: bool
    """Whether no commit was under way that may alter one of them, and none of them must be captured again."""
    seconds: float
    """How long it took."""


class CatalogComparison:
    """Looks at the catalog, one look at a time."""

    def __init__(self, database_url: str, publications: tuple[str, ...]) -> None:
        self._database_url = database_url
        self._publications = publications
        self._look: Future[Comparison] | None = None
        self._catalog: Connection | None = None
        self._facts_at = 0.0
        self._closed = False

    @property
    def is_running(self) -> bool:
        """Whether a look is under way, or has a result that was not taken."""
        return self._look is not None

    def start(self, captured: Mapping[TableId, Capture]) -> None:
        """Start a look; only while none is running."""
        self._look = Future()
        # A daemon thread: a server that hangs must not delay the end of the process.
        threading.Thread(target=self._run, args=(self._look, dict(captured)), name="compare", daemon=True).start()

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

    def _run(self, outcome: Future[Comparison], captured: Mapping[TableId, Capture]) -> None:
        try:
            outcome.set_result(self._compare(captured))
        except Exception as error:
            outcome.set_exception(error)
        if self._closed:
            self._release()

    def _compare(self, captured: Mapping[TableId, Capture]) -> Comparison:
        began = time.monotonic()
        if self._catalog is None or self._catalog.closed:
            self._catalog = connect(self._database_url)
        catalog = self._catalog
        check_publications(catalog, self._publications)
        position = server_position(catalog)
        sight = self._sight(catalog, position)
        is_committing = self._is_committing(catalog, captured)
        published = published_tables(catalog, self._publications)
        known = {t.relid: captured[t.table] for t in published if t.table in captured and not is_new(t, captured)}
        facts = self._read_facts(catalog, known)
        left_out = find_all_left_out(published, facts or {})
        lost = [t for t in published if t.table in captured and t.relid not in known]
        return Comparison(
            position,
            insert_position(catalog),
            captured,
            {t.relid: t.joined for t in published if t.partitioned},
            sight,
            facts,
            find_unpublished(published, captured),
            find_outdated_tables(known, facts or {}, left_out),
            left_out,
            sources_of_applier(catalog),
            facts is not None and not is_committing and not lost,
            time.monotonic() - began,
        )

    @staticmethod
    def _sight(catalog: Connection, position: Lsn) -> Sight:
        row = catalog.execute(_SNAPSHOT).fetchone()
        return read_sight(str(row[0]) if row else "0:0:", str(position))

    def _is_committing(self, catalog: Connection, captured: Mapping[TableId, Capture]) -> bool:
        """Whether a session may be committing a change of a captured table, of a type or of a publication."""

        def look() -> list[SessionAtWork]:
            rows = catalog.execute(SESSIONS.encode()).fetchall()
            return [SessionAtWork(p, x, s, w, q, b, frozenset(locked)) for p, x, s, w, q, b, locked in rows]

        try:
            others = {int(oid) for (oid,) in catalog.execute(_OBJECTS.encode(), (list(self._publications),))}
            relids = {oid for c in captured.values() for oid in (c.relid, *(c.leaves or ()), *c.awaited)}
            return bool(find_commits(look, others | relids))
        except psycopg.Error as error:
            raise diagnose_exception(error) from error

    def _read_facts(self, catalog: Connection, known: Mapping[int, Capture]) -> dict[int, str] | None:
        began = time.monotonic()
        if began < self._facts_at:
            return None
        facts = read_table_facts(catalog, self._publications, known)
        ended = time.monotonic()
        self._facts_at = ended + FACTS_SHARE * (ended - began)
        return facts


def find_unpublished(published: Sequence[PublishedTable], captured: Mapping[TableId, Capture]) -> dict[TableId, str]:
    """Return captured tables whose changes are not streamed any more, with the reason."""
    streamed, names = {t.table for t in published}, {t.relid: t.table for t in published}
    return {
        table: f"it is now called {names[capture.relid]}"
        if capture.relid in names
        else "it is in none of the publications any more"
        for table, capture in captured.items()
        if not capture.left_out and table not in streamed
    }
