"""A new user without Python or Java gets a clear message before anything is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import bootstrap

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = (
    "deploy/local/bootstrap.py",
    "applier/__init__.py",
    "applier/spark/__init__.py",
    "applier/spark/jars.py",
    *bootstrap.INPUTS,
)


@pytest.fixture
def bare_checkout(tmp_path: Path) -> Path:
    """Return a folder like a fresh clone, without `.venv`; only with the files that the first step reads."""
    checkout = tmp_path / "checkout"
    for name in NEEDED:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, checkout / name)
    shutil.copytree(CHECKOUT / "shared_schema", checkout / "shared_schema")
    return checkout


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def run(checkout: Path, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "deploy" / "local" / "bootstrap.py"), *arguments]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False, timeout=60)


def test_too_old_python_is_one_sentence(bare_checkout: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin", "python3", "#!/bin/sh\necho 3 9\n")
    completed = run(bare_checkout, tmp_path / "bin")
    assert completed.returncode == 1
    assert completed.stderr.startswith(
        "Python 3.11 or newer with its venv module is needed and none was found; install"
    )
    assert completed.stderr.count("\n") == 1
    assert not (bare_checkout / ".venv").exists()


def test_missing_java_is_reported_before_anything_is_installed(bare_checkout: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin", "python3.11", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    completed = run(bare_checkout, tmp_path / "bin", "--java")
    assert completed.returncode == 1
    assert completed.stderr.startswith("Java 17 or newer is needed and there is no java on the PATH\nhint: install")
    assert not (bare_checkout / ".venv").exists()


def test_a_matching_stamp_skips_everything_and_a_changed_lock_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in bootstrap.INPUTS:
        (tmp_path / name).write_text(name)
    venv = tmp_path / ".venv"
    monkeypatch.setattr(bootstrap, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", venv)
    monkeypatch.setattr(bootstrap, "STAMP", venv / ".installed")
    calls: list[str] = []
    monkeypatch.setattr(bootstrap, "install", lambda python, stamp: calls.append(stamp))
    assert bootstrap.main([]) == 0
    assert len(calls) == 1
    program(venv, "x", "")
    program(venv / "bin", "python", "")
    (venv / ".installed").write_text(calls[0])
    assert bootstrap.main([]) == 0
    assert len(calls) == 1
    (tmp_path / bootstrap.LOCK).write_text("changed")
    assert bootstrap.main([]) == 0
    assert len(calls) == 2


def test_the_chosen_python_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bootstrap.choose_python([sys.executable]) == sys.executable
    with pytest.raises(bootstrap.Unsuitable):
        bootstrap.choose_python([os.devnull])
