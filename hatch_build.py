"""Runs when a wheel is built: compiles the Java functions and puts their jar into the wheel.

`pip install .`, `pip wheel .` and every other builder use it, so no wheel is without the jar. It needs a Java runtime.
Spark's classes, which the functions are compiled with, come from pyspark: pip installs it for the build, or it is there
already with `--no-build-isolation`. An editable installation uses the sources and compiles them at the first start.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEEDED = ("pyspark", "rich")
"""Spark's jars, and what shows the progress of a download."""


class JavaFunctions(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the Java functions into the wheel."""

    def dependencies(self) -> list[str]:
        """Return the requirements of the project that its build needs too."""
        return [line for line in self.metadata.core.dependencies if re.split(r"[^\w-]", line)[0] in NEEDED]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the jar to the files of the wheel."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from applier.spark.java_functions import JAR_IN_WHEEL, compiled_jar

        place = JAR_IN_WHEEL.relative_to(self.root).as_posix()
        build_data["force_include"][str(compiled_jar())] = place
