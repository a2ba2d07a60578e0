"""Samples figures that must not grow (memory, open files, folders, lag, history) and computes their slopes."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from deploy.local.stack import Stack
from tests.fixtures.processes import children

MB = 1 << 20

_IN_POSTGRES = """
SELECT (SELECT count(*) FROM pgtrickle.pgt_refresh_history),
       (SELECT count(*) FROM pgtrickle.pgt_outbox) + (SELECT count(*) FROM pgtrickle.pgt_answers),
       (SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), min(restart_lsn)) FROM pg_replication_slots),
       (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), frontier)) FROM pgtrickle.pgt_frontiers),
       (SELECT sum(pg_total_relation_size(pgt_relid)) FROM pgtrickle.pgt_stream_tables),
       (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg-trickle%')
"""


@dataclass(frozen=True)
class Limit:
    """How much a figure may grow in the last two thirds of a run, in its unit."""

    unit: str
    growth: float


LIMITS = {
    "applier memory": Limit("MB", 60),
    "JVM memory": Limit("MB", 200),
    "consumer memory": Limit("MB", 2),
    "applier open files": Limit("", 5),
    "JVM open files": Limit("", 10),
    "consumer open files": Limit("", 2),
    "log kept for the slot": Limit("MB", 4),
    "log not yet in stream tables": Limit("MB", 1),
    "consumer lag": Limit("MB", 1),
    "outbox and reply rows": Limit("", 10),
    "connections": Limit("", 1),
    "stream tables": Limit("MB", 2),
    "Delta log, files per commit": Limit("", 0.01),
    "history, rows per commit": Limit("", 0.02),
}
"""For 30 minutes: the growth of the recorded run (run.json), plus a margin of at most 50 MB of memory, 4 MB of log or
table, 10 files or rows.

Versions of Delta tables and refreshes in the history exist until their retention ends, so they are counted per commit.
"""


def sample(stack: Stack, commits: int) -> dict[str, float]:
    """Return the current value of every figure of LIMITS."""
    applier, consumer = stack.parts["applier"].pid, stack.parts["cdc"].pid
    jvm = next((pid for pid in children(applier) if "java" in os.readlink(f"/proc/{pid}/exe")), 0)
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        row = connection.execute(_IN_POSTGRES).fetchone()
    assert row is not None
    history, outbox, slot, behind, tables, connections = (float(value or 0) for value in row)
    logs = sum(1 for _ in Path(stack.addresses.delta_root).glob("*/*/_delta_log/*"))
    return {
        "applier memory": _memory(applier),
        "JVM memory": _memory(jvm),
        "consumer memory": _memory(consumer),
        "applier open files": _files(applier),
        "JVM open files": _files(jvm),
        "consumer open files": _files(consumer),
        "log kept for the slot": slot / MB,
        "log not yet in stream tables": behind / MB,
        "consumer lag": _metric(stack.addresses.cdc_metrics, "pg_trickle_cdc_lag_bytes ") / MB,
        "outbox and reply rows": outbox,
        "connections": connections,
        "stream tables": tables / MB,
        "Delta log, files per commit": logs / max(commits, 1),
        "history, rows per commit": history / max(commits, 1),
    }


@dataclass(frozen=True)
class Slope:
    """One figure over a run."""

    name: str
    first: float
    last: float
    per_minute: float
    growth: float
    within: bool
    """Whether the growth is within its limit."""

    def __str__(self) -> str:
        limit = LIMITS[self.name]
        shown = f"{self.first:10.2f} -> {self.last:10.2f} {limit.unit:2}  {self.per_minute:+10.3f} {limit.unit}/min"
        grown = f"{self.growth:+.2f}, may grow by {limit.growth:g}"
        return f"{self.name:30} {shown}  {grown}{'' if self.within else ': GROWS'}"


@dataclass(frozen=True)
class Soaked:
    """The result of a whole run."""

    minutes: float
    workloads: list[str]
    commits: int
    rows: int
    equal: bool
    figures: list[Slope]


def slopes(samples: Sequence[tuple[float, dict[str, float]]]) -> list[Slope]:
    """Fit a straight line through the last two thirds of the samples (minutes, figures); the first third is warm-up."""
    warm = samples[len(samples) // 3 :]
    found = []
    for name, limit in LIMITS.items():
        times, values = [t for t, _ in warm], [figures[name] for _, figures in warm]
        middle_t, middle_v = sum(times) / len(times), sum(values) / len(values)
        spread = sum((t - middle_t) ** 2 for t in times)
        slope = (
            sum((t - middle_t) * (v - middle_v) for t, v in zip(times, values, strict=True)) / spread if spread else 0
        )
        growth = slope * (times[-1] - times[0])
        found.append(Slope(name, values[0], values[-1], slope, growth, growth <= limit.growth))
    return found


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _files(pid: int) -> float:
    return float(len(os.listdir(f"/proc/{pid}/fd")))


def _metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=10) as response:
        lines = response.read().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)
