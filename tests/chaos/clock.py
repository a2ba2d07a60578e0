"""A wall clock for the stack's processes that can be set while they run; the machine's own clock does not change."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

COMPILER = shutil.which("cc")


@dataclass
class Clock:
    """A clock that is some seconds ahead of the machine's clock, or behind it."""

    folder: Path
    """Every process that uses the clock must be able to enter it."""
    ahead_s: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process must be started with."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_AHEAD_FILE": str(self._file)} if COMPILER else {}

    @property
    def _library(self) -> Path:
        return self.folder / "clock.so"

    @property
    def _file(self) -> Path:
        return self.folder / "clock.ahead"

    def build(self) -> None:
        """Compile the preloaded library."""
        source = Path(__file__).with_name("clock.c")
        command = [str(COMPILER), "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Move the clock by some seconds from now on."""
        self.ahead_s += seconds
        # Write in place: the processes have the file mapped.
        with open(self._file, "r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", self.ahead_s))
        self._file.chmod(0o644)
