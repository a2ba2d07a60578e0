"""The last result of each long run, in `results.json`, and how old it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.long.runs import RUNS, Run

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Result:
    """How a run ended: when it began, on which commit, and the line it closed with."""

    name: str
    passed: bool
    date: str
    commit: str
    """With a `+` when files were not committed."""
    seconds: int | None
    """None where it was not measured."""
    said: str


def read(path: Path = RESULTS) -> dict[str, Result]:
    """By name."""
    if not path.exists():
        return {}
    return {entry["name"]: Result(**entry) for entry in json.loads(path.read_text())}


def write(result: Result, path: Path = RESULTS) -> None:
    """In the place of the run's result before."""
    known = read(path) | {result.name: result}
    path.write_text(json.dumps([asdict(known[name]) for name in sorted(known)], indent=1, ensure_ascii=False) + "\n")


def table(known: dict[str, Result], now: datetime | None = None, runs: Sequence[Run] = RUNS) -> Iterator[str]:
    """A line for each long run: its last result, when that was and how old it is."""
    width = max(len(run.name) for run in runs)
    for run in runs:
        result = known.get(run.name)
        if result is None:
            yield f"{run.name:{width}}  never"
            continue
        began = datetime.fromisoformat(result.date)
        days = ((now or datetime.now(UTC)) - began).days
        age = f"{days} day{'' if days == 1 else 's'} ago"
        passed = "passed" if result.passed else "FAILED"
        yield f"{run.name:{width}}  {passed}  {began:%Y-%m-%d} {age:>12}  {result.commit:9} {result.said}"
