"""Registers fixtures, marks each test with its tier (by the fixtures it uses) and groups tests for parallel runs."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.long.results import read, table

# A slow machine must not fail a test; pytest-timeout limits how long a test may take.
settings.register_profile("test", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

pytest_plugins = (
    "tests.fixtures.postgres",
    "tests.fixtures.kafka",
    "tests.fixtures.spark",
    "tests.fixtures.stack",
    "tests.fixtures.laboratory",
)

TIER_OF_FIXTURE = {
    "postgres": "integration",
    "kafka": "integration",
    "spark": "spark",
    "stack": "e2e",
    "takeover": "e2e",
}
"""`fixturenames` also contains indirect fixtures: `database` uses `postgres`."""


LANES = (
    "tests/e2e/ tests/life/",
    "tests/applier/ tests/shared_schema/ tests/corpus/ tests/security/",
    "tests/upgrade/",
)
"""`make test` runs two tests in parallel. Tests of one lane run one after the other, so that each server and session is
started once. Lanes start in this order, the longest first; a file elsewhere is a lane of its own, so that both workers
end at about the same time."""


RESTARTS = ("tests/e2e/test_skeleton.py", "tests/e2e/test_standby.py", "tests/e2e/test_sinks.py")
"""Tests that kill programs of the stack. They come first: a start takes longer, the more tables were there before."""


def lane(nodeid: str) -> tuple[int, str]:
    """Return the place of a test's lane in the order in which lanes start, and its name."""
    file = nodeid.partition("::")[0]
    for place, folders in enumerate(LANES):
        if file.startswith(tuple(folders.split())):
            return place, folders
    return len(LANES), file


class LaneScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole lanes to the workers. (`--dist loadgroup` would do it, but pytest 9.2 ignores the node ids that
    pytest-xdist 3.8 writes, so that every test goes to any worker.)"""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)[1]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling:
    """Called once when tests run in parallel."""
    # Lanes with many tests are not the longest ones: the order of collection counts.
    config.option.loadscopereorder = False
    return LaneScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, so that `-m 'not spark'` excludes exactly what needs Spark."""
    for item in items:
        for tier in {TIER_OF_FIXTURE[name] for name in getattr(item, "fixturenames", ()) if name in TIER_OF_FIXTURE}:
            item.add_marker(tier)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (lane(item.nodeid), not item.nodeid.startswith(RESTARTS)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """After a run of all tests, show the last results of the long runs, which are not part of it."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        terminalreporter.section("make test-long: the last results")
        for line in table(read()):
            terminalreporter.write_line(line)
