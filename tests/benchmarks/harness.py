"""Runs the contestants of a benchmark; prints a table for people and one JSON object.

A benchmark is a module `bench_<name>` that ends with `sys.exit(harness.main(benchmark))`, where `benchmark(short)` is a
context manager that sets up what it needs and yields a `Benchmark`. The contestants run in turns (ours, yardstick,
ours, …), so that other load on the machine affects both. A round in which others used the machine does not count and is
run again; with too few quiet rounds there is no comparison: exit code 3 and `"refused"` in the JSON.

`python -m tests.benchmarks.harness [--short]` runs them all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_schema.errors import TrickleError
from tests.benchmarks.busy import CPUS, BusyMeter

OTHERS_SHARE_MAX = 0.10
"""Fraction of the whole machine that others may use in a round; above it, differences of a few percent mean nothing."""

OTHERS_S_MIN = 0.05
"""Less CPU time than this does not disturb a short round: the kernel counts in steps of 10 ms per process."""

ATTEMPTS = 2
"""How many rounds may be tried per required round."""

REFUSED = 3

Measures = Mapping[str, float]
"""The results of one run, by name with unit: {"p50_ms": 12.3}."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the work. `run` does it once and returns its measures; None means the elapsed `seconds`."""

    name: str
    run: Callable[[], Measures | None]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`contestants` begins with ours; the last is the yardstick, with which all are compared."""

    name: str
    question: str
    contestants: Sequence[Contestant]
    repeats: int = 7
    short_repeats: int = 3
    warmups: int = 1
    then: Callable[[], Mapping[str, Any]] | None = None
    """A second part after the rounds: its return value is added to the report."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All values of one measure of one contestant."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median."""
        return statistics.median(self.values)

    def as_json(self) -> dict[str, Any]:
        """Return the median, the extremes and the values in the order of measurement."""
        rounded = [_significant(value) for value in self.values]
        return {"median": _significant(self.median), "min": min(rounded), "max": max(rounded), "values": rounded}


class TooBusy(TrickleError):
    """Others used the machine too much for a comparison."""


def main(
    benchmark: Callable[[bool], AbstractContextManager[Benchmark]],
    arguments: Sequence[str] | None = None,
    *,
    meter: BusyMeter | None = None,
) -> int:
    """Run the command line of a benchmark module; return its exit code."""
    parser = argparse.ArgumentParser(description=benchmark.__doc__)
    parser.add_argument("--short", action="store_true", help="fewer repeats, less data")
    parser.add_argument("--repeats", type=int, help="rounds that must count")
    options = parser.parse_args(arguments)
    meter = meter or BusyMeter()
    try:
        with benchmark(options.short) as chosen:
            repeats = options.repeats or (chosen.short_repeats if options.short else chosen.repeats)
            report: dict[str, Any] = {"benchmark": chosen.name, "short": options.short, "load": meter.load()}
            try:
                report |= compare(chosen, repeats, meter)
                report |= chosen.then() if chosen.then is not None else {}
            except TooBusy as busy:
                print(busy)
                print(json.dumps(report | {"refused": busy.problem}))
                return REFUSED
            print(table(chosen, report))
            print(json.dumps(report))
    except TrickleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def figures(
    name: str,
    description: str | None,
    measure: Callable[[argparse.Namespace, BusyMeter], Mapping[str, Any]],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the command line of a benchmark with its own figures; print them in the last line as one JSON object."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="fewer repeats, less data")
    parser.add_argument("--repeats", type=int, help="rounds that must count")
    options = parser.parse_args(arguments)
    meter = BusyMeter()
    report: dict[str, Any] = {"benchmark": name, "short": options.short, "load": meter.load(), "refused": None}
    try:
        report |= measure(options, meter)
    except TooBusy as busy:
        print(busy)
        print(json.dumps(report | {"refused": busy.problem}))
        return REFUSED
    print(json.dumps(report))
    return 0


def compare(benchmark: Benchmark, repeats: int, meter: BusyMeter) -> dict[str, Any]:
    """Run the rounds; return `results` by contestant and measure, and the `ratio` to the yardstick.

    Raise TooBusy when others used the machine too much for a comparison.
    """
    for contestant in list(benchmark.contestants) * benchmark.warmups:
        tell(f"{benchmark.name}: warming up {contestant.name}")
        contestant.run()
    rounds: list[dict[str, Measures]] = []
    shares: list[float] = []
    while len(rounds) < repeats:
        if len(rounds) + repeats * ATTEMPTS - len(shares) < repeats:
            # Even if all remaining rounds were quiet, there would be too few.
            raise TooBusy(
                f"{benchmark.name}: others used {statistics.median(shares):.0%} of this machine, "
                f"{len(rounds)} of {len(shares)} rounds were quiet and {repeats} are needed",
                hint="run it again when the machine is idle",
            )
        before = meter.read()
        measured = {contestant.name: _run_once(contestant) for contestant in benchmark.contestants}
        after = meter.read()
        shares.append(meter.others_share(before, after))
        allowed = max(OTHERS_SHARE_MAX * (after.at - before.at) * CPUS, OTHERS_S_MIN)
        quiet = meter.others_s(before, after) <= allowed
        if quiet:
            rounds.append(measured)
        verdict = "" if quiet else f", not counted: others used {shares[-1]:.0%} of the machine"
        tell(f"{benchmark.name}: round {len(rounds)} of {repeats}{verdict}")
    return {**_summarise(benchmark, rounds), "rounds_tried": len(shares), "others_share": _significant(max(shares))}


def table(benchmark: Benchmark, report: Mapping[str, Any]) -> str:
    """Return the report as a table for people."""
    lines = ["", f"{benchmark.name}: {benchmark.question}"]
    yardstick = benchmark.contestants[-1].name
    lines.append(f"  {'':24} {'measure':16} {'median':>10} {'least':>10} {'most':>10} {'to ' + yardstick:>16}")
    for name, measures in report["results"].items():
        for measure, summary in measures.items():
            ratio = report["ratio"].get(name, {}).get(measure)
            numbers = [f"{summary[key]:>10.4g}" for key in ("median", "min", "max")]
            lines.append(f"  {name:24} {measure:16} {' '.join(numbers)} {f'{ratio:.3g}x' if ratio else '':>16}")
    quiet = f"others used at most {report['others_share']:.0%} of the machine in any round"
    return "\n".join([*lines, f"  {report['repeats']} rounds; {quiet}", ""])


def _summarise(benchmark: Benchmark, rounds: Sequence[Mapping[str, Measures]]) -> dict[str, Any]:
    summaries = {
        contestant.name: {
            measure: Summary(tuple(one[contestant.name][measure] for one in rounds))
            for measure in rounds[0][contestant.name]
        }
        for contestant in benchmark.contestants
    }
    yardstick = summaries[benchmark.contestants[-1].name]
    ratio = {
        name: {
            measure: _significant(summary.median / yardstick[measure].median)
            for measure, summary in measures.items()
            if measure in yardstick and yardstick[measure].median
        }
        for name, measures in summaries.items()
        if measures is not yardstick
    }
    results = {name: {m: summary.as_json() for m, summary in of.items()} for name, of in summaries.items()}
    return {"repeats": len(rounds), "results": results, "ratio": ratio, "refused": None}


def _run_once(contestant: Contestant) -> Measures:
    began = time.perf_counter()
    measured = contestant.run()
    return {"seconds": time.perf_counter() - began} if measured is None else measured


def _significant(value: float) -> float:
    return float(f"{value:.5g}")


def tell(line: str) -> None:
    """Print progress, separate from the results."""
    print(line, file=sys.stderr, flush=True)


def modules() -> list[str]:
    """Return the names of all benchmarks."""
    return [f"tests.benchmarks.{path.stem}" for path in sorted(Path(__file__).parent.glob("bench_*.py"))]


def run_all(names: Sequence[str], arguments: Sequence[str]) -> int:
    """Run benchmarks one after the other, each in its own process; the last line holds all their JSON objects."""
    reports: list[dict[str, Any]] = []
    codes: list[int] = []
    for name in names:
        last = ""
        for last in _lines_of([sys.executable, "-m", name, *arguments], codes):
            print(last, end="", flush=True)
        try:
            reports.append(json.loads(last))
        except ValueError:
            reports.append({"benchmark": name.rpartition(".bench_")[2], "failed": True})
    print(json.dumps({"benchmarks": reports}))
    return next((1 for code in codes if code not in (0, REFUSED)), max(codes, default=0))


def _lines_of(command: Sequence[str], codes: list[int]) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        yield from child.stdout or ()
    codes.append(child.returncode)


if __name__ == "__main__":
    sys.exit(run_all(modules(), sys.argv[1:]))
