"""Lists the long runs that do not fit into `make test`: the command, what it proves, and its time limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

PYTEST = (sys.executable, "-m", "pytest", "-q", "--timeout=1800")


@dataclass(frozen=True)
class Run:
    """One command; it passes when its exit code is 0."""

    name: str
    command: tuple[str, ...]
    proves: str
    limit_minutes: int
    environment: Mapping[str, str] = field(default_factory=dict)


_LONG = {"PG_TRICKLE_LONG_TESTS": "1"}

RUNS = (
    Run(
        "deep",
        (*PYTEST, "tests/shared_schema", "tests/cdc_consumer/pgoutput", "tests/cdc_consumer/change_rows"),
        "laws of codecs, decoders and stamps, on 1000 examples each",
        30,
        {"HYPOTHESIS_PROFILE": "deep"},
    ),
    Run(
        "progress",
        (*PYTEST, "tests/shared_schema/test_progress_topic.py", "tests/cdc_consumer/test_long_progress.py"),
        "both programs start within 10 s on a topic with 3 000 000 progress records",
        30,
        _LONG,
    ),
    Run(
        "damage",
        (*PYTEST, "tests/cdc_consumer/test_bad_bytes.py"),
        "50 000 damaged frames: an error, or what the reference reads",
        60,
        {"DAMAGES": "50000"},
    ),
    Run(
        "versions",
        (*PYTEST, "tests/cdc_consumer/test_versions.py"),
        "the consumer on PostgreSQL 14, 15, 16 and 17",
        30,
        {"VERSIONS": "all"},
    ),
    Run(
        "equals",
        (*PYTEST, "tests/applier/sql/test_equals_postgres.py", "tests/applier/state/test_delete_rederive.py"),
        "every golden query on 10 data sets, 20 random recursions",
        90,
        {"EQUALS_SEEDS": "10", "RECURSIONS": "20"},
    ),
    Run(
        "forms",
        (
            *PYTEST,
            "tests/applier/sinks/staging/test_staging.py",
            "tests/cdc_consumer/test_lifecycle.py",
            "tests/e2e/test_alter.py",
            "tests/e2e/test_bad_input.py",
            "tests/e2e/test_large.py",
            "tests/e2e/test_scenarios.py",
            "tests/e2e/test_standby.py",
        ),
        "millions of rows, gigabytes in a commit, eight random workloads, owners stopped inside a write",
        120,
        _LONG,
    ),
    Run(
        "kills",
        (*PYTEST, "tests/cdc_consumer/test_crash.py", "tests/e2e/test_sinks.py"),
        "50 kills of either binary at random moments",
        120,
        {**_LONG, "KILLS": "50", "PG_TRICKLE_KILLS": "50"},
    ),
    Run(
        "many",
        (*PYTEST, "tests/e2e/test_many.py"),
        "50 stream tables: one frontier at every tick, 5 % of a core at rest",
        60,
        {"STREAM_TABLES": "50"},
    ),
    Run(
        "life",
        (*PYTEST, "tests/life"),
        "the scenarios of production life in their long forms",
        180,
        _LONG,
    ),
    Run(
        "life-16",
        (*PYTEST, "tests/life"),
        "the same on PostgreSQL 16",
        180,
        {**_LONG, "PG_MAJOR": "16"},
    ),
    *(
        Run(
            f"ddl-{seed}",
            (sys.executable, "-m", "tests.life.ddl_fuzz", "--seed", str(seed), "--major", str(major), *options),
            f"2000 steps of random changes of schema and rows on PostgreSQL {major}{said}, no silent difference",
            240,
        )
        for seed, major, options, said in (
            (1, 18, (), ""),
            (2, 16, (), ""),
            (3, 18, ("--no-event-triggers",), " without event triggers"),
        )
    ),
    Run(
        "workloads",
        (sys.executable, "-m", "tests.workloads.fuzz", "--cases", "20"),
        "20 random workloads of fresh seeds are maintained in all places",
        75,
    ),
    Run("fuzz", ("make", "fuzz"), "every function equals PostgreSQL on 3000 fresh rows", 150),
    Run(
        "corpus",
        ("make", "corpus", "SEEDS=5"),
        "every accepted query, through changes, on 5 data sets, PostgreSQL 16 and 18",
        150,
        {"CORPUS_CHURN_EVERY": "1"},
    ),
    Run("chaos", ("make", "chaos", "ROUNDS=20"), "20 faults under load, everything equals PostgreSQL afterwards", 120),
    Run("soak", ("make", "soak", "MINUTES=30"), "memory, open files, lag and history grow within their limits", 60),
    Run("bench-cdc", ("make", "bench-cdc"), "the consumer against pg_recvlogical", 60),
    Run("bench-apply", ("make", "bench-apply"), "writing differences to PostgreSQL", 60),
    Run("bench-latency", ("make", "bench-latency"), "from a commit to the row in the stream table", 60),
    Run("bench-scheduler", ("make", "bench-scheduler"), "50 stream tables: no hot one breaks its SLA", 30),
    Run("bench-refresh", ("make", "bench-refresh"), "a change against computing everything again", 180),
)
