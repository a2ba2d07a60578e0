"""Random workloads against the whole stack: every one that ever failed, and one whose seed stands here."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from deploy.local.stack import Stack
from tests.workloads.fuzz import play, read, scenarios
from tests.workloads.generator import generate

SEEDS = [4]


@pytest.mark.parametrize("which", [*SEEDS, *scenarios()], ids=str)
def test_a_random_workload_is_kept(db: psycopg.Connection[tuple[object, ...]], stack: Stack, which: int | Path) -> None:
    scenario, every = (generate(which), 100) if isinstance(which, int) else (read(which), 1)
    verdict = play(stack.addresses, scenario, judge_every=every)
    assert not verdict.differences, verdict
