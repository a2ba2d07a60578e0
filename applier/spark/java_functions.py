"""Java sources in, the jar of our functions out: the one in the wheel, or else one in the cache.

In a checkout the sources are compiled once, by the Eclipse compiler, which is a pinned jar like the others: a Java
runtime is enough, no JDK is needed. Other sources, another compiler or another Spark give another jar. A wheel contains
the jar instead of the sources (see `hatch_build.py`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from applier.spark.jars import JAVA_AT_LEAST, JarSet, cache_folder, ensure, find_java
from shared_schema.errors import TrickleError

MODULE = Path(__file__).parents[1] / "jvm"
"""The Java module: Maven's layout, which a Java developer knows."""

SOURCES = MODULE / "src" / "main" / "java"
JAR_IN_WHEEL = MODULE / "functions.jar"

COMPILER_JARS = JarSet("compiler", Path(__file__).with_name("compiler.jars.lock"))
"""The Eclipse compiler."""

_ERRORS = "raw,unchecked,typeHiding,unusedImport,unusedLocal,unusedPrivate,fallthrough,semicolon,static-access"
"""What is an error besides what Java forbids; other warnings are not shown."""


class NotCompiled(TrickleError):
    """The Java sources could not be compiled."""


def functions_jar(cache: Path | None = None) -> Path:
    """Return the jar of the functions; compile it when there is none in the wheel and none in the cache."""
    return JAR_IN_WHEEL if JAR_IN_WHEEL.exists() else compiled_jar(cache)


def compiled_jar(cache: Path | None = None) -> Path:
    """Return the jar in the cache that belongs to the sources, the compiler and Spark; make it if it is missing."""
    spark_jars = spark_jars_folder()
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(",".join(sorted(p.name for p in spark_jars.glob("spark-catalyst*"))).encode())
    digest.update(COMPILER_JARS.lock.read_bytes() + _ERRORS.encode())
    for source in sources:
        digest.update(source.relative_to(SOURCES).as_posix().encode() + source.read_bytes())
    jar = (cache or cache_folder()) / "jars" / f"functions-{digest.hexdigest()[:12]}.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            classes = Path(scratch) / "classes"
            compile_sources(sources, sorted(spark_jars.glob("*.jar")), classes)
            new_jar = Path(scratch) / jar.name
            _write_jar(classes, new_jar)
            os.replace(new_jar, jar)
    return jar


def compile_sources(sources: Sequence[Path], class_path: Sequence[Path], classes: Path) -> None:
    """Compile Java sources into a folder of classes; raise NotCompiled with the compiler's messages."""
    java = find_java()
    (compiler,) = ensure(COMPILER_JARS)
    command = [str(java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(compiler)]
    command += [*_language_level(java), "-proc:none", "-encoding", "UTF-8", "-g", "-warn:none", f"-err:{_ERRORS}"]
    command += ["-d", str(classes), "-classpath", os.pathsep.join(map(str, class_path)), *map(str, sources)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode or not classes.exists():
        raise NotCompiled(f"the Java functions do not compile: {(completed.stderr or completed.stdout).strip()}")


def _language_level(java: Path) -> list[str]:
    """Return the options for Java 17: with the classes of 17 where this Java has them, else with its own."""
    # A runtime without the JDK lacks the list of the classes that older versions have, which --release needs.
    has_older_versions = (java.resolve().parent.parent / "lib" / "ct.sym").exists()
    return ["--release", str(JAVA_AT_LEAST)] if has_older_versions else [f"-{JAVA_AT_LEAST}"]


def _write_jar(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(classes.rglob("*.class")):
            # Without the time of the build, the same sources give the same jar.
            archive.writestr(zipfile.ZipInfo(file.relative_to(classes).as_posix()), file.read_bytes())


def spark_jars_folder() -> Path:
    """Return the folder of the installed Spark's own jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotCompiled("pyspark is not installed here", hint="install the project first")
    return Path(spec.origin).parent / "jars"
