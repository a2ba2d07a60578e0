"""PostgreSQL, Kafka and both binaries as children of this process: takes a folder, gives addresses.

    with Stack(folder) as stack:
        psycopg.connect(stack.addresses.database_url)

Started in the order of the flow, stopped against it, so that nothing is cut off from what it writes to. `kill`, `stop`,
`start` and `restart` take one part by name; nothing comes back by itself unless somebody calls `tend`.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from psycopg import sql

from applier.spark.jars import SPARK_JARS, ensure
from deploy.local import process
from deploy.local.binary import APPLIER, CDC, Binary, Program
from deploy.local.kafka import Kafka
from deploy.local.postgres import DEFAULT_MAJOR, Postgres
from deploy.local.process import StackError
from shared_schema.connections import connect_with_statement
from shared_schema.errors import TrickleError

DATABASE = "app"

BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds to wait before the n-th restart of a part that keeps dying."""

STEADY_AFTER_S = 60.0
"""After running this long, a part starts again with the first backoff."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """All addresses; the names in upper case are those of `.stack/env`."""

    database_url: str
    kafka_bootstrap: str
    delta_root: str
    cdc_metrics: str
    applier_metrics: str
    cdc_log: str
    applier_log: str
    postgres_log: str
    kafka_log: str
    stack_data: str

    def as_shell(self) -> str:
        """Return lines that a shell can source."""
        return "".join(f"{f.name.upper()}={shlex.quote(getattr(self, f.name))}\n" for f in fields(self))


class Part(Protocol):
    """The interface of each part of the stack."""

    @property
    def running(self) -> bool:
        """Return whether the process is alive."""

    @property
    def pid(self) -> int:
        """Return the process id; 0 if it does not run."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it in order."""

    def kill(self) -> None:
        """Kill it with SIGKILL."""


@dataclass(slots=True)
class _Care:
    """The restarts of a part that dies by itself."""

    wanted: bool = False
    deaths: int = 0
    started_at: float = 0.0
    again_at: float = 0.0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Stack:
    """The whole stack, or the parts of it that this checkout has."""

    def __init__(
        self,
        folder: Path,
        *,
        major: int = DEFAULT_MAJOR,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        programs: Sequence[Program] = (CDC, APPLIER),
        say: Callable[[str], None] = _say,
    ) -> None:
        self.folder = folder.absolute()
        self.postgres = Postgres(self.folder, major=major, durable=durable)
        self.kafka = Kafka(self.folder)
        self.binaries: dict[str, Binary] = {}
        self._programs = programs
        self._settings = dict(settings or {})
        self._say = say
        self._care: dict[str, _Care] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._name_the_dead()
        self.stop()

    def _name_the_dead(self) -> None:
        """Print why parts ended by themselves: their logs may be deleted with the folder."""
        for name, binary in self.binaries.items():
            if self._care_of(name).wanted and not binary.running:
                self._say(f"{name} had ended by itself ({self._last_words(name)}):\n{binary.last_words()}")

    @property
    def addresses(self) -> Addresses:
        """Return the addresses; they are known after the start."""

        def metrics(name: str) -> str:
            return self.binaries[name].metrics if name in self.binaries else ""

        return Addresses(
            database_url=self.postgres.url_of(DATABASE),
            kafka_bootstrap=self.kafka.bootstrap,
            delta_root=str(self.folder / "delta"),
            cdc_metrics=metrics("cdc"),
            applier_metrics=metrics("applier"),
            cdc_log=str(self.folder / "cdc.log"),
            applier_log=str(self.folder / "applier.log"),
            postgres_log=str(self.postgres.log),
            kafka_log=str(self.kafka.log),
            stack_data=str(self.folder),
        )

    @property
    def parts(self) -> dict[str, Part]:
        """Return the parts by name, in the order of the data flow."""
        return {"postgres": self.postgres, "kafka": self.kafka, **self.binaries}

    def start(self) -> None:
        """Start all parts; return when both programs are ready. On a failure, stop the parts that were started."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self, name: str | None = None) -> None:
        """Stop one part, or all in reverse order: applier, cdc, Kafka, PostgreSQL."""
        for part in [name] if name else reversed(self.parts):
            self._care_of(part).wanted = False
            if self._part(part).running:
                self._say(f"stopping {part}")
                self._part(part).stop()

    def kill(self, name: str) -> None:
        """Kill one part with SIGKILL; it is not restarted."""
        self._care_of(name).wanted = False
        self._part(name).kill()

    def restart(self, name: str, *, wait: bool = True) -> None:
        """Stop one part if it runs, start it, and wait until it is ready."""
        self.stop(name)
        self._start_part(name)
        if wait and name in self.binaries:
            self.binaries[name].wait_ready()

    def tend(self) -> None:
        """Restart parts that died by themselves, with growing delays; call it repeatedly."""
        now = time.monotonic()
        for name, part in self.parts.items():
            care = self._care_of(name)
            if not care.wanted or part.running:
                continue
            if not care.again_at:
                care.deaths = 1 if now - care.started_at > STEADY_AFTER_S else care.deaths + 1
                pause = BACKOFF_S[min(care.deaths, len(BACKOFF_S)) - 1]
                care.again_at = now + pause
                self._say(f"{name} died unexpectedly ({self._last_words(name)}); starting it again in {pause:.0f} s")
            elif now >= care.again_at:
                self._revive(name)

    def _start(self) -> None:
        self._prepare_folder()
        present = [program for program in self._programs if program.exists]
        for program in self._programs:
            if program not in present:
                self._say(f"{program.script} is not part of this checkout yet; going on without it")
        if APPLIER in present:
            ensure(SPARK_JARS)
        self._say(f"starting PostgreSQL {self.postgres.major}")
        self._start_part("postgres")
        self._create_database()
        self._say("starting Kafka")
        self._start_part("kafka")
        self._name_binaries(present)
        if APPLIER.name in self.binaries and APPLIER in present:
            self._say("installing the pgtrickle schema")
            self.binaries[APPLIER.name].run_once("install")
        for name in self.binaries:
            self._say(f"starting {name}")
            self._start_part(name)
        for name, binary in self.binaries.items():
            binary.wait_ready()
            self._say(f"{name} is ready")

    def _start_part(self, name: str) -> None:
        self._part(name).start()
        care = self._care_of(name)
        care.wanted, care.started_at, care.again_at = True, time.monotonic(), 0.0

    def _revive(self, name: str) -> None:
        before = self.addresses
        try:
            self._start_part(name)
        except TrickleError as error:
            self._care_of(name).again_at = time.monotonic() + BACKOFF_S[-1]
            self._say(f"{name} did not come back: {error.problem}")
            return
        self._say(f"{name} runs again")
        if self.addresses != before:
            # Another process uses its port now, so the other parts need the new one.
            self._configure()
            for other in self.binaries:
                self.restart(other, wait=False)

    def _care_of(self, name: str) -> _Care:
        return self._care.setdefault(name, _Care())

    def _part(self, name: str) -> Part:
        if name not in self.parts:
            raise StackError(f"this stack has no part {name!r}", hint=f"it has {', '.join(self.parts)}")
        return self.parts[name]

    def _last_words(self, name: str) -> str:
        return f"code {self.binaries[name].exit_code}" if name in self.binaries else "see its log"

    def _prepare_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # The server's user must be able to enter; no one else needs to list it.
        self.folder.chmod(0o711)
        for name in ("delta", "state", "scratch"):
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)

    def _create_database(self) -> None:
        with connect_with_statement(self.postgres.url, application_name="pg-trickle stack") as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _name_binaries(self, programs: Sequence[Program]) -> None:
        ports_file = self.folder / "metrics.json"
        known = process.read_json(ports_file)
        ports: dict[str, int] = {}
        for program in programs:
            while (port := process.free_port(known.get(program.name))) in ports.values():
                known.pop(program.name, None)
            ports[program.name] = port
            self.binaries[program.name] = Binary(program, self.folder / f"{program.name}.log", metrics_port=port)
        process.write_private(ports_file, json.dumps(ports))
        self._configure()

    def _configure(self) -> None:
        for binary in self.binaries.values():
            binary.settings = {
                **self._settings,
                "PG_TRICKLE_DATABASE_URL": self.addresses.database_url,
                "PG_TRICKLE_KAFKA_BOOTSTRAP": self.addresses.kafka_bootstrap,
            }
            if binary.program.name == APPLIER.name:
                binary.settings |= {
                    "PG_TRICKLE_DELTA_ROOT": self.addresses.delta_root,
                    "PG_TRICKLE_STATE_DIR": str(self.folder / "state"),
                    "PG_TRICKLE_SCRATCH_DIR": str(self.folder / "scratch"),
                }
