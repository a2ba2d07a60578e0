"""Takes the chunks of a table, returns batches of COPY lines, read by several connections inside one snapshot.

Each connection has a thread that only waits and collects lines. All lines come out of one bounded queue; there is no
order between chunks. This module does not look into a line.
"""

from __future__ import annotations

import queue
import select
import threading
from collections.abc import Callable, Iterator, Sequence

import psycopg
from psycopg import pq

from cdc_consumer.errors import SourceError
from cdc_consumer.snapshot.chunks import Chunk
from cdc_consumer.wal.catalog import Connection
from cdc_consumer.wal.diagnosis import diagnose_exception, diagnose_postgres

Lines = list[bytes]

BATCH_ROWS, BATCH_BYTES = 1_000, 256 * 1024
"""Large enough that the queue costs almost nothing, small enough that its memory does not matter."""

BATCHES_AHEAD = 4
"""Batches per connection that may wait in the queue."""

TAKE_S = 0.2
"""How long a thread waits for room in the queue before it checks whether it must stop."""


class CopyReaders:
    """Reads chunks on one thread per connection and queues their lines in batches."""

    def __init__(self, readers: Sequence[Connection], chunks: Sequence[Chunk]) -> None:
        self._stop = threading.Event()
        self._batches: queue.Queue[tuple[Lines, int | None] | BaseException] = queue.Queue(BATCHES_AHEAD * len(readers))
        self._chunks: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        for chunk in chunks:
            self._chunks.put(chunk)
        self._left = len(chunks)
        self._threads = [threading.Thread(target=self._work, args=(r,), name="copy", daemon=True) for r in readers]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        """Whether every line was taken."""
        return not self._left

    def take(self, timeout_s: float) -> tuple[Lines, int] | None:
        """Return a batch of lines and the number of pages that it completes; None if none arrives in time."""
        try:
            batch = self._batches.get(timeout=timeout_s) if timeout_s else self._batches.get_nowait()
        except queue.Empty:
            return None
        if isinstance(batch, BaseException):
            raise batch
        lines, pages = batch
        if pages is not None:
            self._left -= 1
        return lines, pages or 0

    def close(self) -> None:
        """Stop the threads; lines that were not taken are dropped."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, reader: Connection) -> None:
        try:
            while not self._stop.is_set():
                chunk = self._chunks.get_nowait()
                for lines in read_copy_lines(reader, chunk.query, self._stop.is_set):
                    self._hand_over((lines, None))
                self._hand_over(([], chunk.pages))
        except queue.Empty:
            return
        except BaseException as error:
            self._hand_over(error)

    def _hand_over(self, batch: tuple[Lines, int | None] | BaseException) -> None:
        while not self._stop.is_set():
            try:
                self._batches.put(batch, timeout=TAKE_S)
            except queue.Full:
                continue
            return


def read_copy_lines(reader: Connection, query: str, stopped: Callable[[], bool]) -> Iterator[Lines]:
    """Yield the lines of one COPY TO STDOUT in batches. Uses libpq directly: psycopg's loop per row costs too much."""
    conn = reader.pgconn
    readable = select.poll()
    readable.register(conn.socket, select.POLLIN)
    try:
        _begin(conn, readable, query)
        lines, room = Lines(), BATCH_BYTES
        while not stopped():
            size, data = conn.get_copy_data(1)
            if size > 0:
                lines.append(bytes(data))
                room -= size
                if room < 0 or len(lines) >= BATCH_ROWS:
                    yield lines
                    lines, room = [], BATCH_BYTES
            elif size == 0:
                if readable.poll(1000):
                    conn.consume_input()
            else:
                break
        else:
            return
        _finish(conn)
        if lines:
            yield lines
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def _begin(conn: pq.abc.PGconn, readable: select.poll, query: str) -> None:
    conn.nonblocking = 1
    conn.send_query(query.encode())
    while conn.flush():
        pass
    while conn.is_busy():
        if readable.poll(1000):
            conn.consume_input()
    result = conn.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_OUT:
        raise _failure(conn, result)


def _finish(conn: pq.abc.PGconn) -> None:
    """Read the command's result after its last line: an error may come there too."""
    while (result := conn.get_result()) is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise _failure(conn, result)


def _failure(conn: pq.abc.PGconn, result: pq.abc.PGresult | None) -> SourceError:
    if result is None:
        return diagnose_postgres("", conn.get_error_message())
    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    return diagnose_postgres(state.decode(), primary.decode(errors="replace"))
