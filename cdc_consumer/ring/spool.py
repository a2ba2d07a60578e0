"""Takes the encoded rows of a table while it is copied, holds them on local disk, and returns them by source commit.

A spool is opened before the export of its table begins, when the point of the copy is not known yet. So it holds rows
that the snapshot contains too. They are dropped when the spool is drained.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.errors import CaptureFailed
from cdc_consumer.ring.segments import Segments
from shared_schema.lsn import ORIGIN, Lsn

CHUNK_BYTES = 256 * 1024
"""Bytes held in memory before they go to disk."""

_KEYED, _KEYLESS, _COMMIT = b"k", b"n", b"c"


class Spool:
    """The rows of one relation in commits from `since` on."""

    def __init__(self, since: Lsn, segments: Segments) -> None:
        self.since = since
        self.forgotten = ORIGIN
        """The last commit of which rows were dropped because there was no room."""
        self._commit = ORIGIN
        self._segments = segments
        self._chunk: list[bytes] = []
        self._chunk_bytes = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._segments.bytes

    def begin_at(self, since: Lsn) -> None:
        """Drop the rows of commits before `since`: the snapshot of the table contains them."""
        self.since = since

    def begin_commit(self, commit_lsn: Lsn) -> None:
        """The rows that follow belong to this commit."""
        if commit_lsn != self._commit:
            self._commit = commit_lsn
            self._chunk += (_COMMIT + commit_lsn.value.to_bytes(8, "big"), b"")

    def write(self, key: bytes | None, value: bytes) -> None:
        """Store a row."""
        self._chunk += (_KEYLESS if key is None else _KEYED + key, value)
        self._chunk_bytes += len(value)
        if self._chunk_bytes >= CHUNK_BYTES:
            try:
                self._segments.append(self._chunk)
            except OSError as error:
                raise CaptureFailed(
                    f"the changes of a table that is being copied cannot be written to disk: {error.strerror}",
                    hint="check the disk of PG_TRICKLE_RING_SPILL_FOLDER; the copy is started again automatically",
                ) from error
            self._chunk, self._chunk_bytes = [], 0

    def drain(self) -> Iterator[tuple[Lsn, list[EncodedRow]]]:
        """Remove all rows; yield those of commits from `since` on with their commit, in the order of writing."""
        commit, self._commit = ORIGIN, ORIGIN
        for chunk in self._take_chunks():
            rows: list[EncodedRow] = []
            for key, value in zip(chunk[::2], chunk[1::2], strict=True):
                if key[:1] == _COMMIT:
                    if rows:
                        yield commit, rows
                    commit, rows = Lsn(int.from_bytes(key[1:], "big")), []
                elif commit >= self.since:
                    rows.append((key[1:] if key[:1] == _KEYED else None, value))
            if rows:
                yield commit, rows

    def forget(self) -> None:
        """Drop all rows, because there are too many. A snapshot that contains them all makes up for it."""
        # A commit may be forgotten in several steps.
        self.forgotten, self._commit = max(self.forgotten, self._commit), ORIGIN
        self.close()

    def close(self) -> None:
        """Drop everything."""
        self._segments.close()
        self._chunk, self._chunk_bytes = [], 0

    def _take_chunks(self) -> Iterator[list[bytes]]:
        while chunk := self._segments.take():
            yield chunk
        chunk, self._chunk, self._chunk_bytes = self._chunk, [], 0
        yield chunk
