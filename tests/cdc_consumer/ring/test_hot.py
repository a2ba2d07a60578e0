"""Which sources get the ring: by rate, by name, or none."""

from __future__ import annotations

import pytest

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.ring import hot_sources
from cdc_consumer.ring.hot_sources import HotSources
from shared_schema.table_schema import TableId

TABLE = TableId("public", "t")


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hot_sources, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("choice", "rows", "expected"),
    [
        (("auto",), 20_001, True),
        (("auto",), 20_000, False),
        (("off",), 1_000_000, False),
        (("public.t",), 1, True),
        (("public.u",), 1_000_000, False),
    ],
)
def test_choice(clock: Clock, choice: tuple[str, ...], rows: int, expected: bool) -> None:
    sources = HotSources(choice, 10_000, Metrics(Health()))
    clock.now += 2
    sources.measure({TABLE: rows})
    assert sources.any_hot is expected


def test_the_rate_is_a_setting(clock: Clock) -> None:
    sources = HotSources(("auto",), 500, Metrics(Health()))
    clock.now += 1
    sources.measure({TABLE: 500})
    assert not sources.any_hot
    clock.now += 1
    sources.measure({TABLE: 1_001})
    assert sources.any_hot


def test_a_source_cools_down_after_a_while(clock: Clock) -> None:
    sources = HotSources(("auto",), 10_000, Metrics(Health()))
    clock.now += 1
    sources.measure({TABLE: 50_000})
    clock.now += hot_sources.COOL_AFTER_S - 1
    sources.measure({TABLE: 50_000})
    assert sources.any_hot
    clock.now += 2
    sources.measure({TABLE: 50_000})
    assert not sources.any_hot
