"""A wall clock that jumps, for the programs alone: the machine's is not ours to turn."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """Compiled once per run; `jump` is seen at once by every program that was started with `environment`."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock"
        self._library = folder / "clock.so"
        self.jump(0)
        command: list[str | Path] = ["gcc", "-shared", "-fPIC", "-O2", "-o", self._library, SOURCE, "-ldl"]
        subprocess.run(command, check=True, capture_output=True)

    @staticmethod
    def possible() -> bool:
        """Whether there is a compiler."""
        return shutil.which("gcc") is not None

    @property
    def environment(self) -> dict[str, str]:
        """For the programs."""
        return {"LD_PRELOAD": str(self._library), "PG_TRICKLE_TEST_CLOCK": str(self._offset)}

    def jump(self, seconds: int) -> None:
        """So far from the true time, from now on."""
        if not self._offset.exists():
            self._offset.write_bytes(struct.pack("<q", 0))
        with open(self._offset, "r+b") as file:
            file.write(struct.pack("<q", seconds))
