"""A lock file of pinned jars in, verified local files out; also the one place that looks for Java.

A lock file has one `<sha256>  <group>:<artifact>:<version>` per line. The Ivy that pyspark ships fetches the jars,
without their dependencies (the lock is complete), into a folder per lock file in the user's cache. A jar is moved there
only after its digest matched, so the next run continues an interrupted fetch.

It imports nothing outside the standard library until it has to print something: set-up scripts use it only for Java.

TrickleError
├── JavaMissing       there is no Java, or it is too old
├── JarsUnavailable   the repository cannot be reached or does not have the jars (retryable)
└── JarCorrupt        a lock file is malformed, or a fetched jar is not the locked one
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO
from xml.sax.saxutils import quoteattr

from shared_schema.errors import TrickleError

JAVA_AT_LEAST = 17
"""What Spark 4 and Kafka 4 need."""

STAMP = ".verified"

_LOCK_LINE = re.compile(r"([0-9a-f]{64})  ([\w.-]+):([\w.-]+):([\w.-]+)")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# `ibiblio` without a root is Ivy's name for the central Maven repository. POMs are not read: the lock is complete, and
# they are two thirds of the requests.
_IVY_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>
"""


class JavaMissing(TrickleError):
    """There is no Java on this machine that can run Spark and Kafka."""


class JarsUnavailable(TrickleError):
    """Ivy could not fetch the jars."""

    retryable = True


class JarCorrupt(TrickleError):
    """A lock file is malformed, or a jar is not the locked one."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of a lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the set's folder."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that make up one class path."""

    name: str
    lock: Path

    def read(self) -> tuple[Jar, ...]:
        """Return the locked jars; lines that start with # are comments."""
        jars: list[Jar] = []
        for number, line in enumerate(self.lock.read_text().splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            if not (match := _LOCK_LINE.fullmatch(line)):
                raise JarCorrupt(f"{self.lock.name}, line {number}, is not `<sha256>  <group>:<artifact>:<version>`")
            jars.append(Jar(match[2], match[3], match[4], match[1]))
        if len({jar.file_name for jar in jars}) != len(jars):
            raise JarCorrupt(f"two lines of {self.lock.name} give the same file name")
        return tuple(jars)

    def folder(self, cache: Path) -> Path:
        """Return the folder of its jars; another lock has another folder, so two versions can be in use at once."""
        return cache / "jars" / f"{self.name}-{hashlib.sha256(self.lock.read_bytes()).hexdigest()[:12]}"


SPARK_JARS = JarSet("spark", Path(__file__).with_name("spark.jars.lock"))
"""The jars that pyspark does not ship: Delta, the Kafka source and Avro."""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `PG_TRICKLE_CACHE`, or else the user's cache folder."""
    if chosen := environ.get("PG_TRICKLE_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "pg-trickle"


def find_java() -> Path:
    """Return the java of JAVA_HOME if that is set, else of PATH; raise JavaMissing when it is absent or too old."""
    return _find_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=4)
def _find_java(java_home: str, path: str) -> Path:
    hint = f"install a Java runtime, version {JAVA_AT_LEAST} or 21 (Debian and Ubuntu: openjdk-17-jre-headless)"
    found = shutil.which("java", path=str(Path(java_home) / "bin") if java_home else path)
    if not found:
        where = f"JAVA_HOME ({java_home}) holds no bin/java" if java_home else "there is no java on the PATH"
        raise JavaMissing(f"Java {JAVA_AT_LEAST} or newer is needed and {where}", hint=hint)
    output = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = _JAVA_VERSION.search(output.stderr + output.stdout)
    if output.returncode or not version:
        raise JavaMissing(f"Java {JAVA_AT_LEAST} or newer is needed and {found} does not run", hint=hint)
    if int(version[1]) < JAVA_AT_LEAST:
        raise JavaMissing(f"Java {JAVA_AT_LEAST} or newer is needed and {found} is Java {version[1]}", hint=hint)
    return Path(found)


def ensure(jar_set: JarSet, *, cache: Path | None = None, ivy_settings: Path | None = None) -> list[Path]:
    """Return the set's jars as local files, in the order of the lock; fetch the missing and damaged ones."""
    jars = jar_set.read()
    folder = jar_set.folder(cache or cache_folder())
    if not _find_missing(folder, jars):
        return [folder / jar.file_name for jar in jars]
    if ivy_settings is None and (chosen := os.environ.get("PG_TRICKLE_IVY_SETTINGS")):
        ivy_settings = Path(chosen)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        _acquire(lock, jar_set.name)
        # Another process may have fetched them while this one waited for the lock.
        if missing := _find_missing(folder, jars):
            _fetch(jar_set.name, missing, folder, ivy_settings, lock)
            if missing := _find_missing(folder, jars):
                raise JarsUnavailable(f"Ivy did not bring {missing[0]}", hint="try again")
    return [folder / jar.file_name for jar in jars]


def retrieve(
    coordinates: Sequence[str], into: Path, *, settings: Path | None, transitive: bool, keep_open: IO[str]
) -> Iterator[str]:
    """Run Ivy to put `<group>__<artifact>__<version>.jar` files into a folder; yield each line that Ivy prints.

    Ivy inherits `keep_open`, so that a lock on it lives as long as Ivy does, even when this process is killed.
    """
    into.mkdir(parents=True, exist_ok=True)
    ivy_file = into / "ivy.xml"
    ivy_file.write_text(_ivy_module(coordinates, transitive))
    command = [str(find_java()), f"-Divy.default.ivy.user.dir={into}", "-jar", str(_ivy_jar())]
    if settings:
        command += ["-settings", str(settings)]
    command += ["-ivy", str(ivy_file), "-cache", str(into / "cache"), "-types", "jar", "bundle"]
    command += ["-retrieve", str(into / "[organisation]__[artifact]__[revision].[ext]")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=[keep_open.fileno()]
    ) as ivy:
        if ivy.stdout is None:  # cannot happen: it is a pipe
            return
        yield from ivy.stdout
    if ivy.returncode:
        raise JarsUnavailable(
            "Ivy could not fetch jars from the Maven repository",
            hint="check the network; PG_TRICKLE_IVY_SETTINGS may name an Ivy settings file for a mirror",
        )


def sha256_of(path: Path) -> str:
    """Return the hexadecimal digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ivy_module(coordinates: Sequence[str], transitive: bool) -> str:
    lines = ['<ivy-module version="2.0"><info organisation="pg-trickle" module="jars"/>']
    lines += ['<configurations><conf name="default"/></configurations><dependencies>']
    for coordinate in coordinates:
        group, artifact, version = map(quoteattr, coordinate.split(":"))
        flags = f'conf="default->default" transitive="{str(transitive).lower()}"'
        lines.append(f"<dependency org={group} name={artifact} rev={version} {flags}/>")
    return "\n".join([*lines, "</dependencies></ivy-module>\n"])


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise JarsUnavailable("pyspark is not installed here, and Ivy is part of it", hint="install the project first")
    return found[-1]


def _acquire(lock: IO[str], name: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with _progress(f"jars for {name}: waiting for another process that fetches them"):
            fcntl.flock(lock, fcntl.LOCK_EX)


def _fetch(name: str, jars: Sequence[Jar], folder: Path, settings: Path | None, lock: IO[str]) -> None:
    # Ivy's fetched files stay here until the whole set is verified: the next attempt continues.
    work = folder.with_suffix(".fetch")
    work.mkdir(exist_ok=True)
    if settings is None:
        settings = work / "ivysettings.xml"
        settings.write_text(_IVY_SETTINGS)
    for _attempt in range(2):
        _run_ivy(name, jars, work, settings, lock)
        if not (jars := [jar for jar in jars if not _admit(jar, work, folder)]):
            shutil.rmtree(work, ignore_errors=True)
            return
        # Ivy's own copy is wrong, so it must be fetched again.
        shutil.rmtree(work / "cache", ignore_errors=True)
    raise JarCorrupt(
        f"{jars[0]} does not have the locked SHA-256",
        hint="the repository or a proxy serves another file; it was deleted here",
    )


def _run_ivy(name: str, jars: Sequence[Jar], work: Path, settings: Path, lock: IO[str]) -> None:
    with _progress(f"jars for {name}: fetching {len(jars)} by Ivy") as report, open(work / "ivy.log", "w") as log:
        done = 0
        for line in retrieve(list(map(str, jars)), work, settings=settings, transitive=False, keep_open=lock):
            log.write(line)
            if "[SUCCESSFUL" in line:
                done += 1
                report(f"jars for {name}: {done} of {len(jars)}")


def _admit(jar: Jar, work: Path, folder: Path) -> bool:
    fetched = work / f"{jar.group}__{jar.artifact}__{jar.version}.jar"
    if not fetched.exists():
        return False
    if sha256_of(fetched) != jar.sha256:
        fetched.unlink()
        return False
    fetched.replace(folder / jar.file_name)
    return True


def _find_missing(folder: Path, jars: Sequence[Jar]) -> list[Jar]:
    """Return the missing and damaged jars; when there are none, write a stamp file.

    The stamp holds size and times of each file when its digest matched. The change time is one of them, which no
    program can set, so a file that is overwritten later is hashed again.
    """
    stamp = folder / STAMP
    try:
        seen: dict[str, list[int]] = json.loads(stamp.read_text())
    except (OSError, ValueError):
        seen = {}
    now = {jar.file_name: _fingerprint(folder / jar.file_name) for jar in jars}
    unsure = [jar for jar in jars if now[jar.file_name] is None or now[jar.file_name] != seen.get(jar.file_name)]
    if not unsure:
        return []
    missing = [jar for jar in unsure if now[jar.file_name] is None or sha256_of(folder / jar.file_name) != jar.sha256]
    if not missing:
        _write_stamp(stamp, json.dumps(now))
    return missing


def _fingerprint(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _write_stamp(stamp: Path, text: str) -> None:
    try:
        with tempfile.NamedTemporaryFile("w", dir=stamp.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, stamp)
    except OSError:
        # A read-only shared cache (an image layer) works too, but each start hashes the jars.
        return


@contextmanager
def _progress(text: str) -> Iterator[Callable[[str], None]]:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if console.is_terminal:
        with console.status(text) as status:
            yield status.update
    else:
        console.print(text)
        yield lambda _: None


def run_jars(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m applier.spark.jars`: fetch the Spark jars; with `--java` only check that Java is installed."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        find_java()
        if "--java" not in given:
            ensure(SPARK_JARS)
    except TrickleError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_jars())
