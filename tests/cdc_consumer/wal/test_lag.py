"""Lag is logged once, again when it doubled, and once when it ends."""

from __future__ import annotations

import pytest

from cdc_consumer.wal.lag import LagReporter
from shared_schema.lsn import Lsn


def test_a_busy_server_is_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    lag = LagReporter(1_000, patience_s=10)
    for second in range(100):
        # A megabyte behind at every moment, yet everything is published within two seconds.
        lag.check(Lsn(second * 500_000 + 1_000_000), Lsn(second * 500_000), second)
    assert not lag.behind and not caplog.records


def test_one_warning_until_it_doubles_and_one_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    lag = LagReporter(1_000, patience_s=10)
    for second in range(60):
        lag.check(Lsn(10_000 + second), Lsn(100), second)
    assert lag.behind
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    lag.check(Lsn(25_000), Lsn(100), 60)
    lag.check(Lsn(25_001), Lsn(100), 61)
    assert len(caplog.records) == 2
    lag.check(Lsn(25_001), Lsn(20_000), 62)
    assert lag.behind
    lag.check(Lsn(25_001), Lsn(25_000), 63)
    lag.check(Lsn(25_001), Lsn(25_000), 64)
    assert not lag.behind
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_little_is_never_late(caplog: pytest.LogCaptureFixture) -> None:
    lag = LagReporter(65_536, patience_s=10)
    for second in range(100):
        lag.check(Lsn(65_636), Lsn(100), second)
    assert not caplog.records
