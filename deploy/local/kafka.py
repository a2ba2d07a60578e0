"""One Kafka broker (KRaft, broker and controller in one process) from pinned jars: takes a folder, gives its address.

The folder holds the log segments, the server's log, and `kafka.json` with cluster id and ports. Starting again on the
same folder continues with the same topics and, if they are still free, the same ports; also after a crash. It listens
on the loopback address only.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
from pathlib import Path

from applier.spark.jars import JarSet, ensure, find_java
from deploy.local import process
from deploy.local.process import StackError

BROKER_JARS = JarSet("broker", Path(__file__).with_name("broker.jars.lock"))
"""Separate from Spark's jars: the broker has a newer kafka-clients."""

HEAP = "256m"

START_LIMIT_S = 60.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
# The static form: with the dynamic one the controller's port is in its log and could not change.
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
transaction.max.timeout.ms=900000
group.initial.rebalance.delay.ms=0
# A killed broker's registration has to expire before its successor is let in; the default is 9 s.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
# The default, half of the heap, is for millions of keys per segment.
log.cleaner.dedupe.buffer.size=8388608
"""


class Kafka(process.Keeper):
    """A broker that ends with this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "kafka.log"
        self.environment: dict[str, str] = {}
        """More environment variables of the broker."""
        self._broker_port = 0
        self._controller_port = 0

    @property
    def bootstrap(self) -> str:
        """Return host:port for clients."""
        return f"127.0.0.1:{self._broker_port}"

    def start(self) -> None:
        """Format the storage if there is none, start, and return when the broker replies."""
        if self.running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        java = [str(find_java()), f"-Xmx{HEAP}", "-XX:+UseSerialGC"]
        java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        java += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "-Duser.timezone=UTC"]
        java += ["-cp", os.pathsep.join(map(str, ensure(BROKER_JARS)))]
        cluster_id = self._take_ports()
        if not self._data.exists():
            self._format(java, cluster_id)
        properties = self._write_properties("server.properties", self._data)
        self._child = process.spawn(
            [*java, "kafka.Kafka", properties], log=self.log, env={**os.environ, **self.environment}
        )
        process.wait_until(self._answers, self._child, name="Kafka", limit_s=START_LIMIT_S)

    def stop(self) -> None:
        """Flush and close every log."""
        self._end((signal.SIGTERM, 30.0))

    def restart(self, immediate: bool = False) -> None:
        """Stop (or kill) and start on the same data."""
        if immediate:
            self.kill()
        else:
            self.stop()
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "kafka"

    def _take_ports(self) -> str:
        identity = self.folder / "kafka.json"
        known = process.read_json(identity)
        # Kafka writes its identifiers as the base64 of 16 bytes.
        fresh = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        cluster_id: str = known.get("cluster_id") or fresh
        self._broker_port = process.free_port(known.get("broker_port"))
        while (port := process.free_port(known.get("controller_port"))) == self._broker_port:
            known.pop("controller_port", None)
        self._controller_port = port
        ports = {"broker_port": self._broker_port, "controller_port": self._controller_port}
        process.write_private(identity, json.dumps({"cluster_id": cluster_id, **ports}))
        return cluster_id

    def _write_properties(self, name: str, data: Path) -> Path:
        path = self.folder / name
        path.write_text(_PROPERTIES.format(broker=self._broker_port, controller=self._controller_port, data=data))
        return path

    def _format(self, java: list[str], cluster_id: str) -> None:
        # Format in another folder first, so that an interrupted format does not look complete.
        unfinished = self._data.with_name("kafka.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        properties = self._write_properties("format.properties", unfinished)
        # The process is too short for optimised code to pay.
        tool = [java[0], "-XX:TieredStopAtLevel=1", *java[1:], "kafka.tools.StorageTool"]
        # One argument: a random id may begin with a dash, which the tool would read as an option.
        command: list[str | Path] = [
            *tool,
            "format",
            f"--cluster-id={cluster_id}",
            "-c",
            properties,
            *self._format_arguments(),
        ]
        child = process.spawn(command, log=self.log)
        if child.wait():
            raise StackError(f"Kafka's storage could not be formatted:\n{child.last_words()}", hint=f"see {self.log}")
        properties.unlink()
        unfinished.rename(self._data)

    def _format_arguments(self) -> list[str]:
        """Return more arguments for formatting the storage, for subclasses."""
        return []

    def _answers(self) -> bool:
        if not process.port_open(self._broker_port):
            return False
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=5).brokers)
        except KafkaException:
            return False
