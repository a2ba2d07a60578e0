"""`make up` and `make down` of another checkout, next to the stack of the other tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId

PACKAGES = ("applier", "cdc_consumer", "deploy", "shared_schema")


class Checkout:
    """A copy of the project: the commands that `make` runs find their stack in the same folder as the code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for package in PACKAGES:
            shutil.copytree(package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, command: str) -> str:
        """Run `python -m deploy.local <command>`; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "deploy.local", command],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def up(self) -> None:
        """Start the stack."""
        self.run("up")

    @property
    def env(self) -> dict[str, str]:
        """Return the content of `.stack/env`."""
        lines = (self.folder / ".stack" / "env").read_text().splitlines()
        return dict(line.replace("'", "").partition("=")[::2] for line in lines)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    checkout = Checkout(tmp_path / "checkout")
    yield checkout
    checkout.run("down")


def test_up_down_up_keeps_everything_next_to_another_stack(stack: Stack, checkout: Checkout) -> None:
    checkout.up()
    names = {
        "DATABASE_URL",
        "KAFKA_BOOTSTRAP",
        "DELTA_ROOT",
        "CDC_METRICS",
        "APPLIER_METRICS",
        "CDC_LOG",
        "APPLIER_LOG",
    }
    assert names <= checkout.env.keys()
    assert checkout.env["DATABASE_URL"] != stack.addresses.database_url
    with psycopg.connect(checkout.env["DATABASE_URL"], autocommit=True) as db:
        db.execute("CREATE TABLE kept (id int PRIMARY KEY, v int)")
        db.execute("INSERT INTO kept SELECT i, i % 3 FROM generate_series(1, 9) i")
        db.execute("SELECT pgtrickle.create_stream_table('counted', 'SELECT v, count(*) AS n FROM kept GROUP BY v')")
        assert check_stream_table(db, TableId("public", "counted")).equal
        # Written just before the end: `down` must not lose changes that are not refreshed yet.
        db.execute("UPDATE kept SET v = 7 WHERE id < 4")
    assert "stopped" in checkout.run("down")
    assert not (checkout.folder / ".stack" / "env").exists()

    checkout.up()
    with psycopg.connect(checkout.env["DATABASE_URL"], autocommit=True) as db:
        db.execute("DELETE FROM kept WHERE id = 9")
        checked = check_stream_table(db, TableId("public", "counted"))
        assert checked.equal and checked.rows == 4, checked
