"""Which fixtures there are, which tier a test belongs to because of those it uses, and which run side by side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.long.results import read, table

# A busy machine is no failure; how long a test may take is pytest-timeout's business.
settings.register_profile("test", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

pytest_plugins = ("tests.fixtures.postgres", "tests.fixtures.kafka", "tests.fixtures.spark", "tests.fixtures.stack")

TIER_OF_FIXTURE = {
    "postgres": "integration",
    "kafka": "integration",
    "spark": "spark",
    "stack": "e2e",
    "takeover": "e2e",
}
"""`fixturenames` holds the indirect ones too: `database` uses `postgres`."""


LANE_OF_FOLDER = {"applier": "spark", "shared_schema": "spark", "corpus": "spark", "security": "spark"}
"""Where `make test` runs two tests at once, those of a lane follow each other, so that each server and session is
started once. Folders that are not named are a lane each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by need, so that `-m 'not spark'` leaves out exactly what needs Spark, and by lane."""
    for item in items:
        for tier in {TIER_OF_FIXTURE[name] for name in getattr(item, "fixturenames", ()) if name in TIER_OF_FIXTURE}:
            item.add_marker(tier)
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        item.add_marker(pytest.mark.xdist_group(LANE_OF_FOLDER.get(folder, folder)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Whoever runs all tests sees what was not run, and when it was last."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        terminalreporter.section("make test-long: the last results")
        for line in table(read()):
            terminalreporter.write_line(line)
