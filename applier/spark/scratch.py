"""A parent folder in, a new folder for this process out. The next start removes the folders of killed processes."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

ALIVE = ".alive"
"""A file in the folder that its process holds locked: the kernel releases the lock however the process ends."""


class Scratch:
    """A new folder below `parent`; first removes the folders of the same name whose processes have ended."""

    def __init__(self, parent: Path, name: str) -> None:
        prefix = f"pg-trickle-{name}-"
        parent.mkdir(parents=True, exist_ok=True)
        for other in parent.glob(f"{prefix}*"):
            with suppress(OSError):
                _remove_if_abandoned(other)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._alive = open(self.path / ALIVE, "w")  # noqa: SIM115  held until it is removed
        fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._alive.close()


def _remove_if_abandoned(folder: Path) -> None:
    # A folder without the file is being created at this moment.
    with open(folder / ALIVE, "r+") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
