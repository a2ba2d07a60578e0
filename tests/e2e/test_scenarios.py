"""Random workloads against the whole stack: every one that ever failed, and those of the seeds below."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from deploy.local.stack import Stack
from tests.workloads.fuzz import failed, play, read, scenarios, write
from tests.workloads.generator import generate

SEEDS = [4, 11, 12, 15, 18, 24, 36, 39] if os.environ.get("PG_TRICKLE_LONG_TESTS") else [18]
"""Together they contain every query shape of the generator."""


@pytest.mark.parametrize("which", [*SEEDS, *scenarios()], ids=str)
def test_a_random_workload_is_maintained(
    db: psycopg.Connection[tuple[object, ...]], stack: Stack, tmp_path: Path, which: int | Path
) -> None:
    """Every stream table is ACTIVE, compared in all places and equal: the generator creates none that may fail."""
    scenario, every = (generate(which), 100) if isinstance(which, int) else (read(which), 1)
    verdict = play(stack.addresses, scenario, judge_every=every)
    if failed(scenario, verdict):
        path = write(tmp_path, scenario, verdict)
        compared = f"{verdict.tables} of {len(scenario.stream_tables)} stream tables compared"
        pytest.fail(f"{compared}\n{verdict}\nwritten to {path}:\n{path.read_text()}", pytrace=False)
