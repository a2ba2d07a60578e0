"""Implements `pg-trickle-cdc status` and `drop-slot`: reads the state of a slot, or drops the slot and its progress."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from cdc_consumer.errors import SlotActive, SourceError, TopicError
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.open_sink import open_sink, prepare_sink, read_state
from cdc_consumer.sinks.sink import StoredState, Tombstone
from cdc_consumer.wal.catalog import Connection, connect, publications_of, published_tables
from cdc_consumer.wal.session import ReplicationSession
from cdc_consumer.wal.slot import (
    SlotState,
    check_resumable,
    check_usable,
    drop_replication_slot,
    inspect_slot,
    server_position,
    standbys,
)
from shared_schema.errors import TrickleError
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

ASK_INSTANCE_S = 2.0
"""An instance on this machine answers in milliseconds; if it runs elsewhere, no process listens at the address."""


ASK_BROKER_S = 5.0
"""A person waits for the status, so a missing broker is reported after a short time."""


def read_status(settings: ConsumerSettings) -> dict[str, Any]:
    """Return the slot as the server reports it, the stored progress, the running instance's report, and all tables."""
    url = settings.database_url.get_secret_value()
    with connect(url) as catalog:
        # The order matters: a running instance advances all three meanwhile, and the progress must not look as if it
        # were behind the slot.
        slot, waiting = inspect_slot(catalog, settings.slot), standbys(catalog, settings.slot)
        state, unread = _read_stored(settings)
        position, published = server_position(catalog), publications_of(catalog, settings.publications)
        listed = _tables_to_list(catalog, settings) or published.keys()
    frontier = state.progress.frontier if state.progress else None
    lag = max(0, position.value - state.progress.resume_at.value) if state.progress else None
    instance = ask_instance(settings)
    blocked = unread or _find_blocker(url, slot, state) or (instance or {}).get("blocked")
    if blocked is None and (slot is None or slot.active_pid is None):
        blocked = "no instance is streaming from the slot"
    return {
        "mode": settings.mode,
        "slot": settings.slot,
        "slot_exists": slot is not None,
        "active": slot is not None and slot.active_pid is not None,
        "standbys": [{"server_process": pid, "address": at, "since": since} for pid, at, since in waiting],
        "wal_status": slot.wal_status if slot else None,
        "restart_lsn": str(slot.restart_lsn) if slot and slot.restart_lsn else None,
        "confirmed_flush_lsn": str(slot.confirmed_flush) if slot and slot.confirmed_flush else None,
        "publications": list(settings.publications),
        "topic_prefix": settings.topic_prefix,
        "progress_read": unread is None,
        "server_lsn": str(position),
        "frontier": str(frontier) if frontier else None,
        "lag_bytes": lag,
        "blocked": blocked,
        "last_error": (instance or {}).get("last_error"),
        "instance": instance,
        "tables": [
            {
                "table": str(table),
                "mode": settings.mode,
                "slot": settings.slot,
                "publications": published.get(table, []),
                "lag_bytes": lag,
                "blocked": blocked or _find_table_blocker(state.captures.get(table), published.get(table)),
                "last_error": (instance or {}).get("last_error"),
                **_capture_fields(state.captures.get(table)),
            }
            for table in sorted(state.captures.keys() | listed)
        ],
    }


def _tables_to_list(catalog: Connection, settings: ConsumerSettings) -> set[TableId]:
    """Return the published tables, a partitioned one without its partitions; none if the publications disagree."""
    try:
        return {published.table for published in published_tables(catalog, settings.publications)}
    except TrickleError:
        return set()


def _read_stored(settings: ConsumerSettings) -> tuple[StoredState, str | None]:
    """Return the stored state, or an empty one and the reason why it cannot be read.

    The rest of the status is even more useful when the broker is down, so this is not an error.
    """
    try:
        return read_state(settings, ASK_BROKER_S), None
    except TopicError as error:
        return StoredState(), f"the published progress cannot be read: {error.problem}"


def ask_instance(settings: ConsumerSettings) -> dict[str, Any] | None:
    """Return the report of the instance at the configured metrics address; None if no instance of this slot answers."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.metrics_host, settings.metrics_host)  # noqa: S104
    if settings.metrics_port == 0:
        return None
    try:
        with urllib.request.urlopen(f"http://{host}:{settings.metrics_port}/status", timeout=ASK_INSTANCE_S) as answer:
            report: dict[str, Any] = json.loads(answer.read())
    except (OSError, ValueError):
        return None
    return report if report.get("slot") == settings.slot else None


def _find_blocker(url: str, slot: SlotState | None, state: StoredState) -> str | None:
    """Return why a start would be refused; None if it would not."""
    try:
        if state.progress is not None:
            with ReplicationSession(url) as session:
                check_resumable(state.progress, session.identify(), slot, session.branches)
        elif slot is not None:
            check_usable(slot)
    except SourceError as error:
        return f"{error.problem}; {error.hint}"
    return None


def _find_table_blocker(capture: Capture | None, publications: list[str] | None) -> str | None:
    if not publications:
        return "no longer in any of the publications"
    return (capture.stopped or None) if capture else "not copied yet"


def _capture_fields(capture: Capture | None) -> dict[str, Any]:
    if capture is None:
        return {"captured": False, "relid": None, "snapshot_lsn": None, "snapshot_rows": None}
    return {
        "captured": True,
        "relid": capture.relid,
        "snapshot_lsn": str(capture.snapshot_lsn),
        "snapshot_rows": capture.rows,
    }


def describe_status(report: dict[str, Any]) -> str:
    """Format the report as text."""
    existence = "active" if report["active"] else "idle" if report["slot_exists"] else "missing"
    captured = sum(table["captured"] for table in report["tables"])
    lines = [
        f"slot          {report['slot']} ({existence}, log {report['wal_status'] or 'unknown'}), mode {report['mode']}",
        f"standbys      {len(report['standbys'])} waiting",
        f"publications  {', '.join(report['publications'])}",
        f"frontier      {report['frontier'] or ('nothing published yet' if report['progress_read'] else 'unknown')}",
        f"server        {report['server_lsn']}, {report['lag_bytes'] if report['frontier'] else '?'} bytes ahead",
        f"blocked       {report['blocked'] or 'no'}",
        f"last error    {report['last_error'] or 'none' if report['instance'] else 'no instance answers on this host'}",
        f"tables        {captured if report['progress_read'] else '?'} captured of {len(report['tables'])}",
    ]
    for table in report["tables"]:
        since = f"captured at {table['snapshot_lsn']} with {table['snapshot_rows']} rows" if table["captured"] else ""
        own = table["blocked"] if table["blocked"] != report["blocked"] else None
        lines.append(
            f"  {table['table']} by {', '.join(table['publications']) or 'no publication'} {since}{own or ''}".rstrip()
        )
    return "\n".join(lines)


def drop_progress(settings: ConsumerSettings) -> bool:
    """Drop the slot and erase its progress and captures; False when there was no slot."""
    with connect(settings.database_url.get_secret_value()) as catalog:
        slot = inspect_slot(catalog, settings.slot)
        if slot is not None and slot.active_pid is not None:
            raise SlotActive(
                f"slot {settings.slot} is active: server process {slot.active_pid} streams from it",
                hint="stop pg-trickle-cdc first",
            )
        # The progress goes first: if the process stops in between, a slot without progress is fine, while progress
        # without its slot would be an error at the next start.
        prepare_sink(settings)
        keys = read_state(settings).keys
        if keys:
            sink = open_sink(settings, lambda: None, Metrics(Health()))
            sink.commit([Tombstone(key) for key in keys])
            sink.close()
        return drop_replication_slot(catalog, settings.slot)
