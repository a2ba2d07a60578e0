"""One replication connection: runs commands, then receives frames and sends status updates.

psycopg has no replication interface, so this module calls libpq through `psycopg.pq`. No call blocks for longer than
its timeout: a blocking read inside libpq would also hold Python's interpreter lock.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import psycopg
from psycopg import pq

from cdc_consumer.errors import ConnectionLost, SourceError, StopRequested
from cdc_consumer.wal import commands
from cdc_consumer.wal.catalog import APPLICATION_NAME
from cdc_consumer.wal.diagnosis import diagnose_exception, diagnose_postgres
from cdc_consumer.wal.frames import encode_status
from shared_schema.connections import connect_with_options
from shared_schema.lsn import Lsn

SEND_TIMEOUT_S = 10.0
"""A status update has 34 bytes; a server that does not accept it for this long is unreachable."""

RECEIVE_MAX_BYTES = 8 * 1024 * 1024
"""Memory limit of one receive; a single message may be larger."""

UNCHECKED = b"SQL_ASCII"
"""The encoding of databases whose text may be any bytes."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Identifies the server, and says where its log ends."""

    system_id: str
    timeline: int
    position: Lsn


class ReplicationSession:
    """A walsender connection."""

    def __init__(
        self,
        database_url: str,
        interrupted: Callable[[], bool] = lambda: False,
        *,
        sender_timeout_s: int | None = None,
    ) -> None:
        self._interrupted = interrupted
        self._lock = threading.Lock()
        """One thread receives frames, another one may send status updates; libpq allows one thread at a time."""
        more = {} if sender_timeout_s is None else {"wal_sender_timeout": f"{sender_timeout_s}s"}
        try:
            # psycopg's own connect is used because it waits without the interpreter lock and tries every address.
            self._owner = connect_with_options(
                database_url, application_name=APPLICATION_NAME, replication=True, more=more
            )
            if self._owner.pgconn.parameter_status(b"server_encoding") == UNCHECKED:
                # Otherwise the server ends the stream at the first value that is not UTF-8. So it comes as it is, and
                # the table that has it is known.
                self._owner.execute("SET client_encoding = 'SQL_ASCII'")
        except psycopg.Error as error:
            raise diagnose_exception(error) from error
        self._conn = self._owner.pgconn
        self._conn.nonblocking = 1
        self._readable = select.poll()
        self._readable.register(self._conn.socket, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(self._conn.socket, select.POLLOUT)

    def __enter__(self) -> ReplicationSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server_version(self) -> int:
        """The server's version number, for example 160014 for 16.14."""
        return self._conn.server_version

    def command(self, text: str) -> tuple[str | None, ...]:
        """Run one replication command and return its first row."""
        result = self._run(text)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._failure(result)
        values = (result.get_value(0, column) for column in range(result.nfields))
        return tuple(None if value is None else value.decode() for value in values)

    def identify(self) -> ServerIdentity:
        """Run IDENTIFY_SYSTEM."""
        system_id, timeline, position, _ = self.command("IDENTIFY_SYSTEM")
        return ServerIdentity(str(system_id), int(timeline or 0), Lsn.parse(str(position)))

    def branches(self, timeline: int) -> dict[int, Lsn]:
        """Run TIMELINE_HISTORY -> the earlier timelines in the history of this one, and where the server left each."""
        if timeline == 1:
            return {}
        content = self.command(f"TIMELINE_HISTORY {timeline}")[1] or ""
        lines = [line.split("\t") for line in content.splitlines() if line.strip() and not line.startswith("#")]
        return {int(fields[0]): Lsn.parse(fields[1].strip()) for fields in lines if len(fields) >= 2}

    def create_slot(self, name: str, *, temporary: bool, export: bool) -> tuple[Lsn, str]:
        """Create a pgoutput slot -> (consistent point, name of the exported snapshot or '').

        Waits until every write transaction that is running now has ended. The snapshot exists until the next command of
        this session.
        """
        row = self.command(commands.create_slot(self.server_version, name, temporary=temporary, export=export))
        return Lsn.parse(str(row[1])), row[2] or ""

    def start(self, slot: str, at: Lsn, publications: tuple[str, ...]) -> None:
        """Run START_REPLICATION; from now on only receive and send_status may be called."""
        result = self._run(commands.start_replication(slot, at, publications))
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._failure(result)

    def receive(self, limit: int, timeout_s: float) -> list[bytes]:
        """Return up to `limit` frames in order; waits at most `timeout_s` for the first one, never for further ones."""
        frames = self._take(limit)
        if not frames and timeout_s > 0 and self._readable.poll(int(timeout_s * 1000)):
            frames = self._take(limit)
        return frames

    def _take(self, limit: int) -> list[bytes]:
        frames: list[bytes] = []
        room, add, next_frame = RECEIVE_MAX_BYTES, frames.append, self._conn.get_copy_data
        try:
            with self._lock:
                while len(frames) < limit and room > 0:
                    size, data = next_frame(1)
                    if size > 0:
                        room -= size
                        add(bytes(data))
                    elif size == 0:
                        if not self._readable.poll(0):
                            break
                        self._conn.consume_input()
                    else:
                        raise self._failure(self._conn.get_result())
        except psycopg.Error as error:
            raise diagnose_exception(error) from error
        return frames

    def send_status(self, written: Lsn, flushed: Lsn) -> None:
        """Send a status update: what was received, and what the server may discard. Every thread may call this."""
        try:
            with self._lock:
                while self._conn.put_copy_data(encode_status(written, flushed, time.time_ns() // 1000)) == 0:
                    self._wait_writable()
                self._flush()
        except psycopg.Error as error:
            raise diagnose_exception(error) from error

    def close(self) -> None:
        """End the copy and close the connection; the server frees the slot immediately."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        try:
            if self._conn.transaction_status == pq.TransactionStatus.ACTIVE:
                self._conn.put_copy_end()
                self._conn.flush()
        except psycopg.Error:
            # The connection may be broken, which may be the reason for closing it.
            pass
        self._owner.close()

    def _run(self, text: str) -> pq.abc.PGresult:
        """Send a command and wait for its result; a stop request cancels it."""
        try:
            self._conn.send_query(text.encode())
            self._flush()
            while self._conn.is_busy():
                self._readable.poll(100)
                self._conn.consume_input()
                if self._interrupted():
                    self._conn.get_cancel().cancel()
                    raise StopRequested
            result = self._conn.get_result()
            if result is None:
                raise diagnose_postgres("", self._conn.get_error_message())
            # The connection can be used again only after the command's last result was read.
            while result.status != pq.ExecStatus.COPY_BOTH and self._conn.get_result() is not None:
                pass
        except psycopg.Error as error:
            raise diagnose_exception(error) from error
        return result

    def _flush(self) -> None:
        while self._conn.flush() == 1:
            self._wait_writable()

    def _wait_writable(self) -> None:
        if not self._writable.poll(int(SEND_TIMEOUT_S * 1000)):
            raise ConnectionLost(
                f"PostgreSQL accepted no data for {SEND_TIMEOUT_S:.0f} s", hint="check the network connection"
            )

    def _failure(self, result: pq.abc.PGresult | None) -> SourceError:
        if result is None:
            return diagnose_postgres("", self._conn.get_error_message())
        state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        if not state and not primary:
            return diagnose_postgres("", "the server ended the stream")
        return diagnose_postgres(state.decode(), primary.decode(errors="replace"))
