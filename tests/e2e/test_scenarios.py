"""Random workloads against the whole stack: every one that ever failed, and one whose seed stands here."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from deploy.local.stack import Stack
from tests.workloads.fuzz import play, read, scenarios
from tests.workloads.generator import generate

SEEDS = [4]


@pytest.mark.parametrize("path", scenarios(), ids=lambda path: path.stem)
def test_a_failure_of_the_past_stays_mended(
    db: psycopg.Connection[tuple[object, ...]], stack: Stack, path: Path
) -> None:
    verdict = play(stack.addresses, read(path), judge_every=1)
    assert not verdict.differences, verdict


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_workload_is_kept(db: psycopg.Connection[tuple[object, ...]], stack: Stack, seed: int) -> None:
    verdict = play(stack.addresses, generate(seed), judge_every=100)
    assert not verdict.differences, verdict
