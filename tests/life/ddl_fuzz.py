"""`python -m tests.life.ddl_fuzz --seed s --steps n`: random DDL and rows; every stream table is equal, or marked.

After each step every stream table whose `wait_for` returns must have the rows of its oracle. One that is suspended says
why; it is then repaired by the call that its hint names, or created again. A stream table that is neither equal nor
marked is a silent difference, and the run fails with the step that made it.
"""

from __future__ import annotations

import collections
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import psycopg

from deploy.local.stack import Stack
from tests.fixtures.choice import server_folder
from tests.life.ddl_actions import PARTITIONED, PLAIN, Catalog, choose
from tests.life.ddl_world import CHAINS, QUERIES, Connection, World

WAIT_S = 40
"""How long a stream table may be behind after a step before it counts as stuck: a copy and a full difference fit."""


FILL_S = 240
"""How long the first fill of all stream tables, and the way back after a kill, may take."""

AFTER_REPAIR = ("reinitialize", "create")
"""A stream table that differs after one of these is left as it is: another attempt would tell nothing new."""


@dataclass
class Outcome:
    """What a run found."""

    steps: int = 0
    compared: int = 0
    refused: int = 0
    worlds: int = 1
    marked: collections.Counter[str] = field(default_factory=collections.Counter)
    repaired: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        marked = ", ".join(f"{n} {code}" for code, n in self.marked.most_common()) or "none"
        repaired = ", ".join(f"{n} by {how}" for how, n in self.repaired.most_common()) or "none"
        return (
            f"{self.steps} steps ({self.refused} refused by PostgreSQL), {self.compared} comparisons, {self.worlds} "
            f"schemas; marked: {marked}; repaired: {repaired}; silent differences or stuck: {len(self.failures)}"
        )


class Fuzz:
    """One run on one stack."""

    def __init__(self, stack: Stack, seed: int, major: int, log: Path | None) -> None:
        self._stack = stack
        self._rng = random.Random(seed)
        self._connection: Connection = psycopg.connect(stack.addresses.database_url, autocommit=True)
        self._world = World(self._connection)
        self._major = major
        self._log = log
        self.outcome = Outcome()
        self._build()

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _build(self) -> None:
        self._world.build()
        found = self._connection.execute(
            "SELECT relname, oid::int8 FROM pg_class WHERE relnamespace = 'world'::regnamespace AND relname = ANY (%s)",
            ([*PLAIN, *PARTITIONED],),
        ).fetchall()
        oids = {str(name): int(str(oid)) for name, oid in found}
        self._catalog = Catalog(self._connection, self._rng, oids, self._major)
        for name in self._world.texts:
            self._wait(name, FILL_S)
        self._judge("the schema is new")

    def step(self) -> None:
        """Make one change and judge all stream tables."""
        self.outcome.steps += 1
        name, text = choose(self._catalog)
        refused = self._world.change(text)
        self.outcome.refused += bool(refused)
        self._say(f"{self.outcome.steps} {name}: {text}{f'  -- refused: {refused}' if refused else ''}")
        self._judge(f"step {self.outcome.steps}, {name}: {text}")
        alive = len(self._world.texts) - len(self._world.lost)
        if alive < len(QUERIES) // 2:
            self._say("the schema is made anew")
            self.outcome.worlds += 1
            self._build()

    def restart(self, part: str) -> None:
        """Kill a program and start it again; what it missed is judged at the next step."""
        self._say(f"kill {part}")
        self._stack.kill(part)
        self._stack.restart(part)
        for name in self._world.texts:
            self._wait(name, FILL_S)
        self._judge(f"{part} was killed")

    def _judge(self, after: str) -> None:
        names = [name for name in (*QUERIES, *CHAINS) if name in self._world.texts]
        for name in names:
            why = self._wait(name)
            if why is None and any(other in CHAINS.get(name, "") for other in self._world.lost.keys() - {name}):
                # It is planned over the query of the other one, as over a view, and that has no oracle any more.
                self._say(f"  {name} cannot be judged")
            elif why is None and name in self._world.lost:
                self._fail(name, after, f"it looks fresh, and its query cannot be run: {self._world.lost[name]}")
            elif why is None:
                self._compare(name, after)
            elif why == "timeout":
                self._fail(name, after, f"still behind after {WAIT_S} s: {self._status(name)}")
            else:
                self.outcome.marked[why] += 1
                self._say(f"  {name} is marked: {self._status(name)}")
        for name in names:
            if self._status(name).startswith("SUSPENDED") or name in self._world.lost:
                self._repair(name)

    def _wait(self, name: str, limit_s: int = WAIT_S) -> str | None:
        """Wait until a stream table is fresh -> None, 'timeout', or the class of the error that it is marked with."""
        try:
            self._connection.execute(
                "SELECT pgtrickle.wait_for(%s, timeout => make_interval(secs => %s))", (f"world.{name}", limit_s)
            )
        except psycopg.errors.QueryCanceled:
            return "timeout"
        except psycopg.errors.ObjectNotInPrerequisiteState:
            rows = self._connection.execute(
                "SELECT last_error_code FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'world' AND pgt_name = %s",
                (name,),
            ).fetchall()
            return str(rows[0][0]) if rows else "gone"
        return None

    def _compare(self, name: str, after: str) -> None:
        self.outcome.compared += 1
        only = "SELECT count(*) FROM (SELECT (a.*)::text FROM {} a EXCEPT ALL SELECT (b.*)::text FROM {} b) d"
        oracle, table = f"world.oracle_{name}", f"world.{name}"
        text = f"SELECT ({only.format(oracle, table)}), ({only.format(table, oracle)})"
        found = self._connection.execute(text.encode()).fetchall()[0]
        if found != (0, 0):
            self._fail(name, after, f"{found[0]} rows missing, {found[1]} unexpected; {self._status(name)}")
            if after not in AFTER_REPAIR:
                self._create_again(name)

    def _status(self, name: str) -> str:
        rows = self._connection.execute(
            "SELECT concat_ws(' ', status, last_error_code, last_error_message, '| hint:', last_error_hint)"
            " FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'world' AND pgt_name = %s",
            (name,),
        ).fetchall()
        return str(rows[0][0]) if rows else "gone"

    def _repair(self, name: str) -> None:
        """Repair a marked stream table in place; create it again where that is refused."""
        if name not in self._world.lost:
            try:
                self._connection.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (f"world.{name}",))
            except psycopg.Error as error:
                self._say(f"  {name}: reinitialize refused: {str(error).splitlines()[0]}")
            else:
                if self._wait(name) is None:
                    self.outcome.repaired["reinitialize"] += 1
                    self._compare(name, "reinitialize")
                    return
        self._create_again(name)

    def _create_again(self, name: str) -> None:
        readers = [other for other in CHAINS if name in CHAINS[other] and other in self._world.texts]
        try:
            for one in (*readers, name):
                self._connection.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (f"world.{one}",))
        except psycopg.Error as error:
            self._say(f"  {name}: {str(error).splitlines()[0]}")
        for one in (name, *readers):
            text = self._world.texts.get(one, "").replace("oracle_st_", "st_").rstrip("; \n")
            self._connection.execute(f"DROP VIEW IF EXISTS world.oracle_{one} CASCADE".encode())
            try:
                self._world.create(one, text)
            except psycopg.Error as error:
                self._say(f"  {one} cannot be created again: {str(error).splitlines()[0]}")
                self._world.texts.pop(one, None)
                self._world.lost.pop(one, None)
                continue
            self.outcome.repaired["create"] += 1
            why = self._wait(one)
            if why == "timeout":
                self._fail(one, "create", f"not filled after {WAIT_S} s: {self._status(one)}")
            elif why is None:
                self._compare(one, "create")

    def _fail(self, name: str, after: str, what: str) -> None:
        line = f"{name} after {after}: {what}"
        self.outcome.failures.append(line)
        self._say(f"  FAILED {line}")

    def _say(self, line: str) -> None:
        if self._log is not None:
            with self._log.open("a") as out:
                print(time.strftime("%H:%M:%S"), line, file=out, flush=True)


@click.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--steps", default=2_000, show_default=True)
@click.option("--restart-every", default=150, show_default=True, help="Steps between two kills; 0 for none.")
@click.option("--major", default=18, show_default=True, help="PostgreSQL's major version.")
@click.option("--log", type=click.Path(path_type=Path), default=None, help="Where each step is written.")
def main(seed: int, steps: int, restart_every: int, major: int, log: Path | None) -> None:
    """Run the fuzz; the exit code is 1 when a stream table was silently different, or stuck."""
    with server_folder("ddl") as folder, Stack(folder, major=major, durable=False, say=lambda _: None) as stack:
        fuzz = Fuzz(stack, seed, major, log)
        began = time.monotonic()
        for number in range(1, steps + 1):
            fuzz.step()
            if restart_every and number % restart_every == 0:
                fuzz.restart(("applier", "cdc")[number // restart_every % 2])
            if number % 50 == 0:
                click.echo(f"{(time.monotonic() - began) / 60:5.1f} min: {fuzz.outcome}")
        fuzz.close()
    click.echo(f"seed {seed}, PostgreSQL {major}: {fuzz.outcome}")
    for line in fuzz.outcome.failures:
        click.echo(f"  {line}")
    sys.exit(1 if fuzz.outcome.failures else 0)


if __name__ == "__main__":
    main()
