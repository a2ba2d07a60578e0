"""What the rounds showed: one line of JSON each, and the page that is written from them."""

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

Written from the runs of `make chaos`, which are in `tests/chaos/runs.jsonl`; not by hand.

While a workload writes, one thing is broken. Afterwards the sources are locked and every stream table is compared with
its query in PostgreSQL, in Delta and replayed from its topic, rows and columns. *Lost* and *doubled* count rows that
were missing or too many in any of the three places. *Recovery* is the time from the end of the fault until all of them
in all three places equal the oracle again, on two cores; starting a program again is part of it.

| fault | tried | rows compared | lost | doubled | recovery, median | recovery, longest |
|---|---:|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True)
class Outcome:
    """Of one round."""

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
    """Remember a round."""
    with open(RUNS, "a") as file:
        file.write(json.dumps({"seed": seed, "workload": workload, **asdict(outcome)}) + "\n")


def page() -> str:
    """The page's text."""
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
    told = f"\n{len(runs)} rounds. Seeds: {', '.join(map(str, seeds))}. Workloads: {', '.join(workloads)}.\n"
    return _HEAD + "".join(lines) + told + _mended([run for run in everything if "mended" in run]) + _soak()


def _mended(runs: list[dict[str, object]]) -> str:
    """Rounds that differed and whose cause is no more; what it was is written into the file by hand."""
    if not runs:
        return ""
    found = [f"- Seed {r['seed']}, {r['workload']}, {r['fault']}: {r['mended']}\n" for r in runs]
    return "\n## Differences that were found and mended\n\nNot counted above.\n\n" + "".join(found)


def _soak() -> str:
    """What the last long run showed."""
    from tests.soak.measure import LIMITS

    if not SOAKED.exists():
        return ""
    run = json.loads(SOAKED.read_text())
    verdict = "equal the oracle" if run["equal"] else "DIFFER from the oracle"
    head = f"""
## Soak

`make soak MINUTES={run["minutes"]:.0f}`: {run["commits"]} commits of the workloads {" and ".join(run["workloads"])}; afterwards {run["rows"]} rows {verdict} in
all three places. The last two thirds of the run, after everything has warmed up, with a straight line through them:

| figure | at the beginning | at the end | per minute | |
|---|---:|---:|---:|---|
"""  # noqa: E501
    lines = []
    for figure in run["figures"]:
        unit = LIMITS[figure["name"]].unit
        first, last, slope = (
            f"{value:{sign}.{places}f} {unit}".strip()
            for value, sign, places in (
                (figure["first"], "", 2),
                (figure["last"], "", 2),
                (figure["per_minute"], "+", 3),
            )
        )
        lines.append(f"| {figure['name']} | {first} | {last} | {slope} | {'flat' if figure['flat'] else 'GROWS'} |\n")
    return head + "".join(lines)


def remember_soak(run: dict[str, object]) -> None:
    """Keep the last long run."""
    SOAKED.write_text(json.dumps(run, indent=1) + "\n")


def write_page() -> None:
    """Write docs/reliability.md anew."""
    PAGE.write_text(page())


def keep_logs(stack: Stack, folder: Path) -> None:
    """Copy every part's log, and what is in Delta."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in stack.folder.glob("*.log"):
        shutil.copy(log, folder)
    shutil.copytree(stack.addresses.delta_root, folder / "delta", dirs_exist_ok=True)


if __name__ == "__main__":
    write_page()
