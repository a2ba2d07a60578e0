"""The harness alternates contestants, compares medians, and refuses a comparison on a busy machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared_schema.errors import TrickleError
from tests.benchmarks import bench_scheduler, harness
from tests.benchmarks.busy import CPUS, BusyMeter, Reading
from tests.benchmarks.harness import Benchmark, Contestant
from tests.fixtures.processes import TICKS_PER_S


class FakeMeter(BusyMeter):
    """Reports rounds of one second; `others` are the CPU seconds that others used in each."""

    def __init__(self, others: list[float]) -> None:
        super().__init__()
        self._others = others
        self._readings = 0
        self._all = 0.0

    def read(self) -> Reading:
        if self._readings % 2:
            self._all += self._others[min(self._readings // 2, len(self._others) - 1)]
        self._readings += 1
        return Reading(at=float(self._readings), all_s=self._all, ours={})


def bench(turns: list[str], ours: list[float], theirs: list[float]) -> Benchmark:
    def contestant(name: str, values: list[float]) -> Contestant:
        pending = iter(values)

        def run() -> dict[str, float]:
            turns.append(name)
            return {"ms": next(pending)}

        return Contestant(name, run)

    contestants = [contestant("ours", ours), contestant("matview", theirs)]
    return Benchmark("demo", "who is faster?", contestants, repeats=3, short_repeats=1)


def outcome(benchmark: Benchmark, meter: BusyMeter, *arguments: str) -> int:
    @contextmanager
    def build(short: bool) -> Iterator[Benchmark]:
        yield benchmark

    return harness.main(build, list(arguments), meter=meter)


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_contestants_alternate_and_medians_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    turns: list[str] = []
    code = outcome(bench(turns, [99, 1, 3, 2], [99, 10, 30, 20]), FakeMeter([0.0]))
    assert code == 0
    assert turns == ["ours", "matview"] * 4
    report = last_json(capsys)
    assert report["refused"] is None
    assert report["ratio"] == {"ours": {"ms": 0.1}}
    assert report["results"] == {
        "ours": {"ms": {"median": 2, "min": 1, "max": 3, "values": [1, 3, 2]}},
        "matview": {"ms": {"median": 20, "min": 10, "max": 30, "values": [10, 30, 20]}},
    }


def test_a_disturbed_round_is_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    code = outcome(bench([], [99, 7, 1, 2, 3], [1] * 5), FakeMeter([CPUS * 0.5, 0.0]))
    assert code == 0
    report = last_json(capsys)
    assert (report["repeats"], report["rounds_tried"]) == (3, 4)
    assert report["results"]["ours"]["ms"]["values"] == [1, 2, 3]  # type: ignore[index]


def test_a_busy_machine_gets_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code = outcome(bench([], [1] * 20, [1] * 20), FakeMeter([CPUS * 0.5]), "--short")
    assert code == harness.REFUSED == 3
    output = capsys.readouterr().out.splitlines()
    report = json.loads(output[-1])
    assert report["refused"] == "demo: others used 50% of this machine, 0 of 2 rounds were quiet and 1 are needed"
    assert "ratio" not in report
    assert output[0] == report["refused"]


def test_an_expected_error_has_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise TrickleError("no broker", hint="start one")

    broken = Benchmark("demo", "?", [Contestant("ours", fail)])
    assert outcome(broken, FakeMeter([0.0])) == 1
    assert capsys.readouterr().err.endswith("no broker\nhint: start one\n")


def test_the_clock_is_used_where_nothing_is_returned() -> None:
    benchmark = Benchmark("demo", "?", [Contestant("ours", lambda: time.sleep(0.01))], warmups=0)
    report = harness.compare(benchmark, 1, FakeMeter([0.0]))
    assert 0.01 <= report["results"]["ours"]["seconds"]["median"] < 1


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_own_work_and_that_of_children_is_not_others() -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with stranger:
        ours, theirs = BusyMeter(), BusyMeter(roots=(stranger.pid,))
        before, as_stranger = ours.read(), theirs.read()
        burn(0.3)
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
        after, after_as_stranger = ours.read(), theirs.read()
        stranger.communicate(b"\n")
    seen_by_stranger = theirs.others_s(as_stranger, after_as_stranger)
    assert seen_by_stranger >= 0.5
    # Both contain the rest of the machine; the difference is our own work.
    assert 0.5 <= seen_by_stranger - ours.others_s(before, after) <= 1.2


def write_accounts(proc: Path, busy: int, processes: dict[int, tuple[int, int, int]]) -> None:
    """Write /proc as the kernel does: ticks of the machine; per process its parent, own ticks, those it waited for."""
    shutil.rmtree(proc, ignore_errors=True)
    proc.mkdir()
    (proc / "stat").write_text(f"cpu  {busy} 0 0 500 70 0 0 10 3 3\ncpu0 …\n")
    for pid, (parent, own, waited_for) in processes.items():
        (proc / str(pid)).mkdir()
        rest = " ".join(["0"] * 9 + [str(own), "1", str(waited_for), "1"])
        (proc / str(pid) / "stat").write_text(f"{pid} (a ) b) S {parent} {rest} 0 0")


@pytest.mark.parametrize(
    ("then", "used"),
    [
        ({10: (1, 120, 0), 11: (10, 35, 0), 12: (11, 300, 0)}, 100),
        # Both ended and the remaining process waited for them: their earlier time is in its account as well.
        ({10: (1, 120, 345 + 2 * 2)}, 70 + 40),
        # Both ended and no process waited: their time is lost, and their earlier time is not subtracted.
        ({10: (1, 120, 0)}, 70),
        # The child still runs, but it is no longer in our process tree.
        ({10: (1, 120, 0), 11: (1, 35, 0)}, 70),
        ({10: (1, 120, 0), 11: (10, 5, 0), 12: (11, 300, 0), 14: (12, 7, 0)}, 70 + 7 + 2),
    ],
)
def test_accounts_are_read_from_proc(tmp_path: Path, then: dict[int, tuple[int, int, int]], used: int) -> None:
    meter = BusyMeter(roots=(10,), proc=tmp_path / "proc")
    stranger = {13: (1, 9999, 0)}
    write_accounts(meter.proc, 1000, {10: (1, 50, 0), 11: (10, 5, 0), 12: (11, 300, 0)} | stranger)
    before = meter.read()
    write_accounts(meter.proc, 1300, then | stranger)
    after = meter.read()
    assert after.all_s - before.all_s == pytest.approx(300 / TICKS_PER_S)
    assert meter.ours_s(before, after) == pytest.approx(used / TICKS_PER_S)
    assert meter.others_s(before, after) == pytest.approx((300 - used) / TICKS_PER_S)


def test_all_benchmarks_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    for name, code in (("good", 0), ("refusing", 3)):
        (tmp_path / f"bench_{name}.py").write_text(f'print(\'{{"benchmark": "{name}"}}\'); raise SystemExit({code})')
    assert harness.run_all(["bench_good", "bench_refusing"], ["--short"]) == 3
    assert json.loads(capfd.readouterr().out.splitlines()[-1]) == {
        "benchmarks": [{"benchmark": "good"}, {"benchmark": "refusing"}]
    }
    (tmp_path / "bench_broken.py").write_text("raise SystemExit(1)")
    assert harness.run_all(["bench_good", "bench_refusing", "bench_broken"], []) == 1


@pytest.mark.parametrize(
    ("figures", "is_kept"),
    [
        ({}, True),
        ({"refreshed": 9}, False),
        ({"breaches": 1}, False),
        ({"late_looks": 1}, False),
    ],
)
def test_an_sla_is_kept_only_by_who_is_refreshed(figures: dict[str, float], is_kept: bool) -> None:
    hot = {"refreshed": bench_scheduler.TIERS["hot"][0], "breaches": 0, "late_looks": 0} | figures
    assert bench_scheduler.is_promise_kept(hot) is is_kept


def test_the_figures_of_one_kind() -> None:
    looks = [(1.0, False), (6.0, True)]
    found = bench_scheduler.summarize(looks, [[1, 5_000, 6_100, 80], [1, 5_000, 2_000, 90], [2, 5_000, 1_000, 70]])
    assert (found["refreshed"], found["refreshes"], found["breaches"], found["late_looks"]) == (2, 3, 1, 1)
    assert (found["oldest_s"], found["max_s"], found["took_ms"]) == (6.1, 6.0, 80)
    assert bench_scheduler.summarize(looks, [])["refreshed"] == 0
