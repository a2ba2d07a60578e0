"""The faults by name. Each one is injected while writers run, does the documented repair if one is needed, and returns
the error message of the program, or an empty text.

At the end of a fault every part runs again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from shared_schema.topics import DEFAULT_PREFIX, table_of_topic
from tests.chaos.clock import COMPILER
from tests.chaos.scene import Scene, until

Fault = Callable[[Scene], str]

LOCKED_LIMIT_S = 120.0


def _kill(*parts: str) -> Fault:
    """Return a fault: kill -9 of one part, or of several at the same time, and a start after a pause."""

    def fault(scene: Scene) -> str:
        for part in parts:
            if part == "postgres":
                # Like pg_ctl -m immediate.
                scene.stack.postgres.crash()
            else:
                scene.stack.kill(part)
        scene.pause()
        for part in reversed(parts):
            scene.stack.restart(part, wait=False)
        return ""

    return fault


def _kill_twice(part: str) -> Fault:
    """Return a fault: a part is killed again while it is still starting."""

    def fault(scene: Scene) -> str:
        for _ in range(2):
            scene.stack.kill(part)
            scene.stack.restart(part, wait=False)
            scene.pause(0.5, 8)
        return ""

    return fault


def _freeze(part: str) -> Fault:
    """Return a fault: a part hangs for longer than every timeout of its peers, then continues."""

    def fault(scene: Scene) -> str:
        with scene.frozen(part):
            scene.pause(8, 15)
        return ""

    return fault


def _cut_network(scene: Scene) -> str:
    """Both programs lose PostgreSQL without a TCP reset, and cannot reconnect for a while."""
    assert scene.stack.proxy is not None
    scene.stack.proxy.cut()
    scene.pause(5, 15)
    scene.stack.proxy.heal()
    return ""


def _drop_slot(scene: Scene) -> str:
    """The slot is dropped while the consumer is down: the stream loses changes, and the consumer must report that."""
    stack = scene.stack
    stack.kill("cdc")
    with scene.database() as connection:
        until(
            lambda: not connection.execute("SELECT FROM pg_replication_slots WHERE active_pid IS NOT NULL").rowcount,
            "the slot should be free",
            30,
        )
        connection.execute("SELECT pg_drop_replication_slot('pg_trickle')")
    scene.pause()
    stack.restart("cdc", wait=False)
    said = scene.ends_with("cdc")
    stack.binaries["cdc"].run_once("drop-slot")
    stack.restart("cdc", wait=False)
    return said


def _clock_jumps(*, ahead: bool) -> Fault:
    """Return a fault: the wall clock of every part moves by an hour to a day, and stays there."""

    def fault(scene: Scene) -> str:
        seconds = int(scene.chance.uniform(3_600, 100_000))
        scene.stack.clock.jump(seconds if ahead else -seconds)
        scene.pause(3, 10)
        return ""

    return fault


def _retention_passed(scene: Scene) -> str:
    """The broker deletes change rows that the stopped applier has not read: the applier must report the loss."""
    stack = scene.stack
    stack.kill("applier")
    scene.pause(2, 5)
    admin = AdminClient({"bootstrap.servers": stack.addresses.kafka_bootstrap})
    topics = [t for t in admin.list_topics(timeout=30).topics if table_of_topic(DEFAULT_PREFIX, t)]
    for deleted in admin.delete_records([TopicPartition(topic, 0, OFFSET_END) for topic in topics]).values():
        deleted.result(30)
    scene.pause()
    stack.restart("applier", wait=False)
    said = scene.ends_with("applier")
    stack.stop("cdc")
    stack.binaries["cdc"].run_once("drop-slot")
    stack.restart("cdc")
    stack.restart("applier", wait=False)
    return said


def _lock_target(scene: Scene) -> str:
    """A session locks a stream table for some seconds."""
    with scene.database() as connection, connection.transaction():
        name = scene.chance.choice(scene.workload.stream_tables).name
        connection.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE".encode())
        scene.pause(2, 8)
    return ""


_OFTEN_CHANGED = """
    SELECT s.pgt_name FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    GROUP BY s.pgt_name ORDER BY count(*) FILTER (WHERE rows_inserted + rows_deleted > 0) DESC, s.pgt_name LIMIT 5
"""


def _lock_target_long(scene: Scene) -> str:
    """A session locks a stream table for so long that it is suspended; the others continue."""
    status = "SELECT last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s AND status = 'SUSPENDED'"
    with scene.database() as watcher, scene.database() as holder:
        # A table that the workload never changes is never written to, so the lock would have no effect.
        name = scene.chance.choice([name for (name,) in watcher.execute(_OFTEN_CHANGED).fetchall()])
        with holder.transaction():
            holder.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE".encode())
            until(lambda: bool(watcher.execute(status, (name,)).rowcount), f"{name} suspended", LOCKED_LIMIT_S)
            row = watcher.execute(status, (name,)).fetchone()
        watcher.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))
    return str(row[0]) if row else ""


def _delta_read_only(scene: Scene) -> str:
    """The Delta folder is read-only for a while."""
    folder = scene.stack.addresses.delta_root
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        scene.pause(4, 10)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    return ""


def _broker_disk_full(scene: Scene) -> str:
    """The broker's disk is full; whether the broker exits or not, it gets free space and is started again."""
    stack = scene.stack
    data, small, aside = stack.folder / "kafka", stack.folder / "small_disk", stack.folder / "kafka.aside"
    small.mkdir(exist_ok=True)
    stack.stop("kafka")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", str(small)], check=True)
    try:
        shutil.copytree(data, small / "kafka")
        data.rename(aside)
        data.symlink_to(small / "kafka")
        stack.restart("kafka")
        scene.pause(1, 3)
        with suppress(OSError), open(small / "filler", "wb") as file:
            while True:
                file.write(b"\0" * (1 << 16))
                file.flush()
        deadline = time.monotonic() + 20
        while stack.kafka.running and time.monotonic() < deadline:
            time.sleep(0.2)
        said = "" if stack.kafka.running else "the broker ended by itself"
        (small / "filler").unlink()
        stack.kill("kafka")
        stack.restart("kafka")
        scene.pause(1, 3)
        stack.stop("kafka")
        data.unlink()
        shutil.rmtree(aside)
        shutil.copytree(small / "kafka", data)
        stack.restart("kafka")
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)
    return said


FAULTS: dict[str, Fault] = {
    "kill consumer": _kill("cdc"),
    "kill applier": _kill("applier"),
    "kill broker": _kill("kafka"),
    "crash PostgreSQL": _kill("postgres"),
    "kill consumer and applier": _kill("applier", "cdc"),
    "kill everything": _kill("applier", "cdc", "kafka", "postgres"),
    "kill consumer twice": _kill_twice("cdc"),
    "kill applier twice": _kill_twice("applier"),
    "broker hangs": _freeze("kafka"),
    "applier hangs": _freeze("applier"),
    "consumer hangs": _freeze("cdc"),
    "network cut, half-open": _cut_network,
    "slot dropped": _drop_slot,
    "topic retention passed": _retention_passed,
    "clock jumps ahead": _clock_jumps(ahead=True),
    "clock jumps back": _clock_jumps(ahead=False),
    "stream table locked": _lock_target,
    "stream table locked for long": _lock_target_long,
    "Delta folder read-only": _delta_read_only,
    "broker's disk full": _broker_disk_full,
}
"""In the same order as in docs/reliability.md."""

KILLS = [name for name in FAULTS if name.startswith(("kill", "crash"))]

NEEDS_ROOT = ("network cut, half-open", "Delta folder read-only", "broker's disk full")


NEEDS_COMPILER = ("clock jumps ahead", "clock jumps back")


def suited(names: list[str]) -> list[str]:
    """Return the faults that can be injected on this machine."""
    missing = (NEEDS_ROOT if os.geteuid() else ()) + (() if COMPILER else NEEDS_COMPILER)
    return [name for name in names if name not in missing]
