"""`python -m tests.life.ddl_fuzz --seed s --steps n`: random DDL and rows; every stream table is equal, or marked.

A step is one change or a few, some in transactions that end in ROLLBACK, while another session writes rows. In the
quiet moment after it every stream table whose `wait_for` returns must have the rows of its oracle. One that is
suspended says why: code, message and hint. It is repaired in place where that is not refused, else what stands in the
way is undone, and at last it is created again. A stream table that is neither equal nor marked is a silent difference,
and the run fails with the step that made it. Now and then programs are killed and started again, with DDL between both,
and Delta and the topics are compared too.
"""

from __future__ import annotations

import collections
import random
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import psycopg

from deploy.local.stack import Stack
from tests import oracle
from tests.fixtures.choice import server_folder
from tests.fixtures.roles import StackOfRoles
from tests.life.ddl_actions import Catalog, choose, some_rows
from tests.life.ddl_world import (
    AUTHOR,
    BELOW,
    DEFINITIONS,
    Connection,
    World,
    as_superuser,
    oracle_text,
    query_text,
)
from tests.life.ddl_writer import Writer

WAIT_S = 60
"""How long a stream table may be behind after a step before it counts as stuck: a copy and a full difference fit."""

FILL_S = 300
"""How long the first fill of all stream tables, and the way back after a kill, may take."""

STATEMENT_S = 60
"""How long one change may take: longer means that it waits for something of ours."""

CONSUMER_ENDS_S = 15
"""How long the consumer may go on without its publication: it looks every few seconds."""

PARTS = (("applier",), ("cdc",), ("applier",), ("cdc",), ("applier", "cdc"), ("kafka",), ("cdc",), ("postgres",))
"""What is killed, in turns."""

_AWAIT = """
CREATE SCHEMA IF NOT EXISTS fuzz;
CREATE OR REPLACE FUNCTION fuzz.await(names text[], give_up timestamptz) RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql AS $$
DECLARE
    target pg_lsn := pg_current_wal_insert_lsn();
BEGIN
    FOREACH name IN ARRAY names LOOP
        BEGIN
            PERFORM pgtrickle.wait_for('world.' || name, target, greatest(give_up - clock_timestamp(), '0.1 s'));
            outcome := 'fresh';
        EXCEPTION
            WHEN query_canceled THEN outcome := 'stuck';
            WHEN object_not_in_prerequisite_state THEN outcome := 'marked';
            WHEN undefined_table OR undefined_object THEN outcome := 'gone';
        END;
        RETURN NEXT;
    END LOOP;
END $$
"""

_STATES = """
SELECT pgt_name, status, coalesce(last_error_code, ''), coalesce(last_error_message, ''), coalesce(last_error_hint, ''),
    defining_query
FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'world'
"""


@dataclass
class Outcome:
    """What a run found."""

    steps: int = 0
    changes: int = 0
    compared: int = 0
    refused: int = 0
    worlds: int = 1
    kills: int = 0
    places: int = 0
    marked: collections.Counter[str] = field(default_factory=collections.Counter)
    repaired: collections.Counter[str] = field(default_factory=collections.Counter)
    actions: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        marked = ", ".join(f"{n} {code}" for code, n in self.marked.most_common()) or "none"
        repaired = ", ".join(f"{n} by {how}" for how, n in self.repaired.most_common()) or "none"
        return (
            f"{self.steps} steps, {self.changes} changes of {len(self.actions)} kinds ({self.refused} refused by "
            f"PostgreSQL), {self.kills} kills, {self.compared} comparisons, {self.places} of Delta and topics, "
            f"{self.worlds} schemas; marked: {marked}; repaired: {repaired}; silent differences or stuck: "
            f"{len(self.failures)}"
        )


@dataclass(frozen=True)
class State:
    """What the catalog says about a stream table."""

    status: str
    code: str
    message: str
    hint: str
    query: str

    def __str__(self) -> str:
        return f"{self.status} {self.code} {self.message} | hint: {self.hint}"


class Stuck(Exception):
    """A stream table does not advance any more: further steps would tell nothing new."""


class Fuzz:
    """One run on one stack."""

    def __init__(self, stack: Stack, seed: int, major: int, log: Path | None) -> None:
        self._stack = stack
        self._rng = random.Random(seed)
        self._major = major
        self._log = log
        self.outcome = Outcome()
        self._world = World(self._connect())
        self._writer = Writer(stack.addresses.database_url, self._world, seed, major)
        with as_superuser(self._connection):
            self._connection.execute(f"CREATE ROLE {AUTHOR}".encode())
            # Whoever maintains its stream tables is a member of their owner.
            for role in ("trickle_owner", "trickle_cdc"):
                if self._connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).rowcount:
                    self._connection.execute(f"GRANT {AUTHOR} TO {role}".encode())
        self._connection.execute(_AWAIT.encode())
        self._build()

    @property
    def _connection(self) -> Connection:
        return self._world.connection

    def _connect(self) -> Connection:
        connection: Connection = psycopg.connect(self._stack.addresses.database_url, autocommit=True)
        connection.execute(f"SET statement_timeout = '{STATEMENT_S} s'".encode())
        return connection

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _build(self) -> None:
        self._world.build()
        self._catalog = Catalog(self._connection, self._rng, self._world, self._major)
        self._judge("the schema is new", FILL_S)

    def step(self) -> None:
        """Make one change or a few beside a writer, and judge all stream tables."""
        self.outcome.steps += 1
        size = self._rng.choice((1, 1, 1, 1, 2, 3))
        before = self._states()
        with self._writer.writing():
            made = [self._change() for _ in range(size)]
        after = f"step {self.outcome.steps}: {' / '.join(text for text, _ in made)}"
        if any(_ends_the_consumer(text) and not undone for text, undone in made):
            self._outlive_the_consumer(after)
        self._judge(after, is_undone=all(undone for _, undone in made), before=before)
        if len(self._world.names) - len(self._world.lost) < len(DEFINITIONS) // 2:
            self._rebuild("too few stream tables are left")

    def _change(self) -> tuple[str, bool]:
        """Make one change -> it, and whether it was undone by a ROLLBACK."""
        name, text = choose(self._catalog)
        undone, draw = False, self._rng.random()
        if not text.startswith(("BEGIN", "VACUUM", "CLUSTER")) and "CONCURRENTLY" not in text:
            rows = some_rows(self._catalog) or "SELECT 1"
            if draw < 0.06:
                text, undone = f"BEGIN; {text}; {rows}; ROLLBACK", True
            elif draw < 0.2:
                more = some_rows(self._catalog) or "SELECT 1"
                text = f"BEGIN; {rows}; {text}; {more}; COMMIT"
        self.outcome.changes += 1
        self.outcome.actions[name] += 1
        try:
            refused = self._world.change(text)
        except TimeoutError as error:
            self._fail("PostgreSQL", f"step {self.outcome.steps}", str(error))
            refused = str(error)
        self.outcome.refused += bool(refused)
        self._say(f"{self.outcome.steps} {name}: {text}{f'  -- refused: {refused}' if refused else ''}")
        return text, undone or bool(refused)

    def restart(self) -> None:
        """Kill one part or two, alter something meanwhile, start them again, and judge."""
        parts = PARTS[self.outcome.kills % len(PARTS)]
        self.outcome.kills += 1
        self._say(f"kill {' and '.join(parts)}")
        for part in parts:
            self._stack.kill(part)
        if "postgres" in parts:
            self._stack.restart("postgres")
            self._world.connection = self._connect()
            self._catalog.connection = self._world.connection
        made = [self._change()[0] for _ in range(self._rng.randrange(1, 4))]
        for part in parts:
            if part != "postgres":
                self._stack.restart(part)
        self._judge(f"{' and '.join(parts)} killed, then {' / '.join(made)}", FILL_S)

    def _outlive_the_consumer(self, after: str) -> None:
        """Without its publication the consumer may end: then nothing looks fresh, until it was mended and restarted."""
        give_up = time.monotonic() + CONSUMER_ENDS_S
        while self._stack.binaries["cdc"].running:
            if time.monotonic() > give_up:
                return
            time.sleep(0.1)
        for name, outcome in self._await(self._world.names, 2).items():
            if outcome == "fresh":
                self._fail(name, after, "it looks fresh, and the consumer has ended")
        self.outcome.repaired["resync"] += 1
        self._stack.binaries["cdc"].run_once("resync", "--yes")
        said = Path(self._stack.addresses.cdc_log).read_text()
        call = said.rfind("SELECT pgtrickle.note_resync(")
        if call > 0:
            self._connection.execute(said[call:].partition("\n")[0].encode())
        self._world.heal()
        self._stack.restart("cdc")

    def compare_places(self) -> None:
        """Compare Delta and the topics with the queries of the stream tables that are in service."""
        states = self._states()
        fresh = [name for name, state in states.items() if state.status == "ACTIVE"]
        judged = oracle.judge(self._stack.addresses, fresh, places=("Delta", "topic"), limit_s=WAIT_S, follow_s=60)
        self.outcome.places += judged.tables
        for difference in judged.differences:
            self._fail(difference.table.name, f"step {self.outcome.steps}", str(difference))

    def _rebuild(self, why: str) -> None:
        self._say(f"the schema is made anew: {why}")
        self.outcome.worlds += 1
        self._build()

    def _judge(
        self, after: str, limit_s: int = WAIT_S, *, is_undone: bool = False, before: dict[str, State] | None = None
    ) -> None:
        """Wait for all stream tables, compare them, and repair those that are marked."""
        found = self._await(self._world.names, limit_s)
        states = self._states()
        fresh = [name for name, outcome in found.items() if outcome == "fresh" and states[name].status != "PAUSED"]
        for name in fresh:
            if name in self._world.lost and not self._is_below_lost(name):
                self._fail(name, after, f"it looks fresh, and its query cannot be run: {self._world.lost[name]}")
        self._compare([name for name in fresh if name not in self._world.lost], after, states)
        if stuck := [name for name, outcome in found.items() if outcome == "stuck"]:
            self._fail(", ".join(stuck), after, f"still behind after {limit_s} s: {states.get(stuck[0])}")
            raise Stuck
        to_repair = []
        for name, outcome in found.items():
            state = states.get(name)
            if state is None:
                self._fail(name, after, "it is gone")
            elif outcome == "marked":
                self._note_mark(name, state, after)
                if is_undone and before and before[name].status == "ACTIVE":
                    self._fail(name, after, f"marked, and nothing was changed: {state}")
            if state is None or state.status == "SUSPENDED" or name in self._world.lost:
                to_repair.append(name)
        if to_repair:
            self._repair(to_repair)

    def _note_mark(self, name: str, state: State, after: str) -> None:
        self.outcome.marked[state.code or "nothing"] += 1
        self._say(f"  {name} is marked: {state}")
        if not (state.code and state.message and state.hint):
            self._fail(name, after, f"marked without code, message or hint: {state}")

    def _is_below_lost(self, name: str) -> bool:
        """Whether it reads a stream table that has no oracle: it is planned over its query, as over a view."""
        return any(below in self._world.lost for below in BELOW.get(name, ()))

    def _await(self, names: Sequence[str], limit_s: int) -> dict[str, str]:
        """Wait until stream tables are fresh -> per name 'fresh', 'marked', 'stuck' or 'gone'."""
        self._connection.execute("SET statement_timeout = 0")
        try:
            rows = self._connection.execute(
                "SELECT name, outcome FROM fuzz.await(%s, clock_timestamp() + make_interval(secs => %s))",
                (list(self._not_paused(names)), limit_s),
            ).fetchall()
        finally:
            self._connection.execute(f"SET statement_timeout = '{STATEMENT_S} s'".encode())
        return {str(name): str(outcome) for name, outcome in rows}

    def _not_paused(self, names: Iterable[str]) -> Iterable[str]:
        states = self._states()
        return [name for name in names if name not in states or states[name].status != "PAUSED"]

    def _states(self) -> dict[str, State]:
        rows = self._connection.execute(_STATES.encode()).fetchall()
        return {str(row[0]): State(*(str(value) for value in row[1:])) for row in rows}

    def _compare(self, names: Sequence[str], after: str, states: dict[str, State], *, again: bool = True) -> None:
        """Compare stream tables with their oracles in one statement."""
        if not names:
            return
        counts = self._pin_stars(names, after, states)
        rows_of = "SELECT (r.*)::text FROM world.{} r"
        only = f"SELECT count(*) FROM ({rows_of} EXCEPT ALL {rows_of}) d"
        parts = [
            f"SELECT '{name}', ({only.format(f'oracle_{name}', name)}), ({only.format(name, f'oracle_{name}')})"
            for name in names
            if name not in self._world.lost
        ]
        rows = self._connection.execute(" UNION ALL ".join(parts).encode()).fetchall()
        self.outcome.compared += len(rows)
        different = [(str(name), missing, more) for name, missing, more in rows if (missing, more) != (0, 0)]
        if any(self._world.count_columns(name) != counts[name] for name, _, _ in different if name in counts):
            # New columns came between both.
            self._compare(names, after, self._states(), again=again)
            return
        for name, missing, more in different:
            self._fail(name, after, f"{missing} rows missing, {more} unexpected; {states[name]}")
        if different and again:
            self._create_again([name for name, _, _ in different])

    def _pin_stars(self, names: Iterable[str], after: str, states: dict[str, State]) -> dict[str, int]:
        """Write the oracles of stream tables over `*`, which may have got columns -> how many columns each has."""
        counts = {}
        for name in [name for name in names if name in self._world.stars]:
            counts[name] = self._world.count_columns(name)
            if not self._world.pin_star(name):
                self._fail(name, after, f"it looks fresh, and it has not the columns of its source: {states[name]}")
        return counts

    def _repair(self, names: Sequence[str]) -> None:
        """Repair in place, then again with what stands in the way undone; create again where that is refused too."""
        left = self._reinitialize(names)
        if left:
            try:
                self._world.heal()
            except psycopg.Error as error:
                self._rebuild(f"it cannot be healed: {str(error).splitlines()[0]}")
                return
            left = self._reinitialize(left)
        if left:
            self._create_again(left)

    def _reinitialize(self, names: Sequence[str]) -> list[str]:
        """Repair stream tables in place -> those for which it is refused."""
        asked, left = [], []
        for name in names:
            try:
                self._connection.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (f"world.{name}",))
            except psycopg.Error as error:
                self._say(f"  {name}: reinitialize refused: {str(error).splitlines()[0]}")
                left.append(name)
            else:
                asked.append(name)
        found = self._await(asked, WAIT_S)
        states = self._states()
        for name, outcome in found.items():
            if outcome == "stuck":
                self._fail(name, "reinitialize", f"still behind after {WAIT_S} s: {states[name]}")
            elif outcome == "marked":
                self._note_mark(name, states[name], "reinitialize")
                left.append(name)
            elif name in self._world.stars and not self._world.pin_star(name):
                # Which columns it reads now only its stored text says.
                left.append(name)
            elif outcome == "fresh" and name in self._world.stars and states[name].status == "ACTIVE":
                self.outcome.repaired["reinitialize"] += 1
            elif outcome == "fresh" and states[name].status == "ACTIVE":
                # It reads now what its text names.
                self._world.set_oracle(name, oracle_text(states[name].query))
                self.outcome.repaired["reinitialize"] += 1
        repaired = [
            name for name, o in found.items() if o == "fresh" and name not in self._world.lost and name not in left
        ]
        self._compare(repaired, "reinitialize", states)
        return left

    def _create_again(self, names: Sequence[str]) -> None:
        """Create stream tables again, and those that read them."""
        chosen = [one for one in self._world.names if one in names or set(BELOW.get(one, ())) & set(names)]
        for name in reversed(chosen):
            try:
                self._connection.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (f"world.{name}",))
            except psycopg.Error as error:
                self._say(f"  {name}: {str(error).splitlines()[0]}")
        made = [name for name in chosen if self._create(name)]
        self.outcome.repaired["create"] += len(made)
        found, states = self._await(made, FILL_S), self._states()
        for name, outcome in found.items():
            if outcome == "stuck":
                self._fail(name, "create", f"not filled after {FILL_S} s: {states[name]}")
        self._compare([name for name in made if found.get(name) == "fresh"], "create", states, again=False)

    def _create(self, name: str) -> bool:
        texts = [query_text(self._world.texts[name]), DEFINITIONS[name].query]
        if DEFINITIONS[name].evolves and "*" in DEFINITIONS[name].query:
            texts.reverse()
        self._connection.execute(f"DROP VIEW IF EXISTS world.oracle_{name} CASCADE".encode())
        for text in texts:
            try:
                self._world.create(name, text)
                return True
            except psycopg.Error as error:
                self._say(f"  {name} cannot be created again: {str(error).splitlines()[0]}")
        self._world.texts.pop(name, None)
        self._world.lost.pop(name, None)
        return False

    def _fail(self, name: str, after: str, what: str) -> None:
        line = f"{name} after {after}: {what}"
        self.outcome.failures.append(line)
        self._say(f"  FAILED {line}")

    def _say(self, line: str) -> None:
        if self._log is not None:
            with self._log.open("a") as out:
                print(time.strftime("%H:%M:%S"), line, file=out, flush=True)


def _ends_the_consumer(text: str) -> bool:
    ends = "DROP PUBLICATION IF", "publish_via_partition_root = true", "_too"
    return "PUBLICATION" in text and any(end in text for end in ends)


def stack_of(folder: Path, major: int, *, event_triggers: bool) -> Stack:
    """Return the stack of a run: the owner may create event triggers, or is no superuser."""
    kind = Stack if event_triggers else StackOfRoles
    return kind(folder, major=major, durable=False, say=lambda _: None)


@click.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--steps", default=2_000, show_default=True)
@click.option("--minutes", default=0.0, help="End earlier, after this time.")
@click.option("--restart-every", default=150, show_default=True, help="Steps between two kills; 0 for none.")
@click.option("--places-every", default=100, show_default=True, help="Steps between two looks at Delta and the topics.")
@click.option("--major", default=18, show_default=True, help="PostgreSQL's major version.")
@click.option("--event-triggers/--no-event-triggers", default=True, show_default=True)
@click.option("--log", type=click.Path(path_type=Path), default=None, help="Where each step is written.")
def main(
    seed: int,
    steps: int,
    minutes: float,
    restart_every: int,
    places_every: int,
    major: int,
    event_triggers: bool,
    log: Path | None,
) -> None:
    """Run the fuzz; the exit code is 1 when a stream table was silently different, or stuck."""
    with server_folder("ddl") as folder, stack_of(folder, major, event_triggers=event_triggers) as stack:
        fuzz = Fuzz(stack, seed, major, log)
        began, in_steps = time.monotonic(), 0.0
        try:
            for number in range(1, steps + 1):
                if minutes and time.monotonic() - began > minutes * 60:
                    break
                at = time.monotonic()
                fuzz.step()
                in_steps += time.monotonic() - at
                if restart_every and number % restart_every == 0:
                    fuzz.restart()
                if places_every and number % places_every == 0:
                    fuzz.compare_places()
                if number % 50 == 0 or number == steps:
                    passed_min, step_ms = (time.monotonic() - began) / 60, in_steps / number * 1000
                    click.echo(f"{passed_min:5.1f} min, {step_ms:.0f} ms a step: {fuzz.outcome}")
        except Stuck:
            click.echo("it ends: a stream table is stuck")
        fuzz.close()
        if fuzz.outcome.failures and log is not None:
            for part in (stack.addresses.applier_log, stack.addresses.cdc_log):
                shutil.copy(part, log.with_suffix(f".{Path(part).name}"))
    click.echo(f"seed {seed}, PostgreSQL {major}: {fuzz.outcome}")
    for line in fuzz.outcome.failures:
        click.echo(f"  {line}")
    sys.exit(1 if fuzz.outcome.failures else 0)


if __name__ == "__main__":
    main()
