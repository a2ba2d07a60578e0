"""Java sources in, one jar in the cache out.

The compiler is Janino, which Spark ships to compile the code that it generates: no JDK is needed. It ignores generics
and does not know lambdas, so the sources use neither. Other sources or another Spark give another jar.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from applier.spark.jars import cache_folder, find_java
from shared_schema.errors import TrickleError

SOURCES = Path(__file__).parents[1] / "jvm" / "pgtrickle"
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"


class NotCompiled(TrickleError):
    """The Java sources could not be compiled."""


def functions_jar(cache: Path | None = None) -> Path:
    """Return the jar of the functions; compile it when it does not exist yet."""
    spark_jars = spark_jars_folder()
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(",".join(sorted(p.name for p in spark_jars.glob("spark-catalyst*"))).encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    jar = (cache or cache_folder()) / "jars" / f"functions-{digest.hexdigest()[:12]}.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            os.replace(_compile(sources, spark_jars, Path(scratch)), jar)
    return jar


def _compile(sources: list[Path], spark_jars: Path, scratch: Path) -> Path:
    classes = scratch / "classes"
    classes.mkdir()
    class_path = os.pathsep.join(str(p) for p in sorted(spark_jars.glob("*.jar")))
    command = [str(find_java()), "-cp", f"{spark_jars}{os.sep}*", _COMPILER, "-g", "-encoding", "UTF-8"]
    command += ["-d", str(classes), "-classpath", class_path, *map(str, sources)]
    compiler = subprocess.run(command, capture_output=True, text=True, check=False)
    compiled = sorted(classes.rglob("*.class"))
    if compiler.returncode or not compiled:
        raise NotCompiled(f"the Java functions do not compile: {(compiler.stderr or compiler.stdout).strip()}")
    jar = scratch / "functions.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in compiled:
            archive.write(file, file.relative_to(classes).as_posix())
    return jar


def spark_jars_folder() -> Path:
    """Return the folder of the installed Spark's own jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotCompiled("pyspark is not installed here", hint="install the project first")
    return Path(spec.origin).parent / "jars"


if __name__ == "__main__":
    functions_jar()
