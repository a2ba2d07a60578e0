"""An installation at rest, packed and unpacked: the folder of a stopped stack, without ports and without logs."""

from __future__ import annotations

import json
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local import process

INSTALLATIONS = Path(__file__).with_name("installation")
"""One folder per version that made one."""

PARTS = ("postgres", "kafka", "state", "delta")
"""What an operator would move to another machine; settings say where each of them is."""

_LEFT_OUT = re.compile(
    # How the server was started, its statistics and lock: written anew by every start.
    r"postgres/data/(postmaster\.(pid|opts)|pg_stat/.*|pg_stat_tmp/.*|pg_notify/.*|pg_subtrans/.*)"
    # Kafka writes these anew too.
    r"|kafka/\.lock"
)


@dataclass(frozen=True)
class Installation:
    """What one version left behind."""

    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """What `installation.json` says."""
        found: dict[str, Any] = json.loads((self.folder / "installation.json").read_text())
        return found

    def __str__(self) -> str:
        return self.folder.name


def installations() -> list[Installation]:
    """All that are kept, oldest first."""
    return [Installation(folder) for folder in sorted(INSTALLATIONS.iterdir()) if folder.is_dir()]


def pack(stopped: Path, to: Path) -> None:
    """One archive per part of a stopped stack; whose files they were is not kept."""
    for part in PARTS:
        # The databases are copies of each other for the most part: a window over all of them finds that.
        with tarfile.open(to / f"{part}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(stopped / part, arcname=part, filter=_packed)


def _packed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not entry.isdir() and _LEFT_OUT.fullmatch(entry.name):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(installation: Installation, to: Path) -> None:
    """The same stack in a folder of its own; it takes whatever ports are free."""
    for part in PARTS:
        with tarfile.open(installation.folder / f"{part}.tar.xz") as archive:
            archive.extractall(to, filter="tar")
    facts = installation.facts
    process.write_private(to / "postgres.json", json.dumps({"password": facts["postgres"]["password"]}))
    process.write_private(to / "kafka.json", json.dumps({"cluster_id": facts["kafka"]["cluster_id"]}))
    if user := process.unprivileged_user():
        for parent, _folders, files in os.walk(to / "postgres"):
            for path in (parent, *(os.path.join(parent, name) for name in files)):
                os.chown(path, user.uid, user.gid, follow_symlinks=False)
