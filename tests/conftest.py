"""Which fixtures there are, and which tier a test belongs to because of those it uses."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A busy machine is no failure; how long a test may take is pytest-timeout's business.
settings.register_profile("test", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

pytest_plugins = ("tests.fixtures.postgres", "tests.fixtures.kafka", "tests.fixtures.spark", "tests.fixtures.stack")

TIER_OF_FIXTURE = {"postgres": "integration", "kafka": "integration", "spark": "spark", "stack": "e2e"}
"""`fixturenames` holds the indirect ones too: `database` uses `postgres`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by need, so that `-m 'not spark'` leaves out exactly what needs Spark."""
    for item in items:
        for tier in {TIER_OF_FIXTURE[name] for name in getattr(item, "fixturenames", ()) if name in TIER_OF_FIXTURE}:
            item.add_marker(tier)
