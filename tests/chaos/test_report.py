"""docs/reliability.md shows exactly the recorded runs."""

from __future__ import annotations

import json

from tests.chaos import report
from tests.chaos.faults import FAULTS
from tests.soak.measure import LIMITS, slopes


def test_the_page_is_current() -> None:
    assert report.PAGE.read_text() == report.page(), "run `make docs`"


def test_every_recorded_fault_has_its_line() -> None:
    recorded = {json.loads(line)["fault"] for line in report.RUNS.read_text().splitlines()}
    assert recorded <= set(FAULTS)
    assert all(f"| {fault} | " in report.page() for fault in recorded)


def test_soak_growth_is_shown_and_within_its_limits() -> None:
    run = json.loads(report.SOAKED.read_text())
    assert {figure["name"] for figure in run["figures"]} == set(LIMITS)
    for figure in run["figures"]:
        limit = LIMITS[figure["name"]]
        assert figure["within"] and figure["growth"] <= limit.growth
        line = next(line for line in report.PAGE.read_text().splitlines() if line.startswith(f"| {figure['name']} |"))
        assert f"{figure['growth']:+.2f}" in line and f"{limit.growth:g}" in line
    assert "flat" not in report.page()


def test_a_limit_of_the_soak_does_not_depend_on_the_size() -> None:
    def judged(grown: float) -> dict[str, bool]:
        """Judge large figures that grow by `grown` times their limit in the last two thirds of half an hour."""
        samples = [
            (minute, {name: 10_000 + limit.growth * grown * minute / 20 for name, limit in LIMITS.items()})
            for minute in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
        ]
        return {slope.name: slope.within for slope in slopes(samples)}

    assert all(judged(0.9).values())
    assert not any(judged(1.3).values())
