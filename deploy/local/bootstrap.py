"""`python3 bootstrap.py [--java]`: creates a complete `.venv` in a bare checkout; returns at once if it exists.

It runs before anything is installed, under any `python3`. It therefore uses the standard library only, and syntax that
Python 3.6 can read, so that a Python that is too old can report this.
With `--java` it also checks, before any download, that there is a Java that can run Spark and Kafka.
"""
# ruff: noqa: UP006, UP035, UP045  (an older Python does not know the newer spellings)

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Tuple

CHECKOUT = Path(__file__).resolve().parent.parent.parent
VENV = CHECKOUT / ".venv"
STAMP = VENV / ".installed"
LOCK = "requirements-dev.lock"
INPUTS = (LOCK, "requirements.lock", "pyproject.toml")

PYTHON_AT_LEAST = (3, 11)
CANDIDATES = ("python3.11", "python3.12", "python3.13", "python3", "python")


class Unsuitable(Exception):
    """Something is missing; the text is one sentence about it."""


def version_of(python: str) -> Optional[Tuple[int, ...]]:
    """Return the version, such as (3, 11), if this Python runs and can create virtual environments."""
    code = "import sys, venv, ensurepip; print('%d %d' % sys.version_info[:2])"
    try:
        result = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        return tuple(int(part) for part in result.stdout.split())
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def choose_python(candidates: List[str]) -> str:
    """Return the first suitable Python."""
    for name in candidates:
        found = shutil.which(name)
        version = version_of(found) if found else None
        if found and version and version >= PYTHON_AT_LEAST:
            return found
    raise Unsuitable(
        "Python {}.{} or newer with its venv module is needed and none was found; install python3.11 and "
        "python3.11-venv (or newer), or name one with PYTHON=/path/to/python3".format(*PYTHON_AT_LEAST)
    )


def wanted_stamp() -> str:
    """Return a digest that changes whenever the packages to install change."""
    digest = hashlib.sha256(str(VENV).encode())
    for name in INPUTS:
        digest.update((CHECKOUT / name).read_bytes())
    return digest.hexdigest()


def installed(stamp: str) -> bool:
    """Return whether `.venv` has what the lock files list."""
    return STAMP.exists() and STAMP.read_text() == stamp and (VENV / "bin" / "python").exists()


def check_java(python: str) -> None:
    """Find Java with the project's own code, which needs no installed package."""
    code = "import sys; from applier.spark.jars import run_jars; sys.exit(run_jars(['--java']))"
    result = subprocess.run([python, "-c", code], cwd=str(CHECKOUT), stderr=subprocess.PIPE, check=False)
    if result.returncode:
        raise Unsuitable(result.stderr.decode(errors="replace").strip())


def install(python: str, stamp: str) -> None:
    """Create a virtual environment with exactly the locked packages and the project."""
    usable = version_of(str(VENV / "bin" / "python"))
    if not usable or usable < PYTHON_AT_LEAST:
        say(f"creating .venv with {python}")
        run_logged([python, "-m", "venv", "--clear", str(VENV)], 0)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    packages = sum(1 for line in (CHECKOUT / LOCK).read_text().splitlines() if line[:1].isalnum())
    say(f"installing {packages} Python packages (once)")
    # The lock is complete, so there is nothing to resolve.
    run_logged([*pip, "--no-deps", "--require-hashes", "-r", str(CHECKOUT / LOCK)], packages)
    run_logged([*pip, "--no-deps", "--no-build-isolation", "-e", str(CHECKOUT)], 0)
    STAMP.write_text(stamp)


def run_logged(command: List[str], steps: int) -> None:
    """Run a command and show a counter on a terminal; print its output only if it fails."""
    lines = []  # type: List[str]
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=str(CHECKOUT)) as child:
        for raw in child.stdout or ():
            lines.append(raw.decode(errors="replace").rstrip())
            if lines[-1].startswith("Collecting ") and steps and sys.stderr.isatty():
                done += 1
                sys.stderr.write("\r  {} of {}\033[K{}".format(done, steps, "\n" if done == steps else ""))
                sys.stderr.flush()
    if child.returncode:
        raise Unsuitable("{} failed:\n{}".format(" ".join(command[:4]), "\n".join(lines[-15:])))


def say(line: str) -> None:
    """Print a line for the user to stderr, separate from the output of the make target."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def take_turn() -> object:
    """Lock, so that only one process installs at a time; released when the process ends."""
    import fcntl

    folder = CHECKOUT / ".stack"
    folder.mkdir(exist_ok=True)
    lock = open(str(folder / "bootstrap.lock"), "w")  # noqa: SIM115  held for life
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def main(arguments: List[str]) -> int:
    """Return 0 when `.venv` is ready."""
    try:
        stamp = wanted_stamp()
        chosen = os.environ.get("PYTHON")
        ready = installed(stamp)
        python = str(VENV / "bin" / "python") if ready else choose_python([chosen] if chosen else list(CANDIDATES))
        if "--java" in arguments:
            check_java(python)
        if ready:
            return 0
        turn = take_turn()
        if not installed(stamp):
            install(python, stamp)
        del turn
    except Unsuitable as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
