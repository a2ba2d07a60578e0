"""Takes the encoded rows of a table while it is copied, holds them on local disk, and returns them in order."""

from __future__ import annotations

from collections.abc import Iterator

from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.errors import CaptureFailed
from cdc_consumer.ring.segments import Segments
from shared_schema.lsn import Lsn

CHUNK_BYTES = 256 * 1024
"""Bytes held in memory before they go to disk."""

_KEYED, _KEYLESS = b"k", b"n"


class Spool:
    """The rows of one relation in commits from `since` on."""

    def __init__(self, since: Lsn, segments: Segments) -> None:
        self.since = since
        self._segments = segments
        self._chunk: list[bytes] = []
        self._chunk_bytes = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._segments.bytes

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

    def drain(self) -> Iterator[list[EncodedRow]]:
        """Remove all rows and yield them in chunks, in the order in which they were written."""
        while chunk := self._segments.take():
            yield _rows(chunk)
        chunk, self._chunk, self._chunk_bytes = self._chunk, [], 0
        if chunk:
            yield _rows(chunk)

    def close(self) -> None:
        """Drop everything."""
        self._segments.close()
        self._chunk, self._chunk_bytes = [], 0


def _rows(chunk: list[bytes]) -> list[EncodedRow]:
    pairs = zip(chunk[::2], chunk[1::2], strict=True)
    return [(key[1:] if key[:1] == _KEYED else None, value) for key, value in pairs]
