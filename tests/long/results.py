"""Reads and writes the last result of each long run in `results.json`, and formats them with their age."""

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
    """The result of a run: whether it passed, when it began, on which commit, and its last line of output."""

    name: str
    passed: bool
    date: str
    commit: str
    """Ends with a `+` when files were not committed."""
    seconds: int | None
    """None when it was not measured."""
    said: str


def read(path: Path = RESULTS) -> dict[str, Result]:
    """Return the stored results by the name of their run."""
    if not path.exists():
        return {}
    return {entry["name"]: Result(**entry) for entry in json.loads(path.read_text())}


def write(result: Result, path: Path = RESULTS) -> None:
    """Store a result; it replaces the previous result of the same run."""
    known = read(path) | {result.name: result}
    path.write_text(json.dumps([asdict(known[name]) for name in sorted(known)], indent=1, ensure_ascii=False) + "\n")


def table(known: dict[str, Result], now: datetime | None = None, runs: Sequence[Run] = RUNS) -> Iterator[str]:
    """Yield a line for each long run: its last result, the date and the age."""
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
