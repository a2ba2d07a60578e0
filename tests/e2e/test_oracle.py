"""The oracle and the `check` command: both accept equal stream tables and find a difference in each place."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import urllib.request

import psycopg
import pytest
from deltalake import DeltaTable

from applier.catalog.database import Database
from applier.runtime.self_check import SelfCheck
from deploy.local.binary import APPLIER
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle
from tests.fixtures.alerts import next_alert
from tests.workloads.workload import load

Connection = psycopg.Connection[tuple[object, ...]]

OWN = ["s_bag", "s_sums", "s_top", "s_outer"]


def command(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pg-trickle-applier check …`."""
    environment = os.environ | stack.binaries["applier"].settings
    return subprocess.run(
        APPLIER.command("check", *arguments), env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def small(db: Connection) -> Connection:
    """Create the small workload and run a few transactions."""
    db.execute("SELECT pgtrickle.set_setting('self_check_interval_s', '1')")
    workload = load("small")
    workload.create_tables(db)
    workload.create_stream_tables(db)
    chance = random.Random(5)
    for _ in range(20):
        db.execute(workload.transaction(chance).encode())
    return db


def test_all_judges_agree_and_find_what_is_wrong(small: Connection, stack: Stack) -> None:
    verdict = oracle.judge(stack.addresses, OWN)
    assert verdict.equal, verdict
    assert verdict.rows > 200
    checked = command(stack)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "public.s_sums: equal at" in checked.stdout

    # Change one value in PostgreSQL without the applier.
    small.execute("SELECT pgtrickle.allow_direct_dml('s_sums')")
    small.execute("UPDATE s_sums SET total = total + 0.01 WHERE id = (SELECT min(id) FROM s_sums)")
    changed = oracle.judge(stack.addresses, ["s_sums"], follow_s=1)
    assert [(d.place, d.lost, d.doubled) for d in changed.differences] == [("PostgreSQL", 1, 1)]
    for flags in ([], ["--sample", "50"]):
        checked = command(stack, "s_sums", *flags)
        assert checked.returncode == 1
        assert "DIFFERENT" in checked.stdout and "  unexpected (" in checked.stdout

    with psycopg.connect(stack.addresses.database_url, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        check = SelfCheck(Database(stack.addresses.database_url), lambda: 1.0).check
        assert check(TableId("public", "s_sums"), threading.Event()) == "different"
        assert check(TableId("public", "s_outer"), threading.Event()) == "equal"
        # The applier checks too, and may find s_top first, which reads s_sums.
        next_alert(listener, "different", said="public.s_sums")

    # Add an extra row in Delta.
    path = f"{stack.addresses.delta_root}/public/s_bag"
    DeltaTable(path).delete("grp = 3")
    lacking = oracle.judge(stack.addresses, ["s_bag"], follow_s=1)
    assert [d.place for d in lacking.differences] == ["Delta"] and lacking.differences[0].lost > 0
    small.execute("SELECT pgtrickle.reset_setting('self_check_interval_s')")
    with urllib.request.urlopen(stack.addresses.applier_metrics, timeout=10) as answer:
        assert "pg_trickle_self_checks_total{" in answer.read().decode()


def test_a_suspended_stream_table_is_no_success(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE divided (id int PRIMARY KEY, v int); INSERT INTO divided VALUES (1, 1)")
    db.execute("SELECT pgtrickle.create_stream_table('quotients', 'SELECT id, 10 / v AS q FROM divided')")
    db.execute("SELECT pgtrickle.wait_for('quotients')")
    db.execute("INSERT INTO divided VALUES (2, 0)")
    with pytest.raises(psycopg.Error, match=r"(?i)division by zero"):
        db.execute("SELECT pgtrickle.wait_for('quotients')")
    checked = command(stack, "quotients")
    assert checked.returncode == 1
    assert "public.quotients: SUSPENDED: " in checked.stdout and "division by zero" in checked.stdout.lower()
