"""Stores the outcome of each chaos round as a line of JSON, and generates docs/reliability.md from them."""

from __future__ import annotations

import json
import shutil
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.local.stack import Stack

RUNS = Path(__file__).with_name("runs.jsonl")
SOAKED = Path(__file__).parents[1] / "soak" / "run.json"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"

_HEAD = """\
# Reliability

This page is generated from the runs of `make chaos`, which are stored in `tests/chaos/runs.jsonl`.

In each round one fault is injected while a workload writes. Afterwards the sources are locked, and every stream table
is compared with its query in PostgreSQL, in Delta and replayed from its topic: rows and columns.

- *Lost* and *doubled* count rows that were missing or too many in any of the three sinks.
- *Recovery* is the time from the end of the fault until every stream table equals its query again in all three sinks,
  on two cores. It includes the restart of a program.

| fault | rounds | rows compared | lost | doubled | recovery, median | recovery, longest |
|---|---:|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one round."""

    fault: str
    equal: bool
    commits: int
    rows: int
    lost: int
    doubled: int
    fault_s: float
    recovery_s: float
    said: str
    differences: list[str]

    def __str__(self) -> str:
        verdict = "equal" if self.equal else "DIFFERENT\n  " + "\n  ".join(self.differences)
        said = f", said: {self.said}" if self.said else ""
        counts = f"{self.commits} commits, {self.rows} rows, recovered after {self.recovery_s} s"
        return f"{self.fault}: {counts}{said}: {verdict}"


def add(seed: int, workload: str, outcome: Outcome) -> None:
    """Append the outcome of a round to the stored runs."""
    with open(RUNS, "a") as file:
        file.write(json.dumps({"seed": seed, "workload": workload, **asdict(outcome)}) + "\n")


def page() -> str:
    """Return the text of the page."""
    from tests.chaos.faults import FAULTS

    everything = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []
    runs = [run for run in everything if "mended" not in run]
    by_fault: dict[str, list[dict[str, object]]] = defaultdict(list)
    for run in runs:
        by_fault[str(run["fault"])].append(run)
    lines = []
    for fault in FAULTS:
        if of_fault := by_fault.get(fault):
            times = [float(str(run["recovery_s"])) for run in of_fault]
            rows, lost, doubled = (sum(int(str(run[k])) for run in of_fault) for k in ("rows", "lost", "doubled"))
            median = f"{statistics.median(times):.1f} s"
            lines.append(
                f"| {fault} | {len(of_fault)} | {rows} | {lost} | {doubled} | {median} | {max(times):.1f} s |\n"
            )
    seeds = sorted({int(run["seed"]) for run in runs})
    workloads = sorted({str(run["workload"]) for run in runs})
    summary = f"\n{len(runs)} rounds. Seeds: {', '.join(map(str, seeds))}. Workloads: {', '.join(workloads)}.\n"
    return _HEAD + "".join(lines) + summary + _mended([run for run in everything if "mended" in run]) + _soak()


def _mended(runs: list[dict[str, object]]) -> str:
    """Return a list of rounds that differed and whose cause is fixed; the cause was added to the stored run by hand."""
    if not runs:
        return ""
    found = [f"- Seed {r['seed']}, {r['workload']}, {r['fault']}: {r['mended']}\n" for r in runs]
    return "\n## Differences that were found and fixed\n\nThese rounds are not counted above.\n\n" + "".join(found)


def _soak() -> str:
    """Return the section about the last soak run."""
    from tests.soak.measure import LIMITS

    if not SOAKED.exists():
        return ""
    run = json.loads(SOAKED.read_text())
    verdict = "equal PostgreSQL's" if run["equal"] else "DIFFER from PostgreSQL's"
    head = f"""
## Soak

`make soak MINUTES={run["minutes"]:.0f}`: {run["commits"]} commits of the workloads {" and ".join(run["workloads"])}; afterwards {run["rows"]} rows {verdict} in
all three places. The last two thirds of the run, after everything has warmed up, with a straight line through them: what the line
grew by, and what it may grow by before the run fails. It says nothing about longer runs: what grew here may go on growing.

| figure | at the beginning | at the end | per minute | grew by | may grow by |
|---|---:|---:|---:|---:|---:|
"""  # noqa: E501
    lines = []
    for figure in run["figures"]:
        limit = LIMITS[figure["name"]]
        first, last, slope, growth, bound = (
            f"{value:{form}} {limit.unit}".strip()
            for value, form in (
                (figure["first"], ".2f"),
                (figure["last"], ".2f"),
                (figure["per_minute"], "+.3f"),
                (figure["growth"], "+.2f"),
                (limit.growth, "g"),
            )
        )
        verdict = "" if figure["growth"] <= limit.growth else ", MORE THAN IT MAY"
        lines.append(f"| {figure['name']} | {first} | {last} | {slope} | {growth}{verdict} | {bound} |\n")
    return head + "".join(lines)


def remember_soak(run: dict[str, object]) -> None:
    """Store the last soak run."""
    SOAKED.write_text(json.dumps(run, indent=1) + "\n")


def write_page() -> None:
    """Write docs/reliability.md."""
    PAGE.write_text(page())


def keep_logs(stack: Stack, folder: Path) -> None:
    """Copy the log of every part, and the Delta tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in stack.folder.glob("*.log"):
        shutil.copy(log, folder)
    shutil.copytree(stack.addresses.delta_root, folder / "delta", dirs_exist_ok=True)


if __name__ == "__main__":
    write_page()
