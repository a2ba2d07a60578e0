"""Takes the slot and the stored progress, checks that they belong together, and returns the point to resume from.

The slot is acquired first and the Kafka transactions second, so that a standby never fences a working instance. The
progress is read again after fencing, because the previous instance may have published until that moment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from cdc_consumer.errors import (
    ForeignTopics,
    SlotActive,
    SourceError,
    StandbyTimeout,
    StopRequested,
)
from cdc_consumer.health import Health, LoadingTables, StandingBy
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.open_sink import is_state_in_doubt, read_state
from cdc_consumer.sinks.sink import StoredState
from cdc_consumer.wal.catalog import (
    OWN_PUBLICATION,
    Connection,
    create_publication,
    missing_publications,
    partitioned_tables,
    publications_via_root,
    published_tables,
    published_via_root,
)
from cdc_consumer.wal.session import ReplicationSession, ServerIdentity
from cdc_consumer.wal.slot import (
    SlotState,
    announce_standby,
    check_resumable,
    check_usable,
    check_wal_level,
    inspect_slot,
)
from cdc_consumer.wal.table_facts import find_all_left_out, find_outdated_tables, read_table_facts, sources_of_applier
from shared_schema.errors import SettingsError
from shared_schema.lsn import Lsn
from shared_schema.progress import CommitPart, Progress
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

STANDBY_POLL_S = 0.3
"""How soon a standby notices that the slot is free; each check is one query for one row."""

UNDECIDED_S, UNDECIDED_POLL_S = 60.0, 0.2
"""A broker that has restarted completes the transactions that it had confirmed within seconds."""


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The server and the slot to stream from, and the position to start at."""

    server: ServerIdentity
    slot_lsn: Lsn
    frontier: Lsn
    begins_at: Lsn
    """The position from which the server sends."""


def check_topics(state: StoredState, settings: ConsumerSettings) -> None:
    """Raise an error if another slot publishes its progress on the same topics: its frontiers mean other positions."""
    if state.other_slot is not None:
        raise ForeignTopics(
            f"the topics with prefix {settings.topic_prefix} are written by slot {state.other_slot}, and this is slot "
            f"{settings.slot}",
            hint="give each slot its own PG_TRICKLE_TOPIC_PREFIX; if that slot is retired, run `pg-trickle-cdc "
            f"drop-slot` with PG_TRICKLE_SLOT={state.other_slot} first",
        )


def ensure_publications(catalog: Connection, publications: tuple[str, ...]) -> None:
    """Create the missing publications, without tables.

    Raises PublishedViaRoot if a publication that is not ours publishes a partitioned table via its root: DETACH,
    ATTACH, DROP and TRUNCATE of a single partition would be lost.
    """
    for name in missing_publications(catalog, publications):
        create_publication(catalog, name)
        log.info("publication created", extra={"publication": name})
    for name in publications_via_root(catalog, publications):
        tables = [str(t.table) for t in published_tables(catalog, (name,)) if t.via_root]
        if tables and name != OWN_PUBLICATION:
            raise published_via_root(name, tables)


def find_unrecorded(catalog: Connection, state: StoredState) -> list[TableId]:
    """Return partitioned tables whose leaf partitions are not recorded, because an older version captured them.

    They must be copied again before the frontier may advance.
    """
    relids = [capture.relid for capture in state.captures.values() if capture.leaves is None]
    found = partitioned_tables(catalog, relids) if relids else set()
    unrecorded = sorted(table for table, capture in state.captures.items() if capture.relid in found)
    for table in unrecorded:
        log.warning(
            "partitioned table is copied again, because the partitions of its rows are not recorded",
            extra={"table": str(table)},
        )
    return unrecorded


def find_outdated(
    catalog: Connection, settings: ConsumerSettings, state: StoredState, overdue: Collection[TableId]
) -> list[TableId]:
    """Return captured tables whose rows changed without being in the log, and of which no applier requests a copy;
    for those that are `overdue` one should have.

    They must be copied again before the frontier may advance. Of a table that is not published no copy is possible: its
    readers are told when the catalog is compared.
    """
    of_applier = sources_of_applier(catalog)
    published = [
        table
        for table in published_tables(catalog, settings.publications)
        if (known := state.captures.get(table.table)) is not None and known.relid == table.relid and not known.stopped
        if table.relid not in of_applier or table.table in overdue
    ]
    by_relid = {table.relid: state.captures[table.table] for table in published}
    facts = read_table_facts(catalog, settings.publications, by_relid)
    outdated = find_outdated_tables(by_relid, facts, find_all_left_out(published, facts))
    for table, problem in outdated.items():
        log.warning("table is copied again", extra={"table": str(table), "seen": problem})
    return list(outdated)


def acquire_slot(
    session: ReplicationSession,
    catalog: Connection,
    settings: ConsumerSettings,
    stop: threading.Event,
    health: Health,
) -> StartingPoint:
    """Start streaming from the slot, and create it if it is missing. Stands by while another instance has it."""
    check_wal_level(catalog)
    began = time.monotonic()
    while True:
        point, active_pid = find_starting_point(session, catalog, settings, stop)
        try:
            if active_pid is None:
                session.start(settings.slot, point.begins_at, settings.publications)
                # The server starts at the requested position or at the slot's position, whichever is later. This
                # session holds the slot now, so its position can be read without a race.
                slot = inspect_slot(catalog, settings.slot)
                confirmed = slot.confirmed_flush if slot is not None else None
                point = replace(point, begins_at=max(point.begins_at, confirmed or Lsn(0)))
                if isinstance(health.session, StandingBy):
                    announce_standby(catalog, settings.slot, waiting=False)
                    waited_s = round(time.monotonic() - began, 3)
                    log.warning("taking over", extra={"slot": settings.slot, "waited_s": waited_s})
                health.enter(LoadingTables())
                return point
        except SlotActive:
            pass  # another instance was faster
        _stand_by(catalog, settings, stop, health, began)


def _stand_by(
    catalog: Connection, settings: ConsumerSettings, stop: threading.Event, health: Health, began: float
) -> None:
    """Wait until the slot is free or dropped."""
    while (slot := inspect_slot(catalog, settings.slot)) is not None and slot.active_pid is not None:
        if settings.slot_wait_s and time.monotonic() - began >= settings.slot_wait_s:
            raise StandbyTimeout(
                f"slot {settings.slot} is active: server process {slot.active_pid} streams from it",
                hint="stop the other instance, or set PG_TRICKLE_SLOT_WAIT_S to 0 to stand by without a limit",
            )
        if not isinstance(health.session, StandingBy):
            announce_standby(catalog, settings.slot, waiting=True)
            log.warning(
                "slot is active elsewhere, standing by",
                extra={"slot": settings.slot, "server_process": slot.active_pid},
            )
        health.enter(StandingBy(slot.active_pid))
        health.beat()
        if stop.wait(STANDBY_POLL_S):
            raise StopRequested


def find_starting_point(
    session: ReplicationSession, catalog: Connection, settings: ConsumerSettings, stop: threading.Event
) -> tuple[StartingPoint, int | None]:
    """Check the stored progress against slot and server; without progress, create the slot or adopt an existing one.

    -> the starting point, and the server process that streams from the slot now. The slot is read first and the server
    last: a working instance advances all three meanwhile, and the progress must not look as if it were behind the slot.
    """
    slot = inspect_slot(catalog, settings.slot)
    progress = _read_progress(slot, settings, stop)
    server = session.identify()
    if progress is not None:
        check_resumable(progress, server, slot, session.branches)
        last = progress.last_commit
        begins_at = last.lsn if last and last.publications == settings.publications else progress.resume_at
        point = StartingPoint(server, progress.slot_lsn, progress.resume_at, begins_at)
        return point, slot.active_pid if slot else None
    if slot is None:
        slot = _create_slot(session, catalog, settings.slot)
    check_usable(slot)
    start = slot.confirmed_flush or Lsn(0)
    return StartingPoint(server, start, start, start), slot.active_pid


def _read_progress(slot: SlotState | None, settings: ConsumerSettings, stop: threading.Event) -> Progress | None:
    """Return the stored progress.

    If the slot is ahead of it, the last Kafka commit may not be readable yet, although the slot was already
    acknowledged for it. Then this waits.
    """
    progress, deadline, is_logged = read_state(settings).progress, time.monotonic() + UNDECIDED_S, False
    while _is_ahead(slot, progress) and time.monotonic() < deadline:
        in_doubt = is_state_in_doubt(settings)
        # Read after this check: transactions that were decided meanwhile are readable now.
        progress = read_state(settings).progress
        if not in_doubt:
            break
        if not is_logged:
            log.info("progress is not readable yet", extra={"slot": settings.slot})
            is_logged = True
        if stop.wait(UNDECIDED_POLL_S):
            raise StopRequested
    return progress


def _is_ahead(slot: SlotState | None, progress: Progress | None) -> bool:
    if slot is None or progress is None or slot.confirmed_flush is None:
        return False
    return slot.confirmed_flush > progress.resume_at


def verify_acquired(point: StartingPoint, state: StoredState) -> StartingPoint:
    """Return the starting point after fencing: the previous instance may have advanced, but not on another slot."""
    if state.progress is None:
        return point
    if state.progress.slot_lsn != point.slot_lsn:
        raise SourceError(
            "another instance dropped the slot and created it again while this one started",
            hint="start this instance again",
        )
    return replace(point, frontier=state.progress.resume_at)


def resumable_part(progress: Progress | None, publications: tuple[str, ...]) -> CommitPart | None:
    """Return the part of the next source commit that is written already; None if there is none."""
    part = progress.part if progress else None
    if part is not None and part.publications != publications:
        raise SettingsError(
            f"the commit at {part.lsn} is published only in part, streamed through the publications "
            f"{', '.join(part.publications)}",
            hint="start with these publications until the commit is published completely, then change them",
        )
    return part


def _create_slot(session: ReplicationSession, catalog: Connection, name: str) -> SlotState:
    log.info("creating slot, waiting for running write transactions", extra={"slot": name})
    failure: SourceError | None = None
    try:
        at, _ = session.create_slot(name, temporary=False, export=False)
        log.info("slot created", extra={"slot": name, "lsn": str(at)})
    except SourceError as error:
        failure = error
    slot = inspect_slot(catalog, name)
    if slot is None:
        raise failure or SourceError(
            f"slot {name} was dropped immediately after it was created", hint="start this instance again"
        )
    # Another instance that started at the same moment may have created it first: then the slot exists as well.
    return slot
