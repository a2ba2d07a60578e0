"""Upgrades stored installations of earlier versions: nothing is lost and nothing is computed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deploy.local.stack import Stack
from tests import oracle
from tests.fixtures import choice
from tests.upgrade.archive import Installation, installations, unpack

Connection = psycopg.Connection[tuple[object, ...]]

# All tests share one start of the stack, and the first test waits for it.
pytestmark = pytest.mark.timeout(900)

RESTING = ("PAUSED", "SUSPENDED")

SINKS_LIMIT_S = 60.0
"""How long Delta and the topic may take to become equal to PostgreSQL."""

_OUTBOX_NAMES = ("pgtrickle.pgt_outbox", "pgtrickle.pgt_owed")
"""The names of the outbox table, newest first: it was named pgt_owed until migration 7."""


@dataclass
class Takeover:
    """The stack of this version on the folder of an earlier one, and the facts stored with that folder."""

    stack: Stack
    db: Connection
    facts: dict[str, Any]
    rest: list[list[str]] = field(default_factory=list)
    """The parts of the workload that are still to be run."""

    def named(self, *statuses: str) -> dict[str, dict[str, Any]]:
        """Return the stream tables that had one of the statuses."""
        return {t["pgt_name"]: t for t in self.facts["stream_tables"] if t["status"] in statuses}

    def write(self) -> None:
        """Run the next part of the workload."""
        for statement in self.rest.pop(0):
            self.db.execute(statement.encode())

    def wait(self, tables: Iterable[dict[str, Any]]) -> None:
        for table in tables:
            self.db.execute(
                "SELECT pgtrickle.wait_for(format('%%I.%%I', %s::text, %s::text), timeout => '300 s')",
                (table["pgt_schema"], table["pgt_name"]),
            )

    def one(self, query: str, *arguments: object) -> Any:
        row = self.db.execute(query.encode(), arguments or None).fetchone()
        return row[0] if row else None

    def catalog(self) -> dict[str, dict[str, Any]]:
        """Return the current catalog entry of each stream table, by name."""
        cursor = self.db.execute(
            "SELECT s.pgt_name, s.pgt_schema, s.status, s.refresh_mode, s.schedule, s.visibility, s.full_policy,"
            " s.append_only, s.defining_query, s.last_error_message, f.frontier::text, s.downstream_publication_name"
            " FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
        )
        names = [column.name for column in cursor.description or ()]
        return {str(row[0]): dict(zip(names, row, strict=True)) for row in cursor.fetchall()}

    def actions(self, name: str) -> set[str]:
        """Return the actions of all refreshes since the upgrade."""
        found = self.db.execute(
            "SELECT h.action FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)"
            " WHERE s.pgt_name = %s AND h.refresh_id > %s",
            (name, self.facts["last_refresh"]),
        ).fetchall()
        return {str(row[0]) for row in found}

    def compare_restarted_topic(self, name: str) -> None:
        """Compare a stream table with new columns: everything but the order of the stamps.

        Its topic begins again, and its first LSN range may be at the position of the last one before.
        """
        judged = oracle.judge(self.stack.addresses, [name], places=("PostgreSQL", "Delta"), follow_s=SINKS_LIMIT_S)
        assert judged.equal, str(judged)
        topic = oracle.TopicReplay(
            self.stack.addresses.kafka_bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas"
        )
        expected = oracle.query_result(self.db, name)
        oracle.eventually(lambda: oracle.assert_same(expected, topic.catch_up(), "topic"), SINKS_LIMIT_S)

    def outbox_rows(self) -> int:
        """Return how many of the deltas that were in the outbox before the upgrade are still there."""
        table = next(name for name in _OUTBOX_NAMES if self.one("SELECT to_regclass(%s) IS NOT NULL", name))
        newest = max((owed["new"] for owed in self.facts["owed"]), key=_lsn_as_int)
        return int(self.one(f"SELECT count(*) FROM {table} WHERE new_frontier <= %s::pg_lsn", newest))


def _lsn_as_int(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@pytest.fixture(scope="module", params=installations(), ids=str)
def takeover(request: pytest.FixtureRequest) -> Iterator[Takeover]:
    """Unpack into a new folder, on new ports, and start as after an upgrade: install, then run."""
    installation: Installation = request.param
    facts = installation.facts
    major = facts["postgres"]["major"]
    if choice.stack_choice() != choice.EMBEDDED:
        pytest.skip(f"the installation is a folder of PostgreSQL {major}: it needs the embedded server of that version")
    with choice.server_folder("upgrade") as folder:
        unpack(installation, folder)
        with (
            Stack(folder, major=major, durable=False) as stack,
            psycopg.connect(stack.addresses.database_url, autocommit=True) as db,
        ):
            yield Takeover(stack, db, facts, list(facts["more"]))
            if request.session.testsfailed:
                for part in (stack.addresses.applier_log, stack.addresses.cdc_log):
                    print(f"--- the end of {part}", *Path(part).read_text().splitlines()[-40:], sep="\n")


def test_everything_resumes_where_it_stopped(takeover: Takeover) -> None:
    before = {t["pgt_name"]: t for t in takeover.facts["stream_tables"]}
    assert {t["status"] for t in before.values()} == {"INITIALIZING", "ACTIVE", "PAUSED", "SUSPENDED"}
    assert takeover.one("SELECT max(version) FROM pgtrickle.pgt_schema_version") >= takeover.facts["catalog_version"]
    assert takeover.facts["owed"] and takeover.outbox_rows(), "the outbox is empty, so the test proves nothing about it"

    # These changes come after those that were written while no program ran.
    takeover.write()
    in_service = takeover.named("ACTIVE", "INITIALIZING")
    takeover.wait(in_service.values())
    restarted = [name for name, was in in_service.items() if was["being_rebuilt"]]
    judged = oracle.judge(
        takeover.stack.addresses, [name for name in in_service if name not in restarted], follow_s=SINKS_LIMIT_S
    )
    assert judged.equal, str(judged)
    assert judged.rows > 1000
    for name in restarted:
        takeover.compare_restarted_topic(name)

    now = takeover.catalog()
    assert now.keys() == before.keys()
    for name, was in before.items():
        same = ["refresh_mode", "schedule", "visibility", "full_policy", "append_only", "downstream_publication_name"]
        if was["status"] in RESTING:
            same += ["status", "last_error_message", "frontier", "defining_query"]
        elif not was["being_rebuilt"] and not was["new_query"]:
            same += ["defining_query"]
        assert {key: now[name][key] for key in same} == {key: was[key] for key in same}, name
        if name in in_service:
            assert now[name]["status"] == "ACTIVE" and now[name]["last_error_message"] is None, now[name]
        if was["new_query"]:
            assert now[name]["defining_query"] == was["new_query"], name
        if was["being_rebuilt"]:
            assert now[name]["defining_query"] != was["defining_query"], name


def test_maintained_queries_are_not_computed_again(takeover: Takeover) -> None:
    in_full, maintained = set(), set()
    for name, was in takeover.named("ACTIVE").items():
        if was["new_query"] or was["being_rebuilt"]:
            continue
        done = takeover.actions(name)
        assert done, f"{name} was not refreshed"
        if done == {"DIFFERENTIAL"}:
            maintained.add(name)
        else:
            in_full.add(name)
    # Those whose mode is FULL, and the one that only PostgreSQL can run.
    assert in_full == {name for name, was in takeover.named("ACTIVE").items() if was["executed"] != "DIFFERENTIAL"}
    assert len(maintained) > 10
    for name, was in takeover.named(*RESTING).items():
        assert not takeover.actions(name), f"{name} is {was['status']} and was refreshed"


def test_stored_settings_are_in_use(takeover: Takeover) -> None:
    stored = takeover.one("SELECT json_object_agg(name, value) FROM pgtrickle.pgt_settings")
    assert stored == takeover.facts["settings"]
    used = takeover.db.execute(
        "SELECT name, value FROM pgtrickle.settings() WHERE source = 'setting' AND NOT pending_restart"
    ).fetchall()
    assert dict((str(name), value) for name, value in used) == stored


def test_outbox_deltas_are_delivered_and_deleted(takeover: Takeover) -> None:
    """The first test checks that the deltas arrived in Delta; the next delta of a table deletes delivered ones."""
    takeover.write()
    takeover.wait(table for name, table in takeover.named("ACTIVE").items() if name in _outbox_table_names(takeover))
    assert takeover.outbox_rows() == 0


def _outbox_table_names(takeover: Takeover) -> set[str]:
    return {owed["table"] for owed in takeover.facts["owed"]}


def test_paused_and_suspended_tables_continue_when_resumed(takeover: Takeover) -> None:
    resting = {name: was for name, was in takeover.named(*RESTING).items() if was["frontier"]}
    assert {was["status"] for was in resting.values()} == set(RESTING)
    for statement in takeover.facts["repair"]:
        takeover.db.execute(statement.encode())
    for name in resting:
        takeover.db.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))
    takeover.wait(resting.values())
    judged = oracle.judge(takeover.stack.addresses, list(resting), follow_s=SINKS_LIMIT_S)
    assert judged.equal, str(judged)
    for name in resting:
        assert takeover.actions(name) == {"DIFFERENTIAL"}, name
    # The applier's own command checks all of them; it exits with an error if one differs or is suspended.
    takeover.stack.binaries["applier"].run_once("check")
