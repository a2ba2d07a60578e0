"""A class path in; the JVM options that make or use an archive of its loaded classes (class data sharing) out.

Most of the time of a start is loading some twenty thousand classes. `pg-trickle-applier prepare` makes the archive;
without one, or with one of another Java or of other jars, a JVM starts as it would without an archive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from applier.spark.jars import cache_folder, find_java
from applier.spark.java_functions import spark_jars_folder

CONTENT = b"2"
"""Another one whenever other classes are archived: then the archive is made again."""


def archive_path(class_path: Sequence[Path], *, spark: Path | None = None, cache: Path | None = None) -> Path:
    """Return the path of the archive for such a JVM, also when it does not exist; `spark` is Spark's jar folder."""
    java = find_java().resolve()
    release = java.parent.parent / "release"
    version = release.read_bytes() if release.exists() else b""
    jars = (*class_path, *sorted((spark or spark_jars_folder()).glob("*.jar")))
    digest = hashlib.sha256("\n".join((str(java), *map(_jar_fingerprint, jars))).encode() + version)
    digest.update(CONTENT)
    return (cache or cache_folder()) / "jars" / f"classes-{digest.hexdigest()[:12]}.jsa"


def _jar_fingerprint(jar: Path) -> str:
    """Return what a JVM checks of a jar: it ignores an archive when a jar was moved, changed or only written again."""
    stat = jar.stat()
    return f"{jar} {stat.st_size} {stat.st_mtime_ns}"


def use_archive(archive: Path) -> str:
    """Return the JVM options to use the archive, if it exists. The JVM must have the archive's class path."""
    # Without messages on the console: a JVM ignores an archive that does not match.
    return f'-XX:SharedArchiveFile="{archive}" -Xlog:cds*=off' if archive.exists() else ""


def make_at_exit(archive: Path) -> str:
    """Return the JVM options to write the archive when the JVM exits."""
    return f'-XX:ArchiveClassesAtExit="{archive}" -Xlog:cds*=off'
