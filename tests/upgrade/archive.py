"""Packs the folder of a stopped stack into archives, without ports and logs, and unpacks them into a new folder."""

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
"""Contains one folder per version that has a stored installation."""

PARTS = ("postgres", "kafka", "state", "delta")
"""The parts that an operator would move to another machine; a setting names the folder of each."""

_EXCLUDED = re.compile(
    # How the server was started, its statistics and its lock: every start writes them again.
    r"postgres/data/(postmaster\.(pid|opts)|pg_stat/.*|pg_stat_tmp/.*|pg_notify/.*|pg_subtrans/.*)"
    # Kafka also writes this file again at every start.
    r"|kafka/\.lock"
)


@dataclass(frozen=True)
class Installation:
    """The stored installation of one version."""

    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """Return the content of `installation.json`."""
        found: dict[str, Any] = json.loads((self.folder / "installation.json").read_text())
        return found

    def __str__(self) -> str:
        return self.folder.name


def installations() -> list[Installation]:
    """Return all stored installations, oldest first."""
    return [Installation(folder) for folder in sorted(INSTALLATIONS.iterdir()) if folder.is_dir()]


def pack(stopped: Path, to: Path) -> None:
    """Write one archive per part of a stopped stack; the owners of the files are not stored."""
    for part in PARTS:
        # The databases are mostly copies of each other: the dictionary of preset 9 is large enough to find that.
        with tarfile.open(to / f"{part}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(stopped / part, arcname=part, filter=_anonymize_entry)


def _anonymize_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not entry.isdir() and _EXCLUDED.fullmatch(entry.name):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(installation: Installation, to: Path) -> None:
    """Unpack an installation into a folder of its own; its stack will use free ports."""
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
