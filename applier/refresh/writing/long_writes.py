"""Results whose rows take long to write in; their outcome some ticks later out. They are written into PostgreSQL in
sessions of their own, beside the ticks, so that no other stream table waits.

Rows, frontier and outbox are one transaction, as in a tick. It is committed only if the stream table is still the one
that the rows were computed for: neither altered, nor paused, nor suspended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Self

from applier import metrics
from applier.catalog.stream_tables import lock_in_service
from applier.errors import Superseded
from applier.refresh.computing.worker_pool import WorkerPool
from applier.refresh.method.refresh import RefreshResult
from applier.refresh.writing.result_writer import ResultWriter, WrittenRows
from applier.sinks.postgres.transaction import Cursor
from applier.unexpected import to_trickle_error
from shared_schema.errors import TrickleError

CANCEL_EVERY_S = 0.2
"""A statement that begins just after it was to be interrupted is interrupted by the next attempt."""

OpenWriter = Callable[[Callable[[Cursor], None]], ResultWriter]
"""Opens a writer with a session of its own, which calls the function before it moves a frontier."""


@dataclass(frozen=True)
class LongWrite:
    """A write that has ended. It is a context: the end closes the leases on the rows."""

    result: RefreshResult
    outcome: WrittenRows | TrickleError
    is_given_up: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self.outcome, WrittenRows):
            self.outcome.delta.close()
        self.result.close()


@dataclass
class _Running:
    result: RefreshResult
    is_current: Callable[[], bool]
    future: Future[WrittenRows] = field(init=False)
    writer: ResultWriter | None = None
    is_given_up: bool = False

    def confirm(self, cursor: Cursor) -> None:
        table = self.result.refresh.table
        if self.is_given_up or not self.is_current() or not lock_in_service(cursor, table.id):
            raise Superseded(f"{table} was altered or put out of service while its rows were written")

    def give_up(self) -> None:
        self.is_given_up = True
        if self.writer is not None:
            self.writer.postgres.session.cancel()


@dataclass
class LongWrites:
    """At most one per stream table; `wake` is called whenever one ends. Only the thread of the ticks calls it."""

    workers: WorkerPool
    wake: Callable[[], None]
    open_writer: OpenWriter
    _running: dict[int, _Running] = field(default_factory=dict)

    def start(self, result: RefreshResult, is_current: Callable[[], bool]) -> None:
        """Start to write the rows; `is_current` is asked on the writing thread, before the frontier moves."""
        running = _Running(replace(result, outcome=result.rows.lease()), is_current)
        self._running[result.refresh.table.id] = running
        running.future = self.workers.submit(partial(self._write, running))
        running.future.add_done_callback(lambda _: self.wake())

    def _write(self, running: _Running) -> WrittenRows:
        started = time.monotonic()
        running.writer = self.open_writer(running.confirm)
        try:
            if running.is_given_up:
                raise Superseded("the write was given up before it began")
            written = running.writer.write(running.result)
        finally:
            running.writer.postgres.session.close()
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        return written

    def is_writing(self, table_id: int) -> bool:
        """Whether rows of the stream table are being written, or were written and nobody has taken the outcome."""
        return table_id in self._running

    @property
    def has_any(self) -> bool:
        """Whether rows of any stream table are being written."""
        return bool(self._running)

    @property
    def has_finished(self) -> bool:
        """Whether a write has ended and nobody has taken its outcome."""
        return any(running.future.done() for running in list(self._running.values()))

    def give_up(self, table_id: int) -> None:
        """Interrupt a write; nothing of it is committed, unless it was already."""
        if (running := self._running.get(table_id)) is not None:
            running.give_up()

    def take_finished(self) -> list[LongWrite]:
        """Remove and return the writes that have ended."""
        ended = [table_id for table_id, running in self._running.items() if running.future.done()]
        return [_outcome(self._running.pop(table_id)) for table_id in ended]

    def stop(self) -> list[LongWrite]:
        """Interrupt all writes, wait for them and return them."""
        futures = [running.future for running in self._running.values()]
        while futures and wait_for(futures, 0).not_done:
            for running in self._running.values():
                running.give_up()
            wait_for(futures, CANCEL_EVERY_S)
        return self.take_finished()


def _outcome(running: _Running) -> LongWrite:
    try:
        outcome: WrittenRows | TrickleError = running.future.result()
    except Exception as error:
        outcome = to_trickle_error(running.result.refresh.table, error)
    return LongWrite(running.result, outcome, running.is_given_up)
