"""A built wheel, installed into an empty environment, starts both programs without a compiler.

The environment is new, and our packages in it come from the wheel. It shares three things with the environment of the
tests, so that this takes seconds: the packages that the wheel depends on (a `.pth` file names their folder), the tools
that build the wheel (`--no-build-isolation`), and the cache of Spark's jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from deploy.local.process import free_port

ROOT = Path(__file__).resolve().parents[2]
_EVALUATE = """
import sys
from pathlib import Path
import applier, cdc_consumer, shared_schema
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.java_functions import functions_jar
from applier.spark.session import spark_session

print(*(package.__file__ for package in (applier, cdc_consumer, shared_schema)), functions_jar(), sep="\\n")
spark = spark_session(ensure(SPARK_JARS), master="local[1]", scratch=Path(sys.argv[1]))
print(spark.sql("SELECT pg_numeric_div('1', '3')").collect()[0][0])
"""


def start(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside of the checkout, with `more` in its environment."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(command, cwd=cwd, env=environ | more, capture_output=True, text=True, check=False)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside of the checkout; return what it prints."""
    completed = start(*command, cwd=cwd)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """Return the folder of an environment in which the wheel is installed."""
    folder = wheel.parent / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=wheel.parent)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A folder that a .pth file names has no .pth files of its own: the checkout is not installed here.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_has_the_jar_instead_of_the_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in names if name.startswith("applier/jvm/")] == ["applier/jvm/functions.jar"]
    assert "applier/spark/spark.jars.lock" in names and "applier/spark/compiler.jars.lock" not in names


@pytest.mark.parametrize("program", ["pg-trickle-cdc", "pg-trickle-applier"])
def test_a_program_starts(wheel: Path, environment: Path, program: str) -> None:
    """Help and version come before most imports; `run` comes as far as the database, where nobody listens."""
    installed = environment / "bin" / program
    assert "Usage:" in run(installed, "--help", cwd=environment)
    assert run(installed, "--version", cwd=environment).split()[-1] == wheel.name.split("-")[1]
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    started = start(installed, "run", cwd=environment, PG_TRICKLE_DATABASE_URL=nowhere, PG_TRICKLE_METRICS_PORT="0")
    assert started.returncode == 1
    assert "error: " in started.stderr and "Traceback" not in started.stderr


@pytest.mark.spark
def test_a_function_of_the_wheel_is_evaluated(environment: Path, tmp_path: Path) -> None:
    *files, value = run(environment / "bin" / "python", "-c", _EVALUATE, tmp_path, cwd=environment).splitlines()
    assert all(Path(file).is_relative_to(environment) for file in files), files
    assert value == "0.33333333333333333333"
