"""Spark's classes as a JVM has read and checked them, in a file that the next JVM begins with (class data sharing).

Most of what a start costs is loading some twenty thousand classes. `pg-trickle-applier prepare` makes the archive;
where there is none, or it is of another Java or of other jars, a JVM begins as it did before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from applier.spark.jars import cache_folder, find_java
from applier.spark.java_functions import spark_jars_folder


def archive_path(class_path: Sequence[Path], *, spark: Path | None = None, cache: Path | None = None) -> Path:
    """Where the archive for such a JVM is, or is to be; `spark` is the folder of Spark's own jars."""
    java = find_java().resolve()
    release = java.parent.parent / "release"
    told = release.read_bytes() if release.exists() else b""
    jars = (*class_path, *sorted((spark or spark_jars_folder()).glob("*.jar")))
    digest = hashlib.sha256("\n".join((str(java), *map(_as_java_knows_it, jars))).encode() + told)
    return (cache or cache_folder()) / "jars" / f"classes-{digest.hexdigest()[:12]}.jsa"


def _as_java_knows_it(jar: Path) -> str:
    """A JVM leaves an archive out when one of its jars has moved, changed or only been written again."""
    stat = jar.stat()
    return f"{jar} {stat.st_size} {stat.st_mtime_ns}"


def use_archive(archive: Path) -> str:
    """The JVM's options to use the archive, if there is one. It has to be the JVM of this class path."""
    # An archive that does not fit is not worth a word on the console: it is left out.
    return f'-XX:SharedArchiveFile="{archive}" -Xlog:cds*=off' if archive.exists() else ""


def make_at_exit(archive: Path) -> str:
    """The JVM's options to write the archive when it ends."""
    return f'-XX:ArchiveClassesAtExit="{archive}" -Xlog:cds*=off'
