"""docs/reliability.md is what the recorded runs say."""

from __future__ import annotations

import json

from tests.chaos import report
from tests.chaos.faults import FAULTS


def test_the_page_is_current() -> None:
    assert report.PAGE.read_text() == report.page(), "run `make docs`"


def test_every_recorded_fault_has_its_line() -> None:
    recorded = {json.loads(line)["fault"] for line in report.RUNS.read_text().splitlines()}
    assert recorded <= set(FAULTS)
    assert all(f"| {fault} | " in report.page() for fault in recorded)
