"""Audits the installed packages, without network: all are locked by digest, none is known to be vulnerable.

Comes in: the lock files and `advisories.txt`. Comes out: a list of sentences, empty when all is well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[2]
PYTHON_LOCKS = ("requirements.lock", "requirements-dev.lock")
JAR_LOCKS = ("applier/*.jars.lock", "deploy/local/*.jars.lock")

_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_JAR = re.compile(r"^([0-9a-f]{64})  ([^\s:]+):([^\s:]+):([^\s:]+)")
_JAR_FILE = re.compile(r"^(.+?)-(\d[\w.]*?)(?:\.Final|-jre)?\.jar$")

Versions = dict[str, set[str]]


@dataclass(frozen=True)
class Advisory:
    """Versions of a package before `fixed_in` are known to be vulnerable."""

    package: str
    fixed_in: Version
    known_as: str


def audit(root: Path = ROOT) -> list[str]:
    """Return every reason not to trust the packages of this checkout."""
    advisories = _advisories((Path(__file__).with_name("advisories.txt")).read_text())
    problems: list[str] = []
    for name in PYTHON_LOCKS:
        locked, wrong = read_lock((root / name).read_text())
        problems += [f"{name}: {problem}" for problem in wrong]
        problems += [f"{name}: {problem}" for problem in _known(locked, advisories) + _drifted(locked)]
    jars = _spark_jars()
    for path in sorted(found for pattern in JAR_LOCKS for found in root.glob(pattern)):
        read, wrong = read_jar_lock(path.read_text())
        for name, versions in read.items():
            jars.setdefault(name, set()).update(versions)
        problems += [f"{path.name}: {problem}" for problem in wrong]
    return problems + [f"jar {problem}" for problem in _known(jars, advisories)]


def read_lock(text: str) -> tuple[Versions, list[str]]:
    """Read a pip lock file; return versions by name (several if Python matters), and entries without a digest."""
    locked: Versions = {}
    problems: list[str] = []
    logical = re.sub(r"\\\n", " ", text)
    for line in logical.splitlines():
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        if (pinned := _PINNED.match(entry)) is None:
            problems.append(f"{entry.split()[0]} is not pinned to one version")
        elif "--hash=sha256:" not in entry:
            problems.append(f"{pinned[1]} has no digest")
        else:
            locked.setdefault(pinned[1].lower().replace("_", "-"), set()).add(pinned[2])
    return locked, problems


def read_jar_lock(text: str) -> tuple[Versions, list[str]]:
    """Read a jar lock file; return versions by artifact, and malformed lines."""
    found: Versions = {}
    problems: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if (jar := _JAR.match(line)) is None:
            problems.append(f"{line[:80]!r} is no digest and jar")
        else:
            found.setdefault(jar[3], set()).add(jar[4])
    return found, problems


def _advisories(text: str) -> list[Advisory]:
    lines = [line.split(maxsplit=3) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Advisory(package, Version(fixed_in), known_as) for package, _, fixed_in, known_as in lines]


def _known(locked: Versions, advisories: list[Advisory]) -> list[str]:
    return [
        f"{a.package} {found} is vulnerable ({a.known_as}); fixed in {a.fixed_in}"
        for a in advisories
        for found in sorted(locked.get(a.package, ()))
        if _parsed(found) < a.fixed_in
    ]


def _parsed(text: str) -> Version:
    try:
        return Version(text.removesuffix(".Final").removesuffix("-jre"))
    except InvalidVersion:
        return Version("0")


def _drifted(locked: Versions) -> list[str]:
    """Return packages whose installed version differs from the lock; missing ones are for another platform."""
    problems = []
    for name, wanted in locked.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if installed not in wanted:
            problems.append(f"{name} {installed} is installed instead of {' or '.join(sorted(wanted))}")
    return problems


def _spark_jars() -> Versions:
    """Return the jars inside the pyspark package: locked with it, but with their own versions."""
    import pyspark

    files = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return {found[1]: {found[2]} for file in files if (found := _JAR_FILE.match(file.name))}
