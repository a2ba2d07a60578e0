"""The progress report of a copy: log lines or a bar."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot import report
from cdc_consumer.snapshot.report import CopyReport
from shared_schema.table_schema import TableId

TABLE = TableId("public", "orders")


def left(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("pg_trickle_cdc_copy_rows_left", {"table": "public.orders"})


def test_log_lines_without_a_terminal(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LOG_EVERY_S", 0.0)
    metrics = Metrics(Health())
    with caplog.at_level(logging.INFO):
        copy_report = CopyReport(TABLE, 1000, 10, metrics)
        copy_report.advance(250, 2)
    (record,) = caplog.records
    assert record.message == "copying table" and record.__dict__["rows"] == 250
    assert record.__dict__["expected_rows"] == 1000 and record.__dict__["rows_per_s"] > 0
    assert record.__dict__["eta_s"] >= 0 and left(metrics) == 750
    copy_report.end()
    assert left(metrics) == 0


def test_without_statistics_the_finished_pages_count() -> None:
    metrics = Metrics(Health())
    copy_report = CopyReport(TABLE, None, 10, metrics)
    copy_report.advance(100, 0)
    assert copy_report.expected is None and "eta_s" not in copy_report.figures()
    copy_report.advance(100, 4)
    assert copy_report.expected == 500 and left(metrics) == 300


def test_a_table_larger_than_its_statistics() -> None:
    copy_report = CopyReport(TABLE, 10, 1, Metrics(Health()))
    copy_report.advance(25, 0)
    assert copy_report.expected == 25 and copy_report.figures()["eta_s"] == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(report, "LOG_EVERY_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    copy_report = CopyReport(TABLE, 1000, 10, Metrics(Health()))
    copy_report.advance(250, 2)
    copy_report.end()
    assert "public.orders" in terminal.getvalue() and "250/1000" in terminal.getvalue()
    assert not caplog.records
