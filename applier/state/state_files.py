"""Writes and reads the files of states: Arrow for what the driver holds, Parquet for what Spark holds.

A file is written once, under a name of its own, and counts only when a manifest names it with its digest. So a crash
leaves files that nothing names, and a damaged one is noticed before a row of it is used.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from applier.state.stored import StoredFile

STATE_FILES_KEPT_S = 24 * 3600.0
"""How long files stay that another process wrote and that no manifest names."""

_BLOCK = 1 << 20


class StateFiles:
    """The files of the states below one local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        """Names in the folder that this process has written, or read in a manifest."""

    @classmethod
    def below(cls, root: str) -> StateFiles | None:
        """Return the files below the folder of the traces; None where that is not on a local disk."""
        return None if "://" in root else cls(Path(root).resolve() / "states")

    def write_rows(self, table_id: int, rows: pa.Table) -> StoredFile:
        """Write rows of the driver, in exactly their Arrow types."""
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(rows)
        content = buffer.getvalue()
        path = self._new(f"{table_id}-{uuid4().hex}.arrow")
        path.write_bytes(content)
        return StoredFile(path.name, len(content), hashlib.sha256(content).hexdigest())

    def write_frame(self, table_id: int, frame: DataFrame) -> tuple[StoredFile, ...]:
        """Write the rows of a frame, by Spark."""
        path = self._new(f"{table_id}-{uuid4().hex}.parquet")
        frame.write.parquet(str(path))
        parts = sorted(path.glob("part-*"))
        return tuple(StoredFile(str(p.relative_to(self._folder)), p.stat().st_size, _digest(p)) for p in parts)

    def _new(self, name: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known.add(name)
        return self._folder / name

    def read_rows(self, file: StoredFile) -> pa.Table:
        """Return the rows of an Arrow file; raise an OSError when it is not as it was written."""
        return pa.ipc.open_file(pa.BufferReader(self._checked(file).read_bytes())).read_all()

    def read_frame(self, spark: SparkSession, files: Collection[StoredFile], schema: StructType) -> DataFrame:
        """Return a frame over Parquet files; raise an OSError when they are not as they were written."""
        paths = [str(self._checked(file)) for file in files]
        return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)

    def _checked(self, file: StoredFile) -> Path:
        path = self._folder / file.path
        if path.stat().st_size != file.bytes or _digest(path) != file.sha256:
            raise OSError(f"{file.path} is not as it was written")
        return path

    def know(self, files: Iterable[StoredFile]) -> None:
        """Note files that a manifest names, so that they are deleted when none does."""
        self._known |= {_name(file) for file in files}

    def delete_others(self, named: Iterable[StoredFile]) -> None:
        """Delete the known files that are not among those that the last manifest names, and others that are old."""
        kept = {_name(file) for file in named}
        for path in list(self._folder.iterdir()) if self._folder.exists() else []:
            is_old = path.name in self._known or time.time() - path.stat().st_mtime > STATE_FILES_KEPT_S
            if path.name not in kept and is_old:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                self._known.discard(path.name)


def _name(file: StoredFile) -> str:
    """Return the name in the folder: that of the file, or of the folder with all parts."""
    return Path(file.path).parts[0]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
