"""Folders for files that nobody needs after this process. Those of a process that was killed go with the next start."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

ALIVE = ".alive"
"""A file in the folder that its owner holds locked: the kernel lets go of it however the owner ends."""


class Scratch:
    """A new folder below `parent`; the folders of the same name whose owners are dead are removed first."""

    def __init__(self, parent: Path, name: str) -> None:
        prefix = f"pg-trickle-{name}-"
        parent.mkdir(parents=True, exist_ok=True)
        for other in parent.glob(f"{prefix}*"):
            with suppress(OSError):
                _remove_if_left(other)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._alive = open(self.path / ALIVE, "w")  # noqa: SIM115  held until it is removed
        fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """With everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._alive.close()


def _remove_if_left(folder: Path) -> None:
    # One without the file is being made at this moment.
    with open(folder / ALIVE, "r+") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
