"""The real embedded servers: they listen on loopback only, data survive every kind of end, no process outlives its
parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local import postgres_programs, process
from deploy.local.binary import Binary, Program
from deploy.local.kafka import Kafka
from deploy.local.postgres import Postgres
from deploy.local.process import StackError, User
from deploy.local.stack import Stack
from tests.fixtures.choice import server_folder

FAKE = Program("cdc", "fake", "json", launcher=(sys.executable, str(Path(__file__).with_name("fake_binary.py"))))
ABSENT = Program("applier", "pg-trickle-absent", "no_such_package.cli")


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder("deploy") as path:
        yield path


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie counts as ended, since process 1 may never collect it here."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def eventually(true: Callable[[], bool], limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listening(port: int) -> set[str]:
    """Return the local addresses, as in /proc, on which a process listens on this port."""
    rows = [line.split() for net in ("tcp", "tcp6") for line in Path(f"/proc/net/{net}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == port}


def rows(server: Postgres) -> list[tuple[int, ...]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT a FROM kept ORDER BY a").fetchall()


@pytest.mark.parametrize("major", [16, 18])
def test_postgres_survives_every_kind_of_end(folder: Path, major: int) -> None:
    server = Postgres(folder, major=major, durable=False)
    server.start()
    url, port = server.url, int(server.url.rpartition(":")[2].partition("/")[0])
    with psycopg.connect(url) as connection:
        assert connection.info.server_version // 10_000 == major
        settings = connection.execute(
            "SELECT current_setting('wal_level'), current_setting('server_encoding')"
        ).fetchone()
        assert settings == ("logical", "UTF8")
        connection.execute("CREATE TABLE kept AS SELECT 1 AS a")
    assert listening(port) == {"0100007F"}

    open_session = psycopg.connect(url)
    os.kill(server.pid, signal.SIGKILL)
    assert eventually(lambda: not server.running)
    server.start()
    with pytest.raises(psycopg.OperationalError):
        open_session.execute("SELECT 1")
    assert rows(server) == [(1,)]
    server.restart(immediate=True)
    assert rows(server) == [(1,)]

    pid = server.pid
    server.stop()
    assert not alive(pid)
    assert not listening(port)
    assert "database system is shut down" in server.log.read_text().splitlines()[-1]
    assert server.pid == 0

    again = Postgres(folder, major=major, durable=False)
    again.start()
    assert again.url == url
    assert rows(again) == [(1,)]
    with pytest.raises(StackError, match="already runs"):
        Postgres(folder, major=major).start()
    again.stop()
    with pytest.raises(StackError, match=f"of PostgreSQL {major}"):
        Postgres(folder, major=34 - major).start()


def test_a_stale_lock_file_with_a_foreign_pid_does_not_stop_the_start(folder: Path) -> None:
    server = Postgres(folder, durable=False)
    server.start()
    lock = folder / "postgres" / "data" / "postmaster.pid"
    text = lock.read_text()
    server.kill()
    bystander = process.spawn(["/bin/sleep", "30"], log=folder / "sleep.log", user=server.user)
    try:
        lock.write_text("\n".join([str(bystander.pid), *text.split("\n")[1:]]))
        server.start()
        assert server.running
        assert alive(bystander.pid)
    finally:
        process.stop(bystander)
        server.stop()


def test_postgres_does_not_run_as_root(folder: Path) -> None:
    server = Postgres(folder, durable=False)
    server.start()
    try:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
    finally:
        server.stop()


def test_programs_are_copied_where_the_servers_user_can_read_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = process.unprivileged_user()
    if user is None:
        pytest.skip("only root becomes somebody else")
    monkeypatch.setenv("PG_TRICKLE_CACHE", str(folder / "cache"))
    monkeypatch.setattr(process, "may_read_tree", lambda path, who: False)
    copied = postgres_programs.programs(18, user)
    assert copied.is_relative_to(folder)
    completed = subprocess.run(
        [copied / "psql", "--version"], user=user.uid, capture_output=True, text=True, check=True
    )
    assert "18." in completed.stdout
    server = Postgres(folder, durable=False)
    server.start()
    assert os.readlink(f"/proc/{server.pid}/exe") == str(copied / "postgres")
    server.stop()


def test_a_private_folder_anywhere_above_keeps_another_user_out(folder: Path) -> None:
    inner = folder / "private" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("")
    me, other_user = User(os.getuid(), os.getgid()), User(54321, 54321)
    assert process.may_read_tree(inner, other_user)
    (folder / "private").chmod(0o700)
    assert not process.may_enter(inner / "not there yet", other_user)
    assert process.may_enter(inner, me)
    (folder / "private").chmod(0o711)
    assert process.may_read_tree(inner, other_user)
    (inner / "file").chmod(0o600)
    assert not process.may_read_tree(inner, other_user)


def test_broker_keeps_its_topics(folder: Path) -> None:
    broker = Kafka(folder)
    broker.start()
    try:
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in client.create_topics([NewTopic("kept", 1, 1)]).values():
            created.result(10)
        del client
        bootstrap = broker.bootstrap
        assert listening(int(bootstrap.partition(":")[2])) <= {"0100007F", "0000000000000000FFFF00000100007F"}
        broker.restart()
        assert broker.bootstrap == bootstrap
        assert "kept" in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
        broker.kill()
        # Another process took the port in the meantime.
        known = json.loads((folder / "kafka.json").read_text())
        (folder / "kafka.json").write_text(json.dumps(known | {"broker_port": 1, "controller_port": 1}))
        broker.start()
        assert broker.bootstrap != bootstrap
        assert "kept" in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    finally:
        broker.stop()


def test_the_stack_restarts_dead_parts_and_stops_in_reverse_order(folder: Path) -> None:
    said: list[str] = []
    stack = Stack(folder, durable=False, programs=[FAKE, ABSENT], settings={"PG_TRICKLE_SLOT": "s"}, say=said.append)
    with stack:
        assert said[0] == "pg-trickle-absent is not part of this checkout yet; going on without it"
        env = dict(line.partition("=")[::2] for line in stack.addresses.as_shell().splitlines())
        with urllib.request.urlopen(env["CDC_METRICS"]) as answer:
            settings = json.loads(answer.read())
        assert settings["PG_TRICKLE_DATABASE_URL"] == env["DATABASE_URL"]
        assert settings["PG_TRICKLE_KAFKA_BOOTSTRAP"] == env["KAFKA_BOOTSTRAP"]
        assert settings["PG_TRICKLE_SLOT"] == "s"
        with psycopg.connect(env["DATABASE_URL"]) as connection:
            assert connection.info.dbname == "app"

        first = stack.binaries["cdc"].pid
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: stack.tend() or stack.binaries["cdc"].ready)  # type: ignore[func-returns-value]
        assert stack.binaries["cdc"].pid not in (0, first)
        assert any("cdc died unexpectedly (code -9); starting it again in 1 s" in line for line in said)

        stack.kill("cdc")
        stack.tend()
        assert not stack.binaries["cdc"].running
        stack.restart("cdc")
        assert stack.binaries["cdc"].ready
        with pytest.raises(StackError, match="no part 'zookeeper'"):
            stack.kill("zookeeper")
    assert said[-3:] == ["stopping cdc", "stopping kafka", "stopping postgres"]
    assert not any(part.running for part in stack.parts.values())


def test_a_binary_that_cannot_start_is_reported_with_the_end_of_its_log(folder: Path) -> None:
    broken = Program("cdc", "pg-trickle-broken", "json", launcher=("/bin/sh", "-c", "echo no such slot; exit 3"))
    binary = Binary(broken, folder / "cdc.log", metrics_port=process.free_port())
    with pytest.raises(StackError, match=r"`pg-trickle-broken install` ended with code 3:\nno such slot"):
        binary.run_once("install")
    binary.start()
    with pytest.raises(StackError, match=r"pg-trickle-broken ended with code 3 while starting:\nno such slot"):
        binary.wait_ready()


def test_a_stack_that_cannot_start_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(folder, durable=False, programs=[], say=lambda _: None)
    seen: list[int] = []

    def broken_start(self: Kafka) -> None:
        seen.append(stack.postgres.pid)
        raise StackError("no broker today")

    monkeypatch.setattr(Kafka, "start", broken_start)
    with pytest.raises(StackError, match="no broker today"):
        stack.start()
    assert seen[0] > 0
    assert not alive(seen[0])


def test_nothing_outlives_a_killed_parent(folder: Path) -> None:
    script = Path(__file__).with_name("parent.py")
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.deploy.parent", str(folder), FAKE.launcher[-1]],
        stdout=subprocess.PIPE,
        cwd=script.parents[2],
    )
    with parent:
        pids: dict[str, int] = json.loads(parent.stdout.readline() if parent.stdout else b"")
        assert set(pids) == {"postgres", "kafka", "cdc"}
        assert all(map(alive, pids.values()))
        parent.kill()
    assert eventually(lambda: not any(map(alive, pids.values())))
