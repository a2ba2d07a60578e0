"""Jars match their lock file or are refused; a repository on disk replaces the network."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from applier.spark import jars
from applier.spark.jars import SPARK_JARS, JarCorrupt, JarSet, JarsUnavailable, JavaMissing, ensure
from deploy.local.kafka import BROKER_JARS

CONTENT = {"one": b"the first jar", "two": b"the second jar"}


class Repository:
    """A Maven repository in a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self.settings = folder / "ivysettings.xml"
        pattern = f"{self.root}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"
        self.settings.write_text(
            '<ivysettings><settings defaultResolver="disk"/><resolvers><filesystem name="disk" m2compatible="true">'
            f'<artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
        )
        for name, content in CONTENT.items():
            self.put(name, content)

    def put(self, name: str, content: bytes) -> None:
        path = self.root / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def jar_set(tmp_path: Path) -> JarSet:
    lock = tmp_path / "some.jars.lock"
    lines = [f"{hashlib.sha256(content).hexdigest()}  org.example:{name}:1.0" for name, content in CONTENT.items()]
    lock.write_text("\n".join(["# for people", *lines]) + "\n")
    return JarSet("some", lock)


def test_fetched_once_then_without_java(
    tmp_path: Path, repository: Repository, jar_set: JarSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    found = ensure(jar_set, cache=cache, ivy_settings=repository.settings)
    assert [path.name for path in found] == ["one-1.0.jar", "two-1.0.jar"]
    assert [path.read_bytes() for path in found] == list(CONTENT.values())
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert ensure(jar_set, cache=cache) == found
    # A copied cache has no valid stamp, but the correct jars.
    (found[0].parent / jars.STAMP).unlink()
    assert ensure(jar_set, cache=cache) == found


def test_a_damaged_jar_is_fetched_again(tmp_path: Path, repository: Repository, jar_set: JarSet) -> None:
    found = ensure(jar_set, cache=tmp_path, ivy_settings=repository.settings)
    before = found[1].stat()
    found[1].write_bytes(b"the secXnd jar")
    os.utime(found[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ensure(jar_set, cache=tmp_path, ivy_settings=repository.settings) == found
    assert found[1].read_bytes() == CONTENT["two"]


def test_a_jar_that_is_not_the_locked_one_is_refused(tmp_path: Path, repository: Repository, jar_set: JarSet) -> None:
    repository.put("two", b"something else")
    with pytest.raises(JarCorrupt, match=r"two:1\.0 does not have the locked SHA-256"):
        ensure(jar_set, cache=tmp_path, ivy_settings=repository.settings)
    assert not list(jar_set.folder(tmp_path).glob("two*"))
    # Correct jars stay, and the next attempt continues with the rest.
    assert [path.name for path in jar_set.folder(tmp_path).glob("*.jar")] == ["one-1.0.jar"]
    repository.put("two", CONTENT["two"])
    assert len(ensure(jar_set, cache=tmp_path, ivy_settings=repository.settings)) == 2


def test_an_absent_jar_is_one_sentence(tmp_path: Path, repository: Repository, jar_set: JarSet) -> None:
    jar_set.lock.write_text(f"{'0' * 64}  org.example:three:1.0\n")
    with pytest.raises(JarsUnavailable, match="Ivy could not fetch jars") as caught:
        ensure(jar_set, cache=tmp_path, ivy_settings=repository.settings)
    assert caught.value.retryable
    assert "PG_TRICKLE_IVY_SETTINGS" in caught.value.hint


def test_two_processes_at_once(tmp_path: Path, repository: Repository, jar_set: JarSet) -> None:
    code = (
        "import sys; from pathlib import Path; from applier.spark.jars import JarSet, ensure; "
        "print(*ensure(JarSet('some', Path(sys.argv[1])), cache=Path(sys.argv[2]), ivy_settings=Path(sys.argv[3])))"
    )
    command = [sys.executable, "-c", code, str(jar_set.lock), str(tmp_path / "cache"), str(repository.settings)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [child.communicate(timeout=60) for child in both]
    assert [child.returncode for child in both] == [0, 0]
    assert outputs[0][0] == outputs[1][0] != ""
    assert "".join(err for _, err in outputs).count("fetching 2 by Ivy") == 1


@pytest.mark.parametrize(
    "text",
    ["not a lock\n", f"{'0' * 64} one-space:a:1\n", f"{'0' * 64}  a:x:1\n{'1' * 64}  b:x:1\n"],
)
def test_a_malformed_lock_is_refused(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "bad.lock"
    lock.write_text(text)
    with pytest.raises(JarCorrupt):
        JarSet("bad", lock).read()


def test_the_locks_hold_what_is_pinned_and_name_no_host() -> None:
    spark, broker = SPARK_JARS.read(), BROKER_JARS.read()
    assert "io.delta:delta-spark_4.1_2.13:4.4.0" in map(str, spark)
    assert len(spark) == 7
    assert {"org.apache.kafka:kafka_2.13:4.1.0", "org.slf4j:slf4j-simple:1.7.36"} <= set(map(str, broker))
    for text in (SPARK_JARS.lock.read_text(), BROKER_JARS.lock.read_text(), Path(jars.__file__).read_text()):
        assert not re.search(r"https?://", text)


def fake_java(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    (folder / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("version", "problem"), [("1.8.0_292", "is Java 8"), ("11.0.2", "is Java 11"), ("17.0.1", ""), ("21", "")]
)
def test_java_must_be_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, problem: str) -> None:
    fake_java(tmp_path / "bin", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if problem:
        with pytest.raises(JavaMissing, match=problem):
            jars.find_java()
    else:
        assert jars.find_java() == tmp_path / "bin" / "java"


def test_java_home_precedes_path_and_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(JavaMissing, match="JAVA_HOME"):
        jars.find_java()
    monkeypatch.delenv("JAVA_HOME")
    assert jars.find_java() == tmp_path / "path" / "java"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="no java on the PATH"):
        jars.find_java()
