"""What a checkpoint takes of a state: rows that nothing changes any more, though the state goes on changing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from applier.state.stored import StoredFile


class Storable:
    """A state that may be stored; whoever changes its rows counts `version` up."""

    version: int = 0
    stored_rows: tuple[int, tuple[StoredFile, ...]] | None = None
    """The version whose rows are in files, and the files."""


class HeldFrame:
    """A frame in Spark's memory, as long as somebody holds it: the state that it belongs to, and who writes it."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.rows = self.frame.count()
        self.files: tuple[StoredFile, ...] | None = None
        """The files that hold exactly these rows, if there are any."""
        self._holders = 1
        self._lock = threading.Lock()

    def hold(self) -> HeldFrame:
        """Hold the frame once more; each holder calls `release`."""
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        """Hold the frame no longer; the last one frees the memory."""
        with self._lock:
            self._holders -= 1
            is_last = not self._holders
        if is_last:
            self.frame.unpersist()


@dataclass(frozen=True)
class ExportedRows:
    """The rows of one node's state at one moment. `rows` converts them, which takes time: not under a lock."""

    kind: str
    schema: StructType
    rows: Callable[[], pa.Table] | None
    """None where the base holds everything."""
    base: HeldFrame | None = None
    """Held once for the export."""
    extra: Mapping[str, int] = field(default_factory=dict)
