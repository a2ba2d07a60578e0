"""The demo's exit code shows whether every stream table equals its query."""

from __future__ import annotations

import psycopg
import pytest
from rich.console import Console

from applier.refresh.check import CheckResult, check_stream_table
from deploy.demo import __main__ as demo
from deploy.demo.shop import STREAM_TABLES, Writer
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId


@pytest.mark.usefixtures("db")
def test_a_difference_ends_the_demo_with_an_error(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = demo.watch
    checks_before: list[CheckResult] = []

    def watched_then_tampered(console: Console, connection: demo.Connection, writer: Writer) -> list[CheckResult]:
        checks = watch(console, connection, writer)
        writer.stop()
        checks_before.extend(check_stream_table(connection, TableId("public", name)) for name in STREAM_TABLES)
        with psycopg.connect(stack.addresses.database_url, autocommit=True) as meddler:
            meddler.execute("SELECT pgtrickle.allow_direct_dml('revenue_by_segment')")
            meddler.execute("UPDATE revenue_by_segment SET orders = orders + 1")
        return checks

    monkeypatch.setattr(demo, "watch", watched_then_tampered)
    monkeypatch.setattr(demo, "SECONDS", 2.0)
    monkeypatch.setattr(demo, "DELTA_LIMIT_S", 1.0)
    console = Console(width=110, record=True)
    assert demo.run_shop(console, stack) == 1
    assert all(checked.equal for checked in checks_before), "the difference must be ours"
    shown = console.export_text()
    assert "A STREAM TABLE DIFFERS FROM ITS QUERY" in shown
    assert "large_open_orders" in shown
