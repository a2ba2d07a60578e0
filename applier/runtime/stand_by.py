"""The state of the owner in, look by look; the reason to take over from it, when there is one, out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import psycopg

from applier.catalog.database import Database
from applier.errors import Infrastructure
from applier.runtime.ownership import BEAT_S, Ownership, end_sessions

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25

SILENT_S = 8.0
"""An owner that has not beaten for so long hangs, or is cut off from the server."""

SETTLE_S = 5.0
"""After the server was away for this process too, it was away for the owner, which may come back first."""

END_WITHIN_S = 2.0
"""How long the server needs at most to end a session; after that it is told to once more."""

_OWNER = """
SELECT i.beat_at FROM pgtrickle.pgt_ownership o JOIN pgtrickle.pgt_applier_instances i USING (slot, holder)
WHERE o.slot = %s
"""


@dataclass
class OwnerWatch:
    """Decides, from what each look found, whether the owner is gone. Times are of the own monotonic clock alone."""

    _beat_at: datetime | None = None
    _seen_at: float = 0.0
    """When that beat was seen first."""
    _settled_at: float = 0.0
    """Not before this time it means anything that nobody holds the lock."""

    def note_away(self, now: float) -> None:
        """Note that the server did not answer."""
        self._beat_at = None
        self._settled_at = now + SETTLE_S

    def look(self, beat_at: datetime | None, is_held: bool, now: float) -> str | None:
        """Return why to take over; None while the owner lives."""
        if beat_at != self._beat_at:
            self._beat_at, self._seen_at = beat_at, now
        if not is_held:
            return "the owner before it ended" if now >= self._settled_at else None
        is_silent = beat_at is not None and now - self._seen_at >= SILENT_S
        return f"the owner before it was silent for {SILENT_S:.0f} s" if is_silent else None


@dataclass
class StandBy:
    """Waits beside the owner; `database` is a connection of its own. `on_look` is called at every look."""

    ownership: Ownership
    database: Database
    on_look: Callable[[], None]
    _watch: OwnerWatch = field(default_factory=OwnerWatch)
    _beaten_at: float = 0.0

    def wait(self, stopping: threading.Event) -> str | None:
        """Return once the owner is gone, with the reason; None when `stopping` is set before."""
        while not stopping.is_set():
            self.on_look()
            try:
                if (reason := self._look()) is not None:
                    return reason
            except (Infrastructure, psycopg.Error) as error:
                log.debug("the owner cannot be watched", extra={"error": str(error).splitlines()[0]})
                self._watch.note_away(time.monotonic())
            stopping.wait(LOOK_EVERY_S)
        return None

    def _look(self) -> str | None:
        now = time.monotonic()
        if now - self._beaten_at >= BEAT_S:
            self.ownership.beat(self.database, "standby")
            self._beaten_at = now
        connection = self.database.connection
        row = connection.execute(_OWNER, (self.ownership.slot,)).fetchone()
        beat_at = row[0] if row is not None and isinstance(row[0], datetime) else None
        holders = self.ownership.lock.holders(connection)
        reason = self._watch.look(beat_at, bool(holders), now)
        if reason is not None and holders:
            # It cannot release its lock by itself.
            end_sessions(connection, "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", (holders,))
            while self.ownership.lock.holders(connection):
                if time.monotonic() - now > END_WITHIN_S:
                    return None
                time.sleep(0.02)
        return reason
