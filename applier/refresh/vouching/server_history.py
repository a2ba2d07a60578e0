"""Where the server's log ends, and from which server the topics were written, in; whether the server still has
everything that was published from it, out.

A server that was restored to an older state goes on from there with another history. The topics, the traces and the
other sinks keep the lost one, and positions of both look alike. So nothing that arrived is applied any more until
`pg-trickle-cdc resync` has begun again: then the topics name a slot that was made after every lost position.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.catalog.frontiers import Frontiers, ServerPosition
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import HistoryUnconfirmed, ServerRestored
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress

log = logging.getLogger(__name__)

CONFIRM_S = 10.0
"""How long a record of the new history may take to arrive after a start, when only older ones were read yet."""

HINT = (
    "stop pg-trickle-cdc, run `pg-trickle-cdc resync --restored`, start it: each stream table is then repaired in place"
)

HINT_ELSEWHERE = (
    "stop pg-trickle-cdc, run `pg-trickle-cdc resync --restored`, start it; then SELECT "
    "pgtrickle.reinitialize_stream_table(name)"
)


@dataclass(frozen=True, slots=True)
class Loss:
    """The server lacks published changes."""

    problem: str
    before: Lsn
    """Every position of the lost history is before it; a slot that was made later belongs to the new one."""
    is_certain: bool = True
    """Whether no record that is still to be read can say otherwise."""
    is_reported: bool = False
    """Whether only the consumer says so: then it may also say that it was another server."""


def find_loss(server: ServerPosition, frontier: Lsn, progress: Progress) -> Loss | None:
    """Compare the server with the frontier of what was published from it, which was read before."""
    if server.log_end < frontier:
        return Loss(
            f"the server's log ends at {server.log_end}, but changes up to {frontier} were published from it: it was "
            "restored to an older state",
            frontier,
        )
    if progress.system_id != server.system_id:
        return Loss(
            f"the changes were published from server {progress.system_id}, but this server is {server.system_id}",
            max(frontier, progress.resume_at),
            is_certain=False,
        )
    return None


def find_step_back(server: ServerPosition, rows: Sequence[StreamTableRow], seen: dict[int, Lsn]) -> Loss | None:
    """Compare the frontiers of stream tables with the end of the log, and with those that were committed before."""
    for row in rows:
        before = max(row.lsn, seen.get(row.pgt_id, row.lsn))
        if row.lsn > server.log_end:
            return Loss(f"{row.table} stands at {row.lsn}, and the server's log ends at {server.log_end}", before)
        if row.lsn < before:
            return Loss(f"{row.table} stood at {before}, and the server has it at {row.lsn or 'no frontier'}", before)
    return None


@dataclass
class ServerHistory:
    """Compares the server with what was published from it, once per tick; a loss counts until there is a new slot."""

    frontiers: Frontiers | None
    """None where the sources are on another server: then only the consumer can compare."""
    progress: Callable[[], Progress | None]
    """Returns the progress record of the frontier."""
    loss: Loss | None = None
    on_new_history: Callable[[], None] = field(default=lambda: None)
    """Called when a loss is repaired."""
    _reported: Loss | None = None
    """What the consumer said last; another thread writes it."""
    _server: ServerPosition | None = None
    _seen: dict[int, Lsn] = field(default_factory=dict)
    """The frontier of each stream table at the last look."""
    _noted_at: float = field(default_factory=time.monotonic)
    _woken: int | None = None
    """The timeline for which the consumer was asked to go on."""

    def look(self, frontier: Lsn) -> None:
        """Look where the log ends, after the frontier up to which rows are complete is known.

        Raises HistoryUnconfirmed while the server is on another timeline than the topics.
        """
        progress, reported = self.progress(), self._reported
        self._end_loss(progress, reported)
        if reported is not None and (progress is None or progress.slot_lsn <= reported.before):
            self._note(reported)
        self._server = server = None if self.frontiers is None else self.frontiers.server()
        if server is None:
            return
        if progress is None:
            if server.log_end < frontier:
                raise HistoryUnconfirmed("it is not known yet from which server the topics were written")
            return
        if not progress.system_id:
            # Topics of stream tables: the positions are those of another applier's server.
            self.loss = self._server = None
            return
        if (found := find_loss(server, frontier, progress)) is not None:
            self._note(found)
        if self.loss is None and progress.timeline != server.timeline:
            self._await_consumer(progress, server)

    def hear(self, problem: str, before: Lsn | None) -> None:
        """Take over what the consumer says about published changes that the server lacks; None if it lacks none."""
        is_certain = self.frontiers is None
        self._reported = None if before is None else Loss(problem, before, is_certain=is_certain, is_reported=True)

    def _end_loss(self, progress: Progress | None, reported: Loss | None) -> None:
        if self.loss is None:
            return
        is_repaired = progress is not None and progress.slot_lsn > self.loss.before
        if is_repaired or (self.loss.is_reported and reported is None):
            log.info("the topics have the history of the server", extra={"slot": progress.slot if progress else ""})
            self.loss = None
            self._seen.clear()
            self.on_new_history()

    def check(self, rows: Sequence[StreamTableRow]) -> None:
        """Compare the stored frontiers of all stream tables with the log, and with those that were committed before."""
        if self._server is None or self.frontiers is None or self.loss is not None or self.progress() is None:
            return
        server = self._server
        if any(row.lsn > server.log_end for row in rows):
            # The look was before: PostgreSQL itself chooses the frontier of a query that it runs.
            later = self.frontiers.server()
            if later is None:
                return
            server = later
        found = find_step_back(server, rows, self._seen)
        if found is not None and (any(row.lsn > server.log_end for row in rows) or self.frontiers.are_durable):
            self._note(found)
        self._seen = {row.pgt_id: row.lsn for row in rows if row.lsn}

    def refusal(self) -> ServerRestored | None:
        """Return why no stream table can go on; None also while a record may still arrive that says otherwise."""
        loss = self.loss
        if loss is None or not (loss.is_certain or time.monotonic() - self._noted_at > CONFIRM_S):
            return None
        is_elsewhere = self.frontiers is None
        return ServerRestored(loss.problem, hint=HINT_ELSEWHERE if is_elsewhere else HINT)

    def _note(self, loss: Loss) -> None:
        if self.loss is None:
            log.error("the server lacks published changes", extra={"problem": loss.problem})
            self._noted_at = time.monotonic()
            self.loss = loss
        elif loss.is_certain and not self.loss.is_certain:
            self.loss = loss

    def _await_consumer(self, progress: Progress, server: ServerPosition) -> None:
        if self._woken != server.timeline and self.frontiers is not None:
            # Its next record names the timeline, once it has found that the server continues what was published.
            self.frontiers.wake()
            self._woken = server.timeline
        raise HistoryUnconfirmed(
            f"the server is on timeline {server.timeline}, the topics were written on {progress.timeline}, and "
            "pg-trickle-cdc has not yet found that nothing published is missing",
            hint="is pg-trickle-cdc running? If it refuses this server, run `pg-trickle-cdc resync --restored`",
        )
