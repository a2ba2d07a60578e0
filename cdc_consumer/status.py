"""What `pg-trickle-cdc status` shows and what `drop-slot` undoes."""

from __future__ import annotations

from typing import Any

from cdc_consumer.errors import SlotActive
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.choose import open_sink, prepare_sink, read_state
from cdc_consumer.wal.catalog import connect
from cdc_consumer.wal.slot import drop_slot, inspect_slot, server_position, standbys


def read_status(settings: ConsumerSettings) -> dict[str, Any]:
    """The slot as the server has it, and the progress as the topics have it."""
    with connect(settings.database_url.get_secret_value()) as catalog:
        slot, position = inspect_slot(catalog, settings.slot), server_position(catalog)
        waiting = standbys(catalog, settings.slot)
    state = read_state(settings)
    frontier = state.progress.frontier if state.progress else None
    return {
        "slot": settings.slot,
        "slot_exists": slot is not None,
        "active": slot is not None and slot.active_pid is not None,
        "standbys": [{"server_process": pid, "address": at, "since": since} for pid, at, since in waiting],
        "wal_status": slot.wal_status if slot else None,
        "restart_lsn": str(slot.restart_lsn) if slot and slot.restart_lsn else None,
        "confirmed_flush_lsn": str(slot.confirmed_flush) if slot and slot.confirmed_flush else None,
        "publications": list(settings.publications),
        "topic_prefix": settings.topic_prefix,
        "server_lsn": str(position),
        "frontier": str(frontier) if frontier else None,
        "lag_bytes": max(0, position.value - frontier.value) if frontier else None,
        "tables": [
            {"table": str(c.table), "relid": c.relid, "snapshot_lsn": str(c.snapshot_lsn), "snapshot_rows": c.rows}
            for c in sorted(state.captures.values(), key=lambda c: c.table)
        ],
    }


def describe(report: dict[str, Any]) -> str:
    """The report for people."""
    existence = "active" if report["active"] else "idle" if report["slot_exists"] else "missing"
    lines = [
        f"slot          {report['slot']} ({existence}, log {report['wal_status'] or 'unknown'})",
        f"standbys      {len(report['standbys'])} waiting",
        f"publications  {', '.join(report['publications'])}",
        f"frontier      {report['frontier'] or 'nothing published yet'}",
        f"server        {report['server_lsn']}, {report['lag_bytes'] if report['frontier'] else '?'} bytes ahead",
        f"tables        {len(report['tables'])} captured",
    ]
    lines += [f"  {t['table']} from {t['snapshot_lsn']}, {t['snapshot_rows']} rows then" for t in report["tables"]]
    return "\n".join(lines)


def forget(settings: ConsumerSettings) -> bool:
    """Drop the slot and erase its progress and captures; False when there was no slot."""
    with connect(settings.database_url.get_secret_value()) as catalog:
        slot = inspect_slot(catalog, settings.slot)
        if slot is not None and slot.active_pid is not None:
            raise SlotActive(
                f"slot {settings.slot} is being streamed by server process {slot.active_pid}",
                hint="stop pg-trickle-cdc first",
            )
        # Erased first: progress without its slot would only be an error at the next start.
        prepare_sink(settings)
        keys = read_state(settings).keys
        if keys:
            sink = open_sink(settings, lambda: None)
            sink.erase(list(keys))
            sink.close()
        return drop_slot(catalog, settings.slot)
