"""Finds tables that were added to the publications and prepares their export, on a separate thread.

Creating a slot can wait for transactions of other sessions, and the stream must continue meanwhile. Only one check runs
at a time. Before it exports tables it announces them and waits until their changes are kept: the stream may pass the
export's consistent point long before the export is known.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import MappingProxyType

import psycopg

from cdc_consumer.errors import CaptureFailed, PublicationMissing, SourceError
from cdc_consumer.snapshot.export import Export, prepare_export
from cdc_consumer.wal.catalog import (
    Connection,
    PublishedTable,
    connect,
    find_unreadable,
    missing_publications,
    publish_leaves,
    published_tables,
)
from cdc_consumer.wal.slot import server_position
from shared_schema.errors import SettingsError
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId
from shared_schema.topics import table_topic

log = logging.getLogger(__name__)

ANNOUNCED_S = 1.0
"""How often a check that waits looks whether the session has ended."""

VIA_ROOT_HINT = "ALTER PUBLICATION … SET (publish_via_partition_root = false)"

GROUP_BYTES = 64 * 1024 * 1024
"""Total size of small tables that are copied together; a larger table is copied alone."""


@dataclass(frozen=True, slots=True)
class WantedTables:
    """Tables that will be exported at a point after `position`, which is the end of the server's log at present."""

    tables: tuple[PublishedTable, ...]
    position: Lsn


@dataclass(frozen=True, slots=True)
class SeenTables:
    """The result of one check: the end of the server's log, and an export if there are tables to capture."""

    position: Lsn
    export: Export | None
    uncaptured: frozenset[TableId] = frozenset()
    """All tables of the publications that are not captured."""
    refused: tuple[tuple[PublishedTable, str], ...] = ()
    """Those of them that cannot be captured, and why."""


class CaptureWatch:
    """Checks the publications on a separate thread."""

    def __init__(
        self,
        database_url: str,
        publications: tuple[str, ...],
        topic_prefix: str | None = None,
        refused: Mapping[TableId, str] = MappingProxyType({}),
    ) -> None:
        """`topic_prefix` is that of the topics, if there are any; `refused` are tables that cannot be captured."""
        self._database_url = database_url
        self._publications = publications
        self._topic_prefix = topic_prefix
        self._refused = refused
        self._round: Future[SeenTables] | None = None
        self._catalog: Connection | None = None
        self._closed = False
        self._wanted: WantedTables | None = None
        self._kept = threading.Event()
        self._warned: set[int] = set()

    @property
    def wanted(self) -> WantedTables | None:
        """Tables whose export waits until `confirm_kept` is called; None if there are none."""
        return None if self._kept.is_set() else self._wanted

    def confirm_kept(self) -> None:
        """Let the export begin: all later changes of the wanted tables are kept from now on."""
        self._kept.set()

    @property
    def is_running(self) -> bool:
        """Whether a check runs, or has a result that was not taken."""
        return self._round is not None

    def start(self, captured: Mapping[TableId, Capture], known: Collection[TableId], *, together: bool) -> bool:
        """Start a check unless one is running -> whether it was started.

        `known` are the tables that readers know; `together` exports all tables at one point.
        """
        if self._round is not None:
            return False
        outcome: Future[SeenTables] = Future()
        # A daemon thread: a check may wait for another session's transaction and must not delay the end of the process.
        given = (outcome, dict(captured), frozenset(known), together)
        thread = threading.Thread(target=self._run, args=given, name="capture", daemon=True)
        self._round = outcome
        thread.start()
        return True

    def take_result(self) -> SeenTables | None:
        """Return the result of a finished check once; None if there is none. Raises the check's exception."""
        if self._round is None or not self._round.done():
            return None
        finished, self._round = self._round, None
        return finished.result()

    def move_server(self) -> None:
        """Write a message to the server's log, on a separate thread, so that the stream of an idle server moves on."""
        threading.Thread(target=self._write_message, name="capture", daemon=True).start()

    def _write_message(self) -> None:
        try:
            with connect(self._database_url) as connection:
                connection.execute("SET synchronous_commit = local")
                connection.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', 'wake')")
        except (SourceError, psycopg.Error):
            log.info("no message could be written to the log, a capture waits for the next commit")

    def close(self) -> None:
        """Stop checking; a running check closes its own connections when it ends."""
        self._closed = True
        if self._round is None or self._round.done():
            self._release()

    def _release(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _run(
        self,
        outcome: Future[SeenTables],
        captured: Mapping[TableId, Capture],
        known: frozenset[TableId],
        together: bool,
    ) -> None:
        try:
            seen = self._check(captured, known, together=together)
        except Exception as error:
            outcome.set_exception(error)
        else:
            if self._closed and seen.export is not None:
                seen.export.close()
            outcome.set_result(seen)
        if self._closed:
            self._release()

    def _check(self, captured: Mapping[TableId, Capture], known: frozenset[TableId], *, together: bool) -> SeenTables:
        if self._catalog is None or self._catalog.closed:
            self._catalog = connect(self._database_url)
        check_publications(self._catalog, self._publications)
        published = published_tables(self._catalog, self._publications)
        if any(t.via_root for t in published):
            publish_leaves(self._catalog, self._publications)
        uncaptured = frozenset(t.table for t in published if is_new(t, captured))
        wanted, refused = self._judge(self._catalog, published, captured)
        position = server_position(self._catalog)
        if not wanted:
            return SeenTables(position, None, uncaptured, refused)
        group = wanted if together else first_capture_group(wanted)
        self._announce(WantedTables(tuple(group), position))
        export = prepare_export(self._database_url, self._publications, group, known)
        return SeenTables(server_position(self._catalog), export, uncaptured, refused)

    def _judge(
        self, catalog: Connection, published: Sequence[PublishedTable], captured: Mapping[TableId, Capture]
    ) -> tuple[list[PublishedTable], tuple[tuple[PublishedTable, str], ...]]:
        """Return the tables to copy, and those that cannot be followed, of which readers are not told yet, with why.

        A table that was stopped is copied again when nothing is in the way any more.
        """
        new = [t for t in published if is_copy_missing(t, captured) and self._is_readable(t)]
        joining = [with_awaited(t, captured) for t in published if not is_copy_missing(t, captured)]
        joining = [table for table in joining if table.only]
        unreadable = find_unreadable(catalog, [*new, *joining])
        reasons = [(t, self._find_refusal(t) or unreadable.get(t.relid)) for t in (*new, *joining)]
        wanted = [table for table, reason in reasons if reason is None]
        judged = {table.relid for table, _ in reasons}
        reasons += [(t, t.problem) for t in published if t.problem and t.relid not in judged]
        refused = tuple(
            (table, reason)
            for table, reason in reasons
            if reason is not None and (is_new(table, captured) or not captured[table.table].stopped)
        )
        return wanted, refused

    def _find_refusal(self, published: PublishedTable) -> str | None:
        """Return why a table cannot be captured; None if it can."""
        table = published.table
        if table in self._refused:
            return self._refused[table]
        if published.problem:
            return published.problem
        try:
            if self._topic_prefix is not None:
                table_topic(self._topic_prefix, table)
        except SettingsError as error:
            return f"{error.problem}; {error.hint}"
        return None

    def _is_readable(self, table: PublishedTable) -> bool:
        """Return whether the stream tells the table's leaf partitions apart; warn once if it does not."""
        if table.via_root and table.relid not in self._warned:
            self._warned.add(table.relid)
            log.warning(
                "a partitioned table is published via its root, it is not captured",
                extra={"table": str(table.table), "hint": VIA_ROOT_HINT},
            )
        return not table.via_root

    def _announce(self, wanted: WantedTables) -> None:
        """Wait until the changes of the tables are kept."""
        self._kept.clear()
        self._wanted = wanted
        while not self._kept.wait(ANNOUNCED_S):
            if self._closed:
                raise CaptureFailed("the session ended before the capture began", hint="start again")
        self._wanted = None


def check_publications(catalog: Connection, publications: tuple[str, ...]) -> None:
    """Raise an error if a publication does not exist any more."""
    if missing := missing_publications(catalog, publications):
        raise PublicationMissing(
            f"publication {missing[0]} was dropped: changes of its tables are no longer streamed",
            hint="run `pg-trickle-cdc resync`: it creates the publication again and shows what will be copied",
        )


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

    It is not captured yet, was dropped and created again under the same name, was captured under another name since,
    was in none of the publications for some time, or was captured when the leaf partitions of its rows were not
    recorded.
    """
    known = captured.get(table.table)
    is_unmarked = table.partitioned and known is not None and known.leaves is None and not known.stopped
    if known is None or known.relid != table.relid or is_unmarked:
        return True
    if any(other.relid == table.relid and other.snapshot_lsn > known.snapshot_lsn for other in captured.values()):
        return True
    return not set(known.membership.split(",")) & set(table.membership.split(","))


def is_copy_missing(table: PublishedTable, captured: Mapping[TableId, Capture]) -> bool:
    """Return whether a table is new or stopped."""
    return is_new(table, captured) or bool(captured[table.table].stopped)


def with_awaited(table: PublishedTable, captured: Mapping[TableId, Capture]) -> PublishedTable:
    """Return the table with the leaf partitions that must be copied, while the others are captured already."""
    known = captured.get(table.table)
    awaited = () if known is None else tuple(leaf for leaf in table.leaves if leaf in known.awaited)
    return replace(table, only=awaited)
