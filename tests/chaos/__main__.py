"""`make chaos ROUNDS=n SEED=s` runs a workload, injects faults, and compares every stream table with the oracle.

Each round: writers run, a fault is injected at a random moment, the documented repair is done if the fault does not
heal by itself, then every stream table is compared in its three places. The outcome is appended to `runs.jsonl`, from
which `docs/reliability.md` is generated. The exit code is 1 when anything differed.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import click
import psycopg

from tests.chaos import report
from tests.chaos.faults import FAULTS, KILLS, suited
from tests.chaos.scene import ProxiedStack, Scene
from tests.fixtures.choice import server_folder
from tests.oracle import judge
from tests.workloads.workload import Writer, load


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--seed", type=int, default=lambda: int(time.time()), show_default="the time")
@click.option("--workload", default="small", show_default=True)
@click.option("--fault", "only", multiple=True, help="Only these; all by default. `kills` are all kills.")
@click.option("--writers", default=2, show_default=True)
@click.option("--record/--no-record", default=False, help="Add the outcome to docs/reliability.md.")
@click.option("--keep", type=click.Path(path_type=Path), help="Copy the logs there when something differed.")
def main(
    rounds: int, seed: int, workload: str, only: tuple[str, ...], writers: int, record: bool, keep: Path | None
) -> None:
    """Inject faults and compare."""
    click.echo(f"SEED={seed} ROUNDS={rounds} workload {workload}")
    chance = random.Random(seed)
    outcomes: list[report.Outcome] = []
    began = time.monotonic()
    settings = {"PG_TRICKLE_TARGET_LOCK_TIMEOUT_MS": "4000", "PG_TRICKLE_CHECKPOINT_ROWS": "500"}
    with (
        server_folder("chaos") as folder,
        ProxiedStack(folder, durable=False, settings=settings, say=lambda _: None) as stack,
    ):
        scene = Scene(stack, chance, load(workload))
        with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
            scene.workload.create_tables(connection)
            scene.workload.create_stream_tables(connection)
        _must_be_equal(stack, "before anything was broken")
        click.echo(f"ready after {time.monotonic() - began:.0f} s")
        for number, name in enumerate(_order(chance, rounds, only), 1):
            outcome = _round(scene, name, [seed * 1000 + number * 10 + i for i in range(writers)])
            outcomes.append(outcome)
            click.echo(f"round {number}: {outcome}")
            if record:
                report.add(seed, workload, outcome)
            if not outcome.equal:
                if keep:
                    report.keep_logs(stack, keep)
                break
    if record:
        report.write_page()
    good = sum(outcome.equal for outcome in outcomes)
    click.echo(f"{good} of {len(outcomes)} rounds equal the oracle, SEED={seed}, {time.monotonic() - began:.0f} s")
    sys.exit(0 if good == rounds else 1)


def _order(chance: random.Random, rounds: int, only: tuple[str, ...]) -> list[str]:
    """Return the faults in random order; every fault comes once before any comes again."""
    names = suited([n for n in FAULTS if not only or n in only or ("kills" in only and n in KILLS)])
    order: list[str] = []
    while len(order) < rounds:
        order += chance.sample(names, len(names))
    return order[:rounds]


def _round(scene: Scene, name: str, seeds: list[int]) -> report.Outcome:
    stack = scene.stack
    running = [Writer(scene.workload, stack.addresses.database_url, seed) for seed in seeds]
    for writer in running:
        writer.__enter__()
    try:
        time.sleep(scene.chance.uniform(0.5, 3))
        began = time.monotonic()
        said = FAULTS[name](scene)
        time.sleep(scene.chance.uniform(0.5, 2))
    finally:
        for writer in running:
            writer.__exit__()
    # The recovery time: from the end of the fault until all three places are equal again.
    healed = time.monotonic()
    verdict = judge(stack.addresses)
    return report.Outcome(
        fault=name,
        equal=verdict.equal,
        commits=sum(writer.commits for writer in running),
        rows=verdict.rows,
        lost=sum(d.lost for d in verdict.differences),
        doubled=sum(d.doubled for d in verdict.differences),
        fault_s=round(healed - began, 1),
        recovery_s=round(time.monotonic() - healed, 1),
        said=said,
        differences=[] if verdict.equal else str(verdict).splitlines()[:20],
    )


def _must_be_equal(stack: ProxiedStack, when: str) -> None:
    verdict = judge(stack.addresses, limit_s=300)
    if not verdict.equal:
        raise SystemExit(f"{when}:\n{verdict}")


if __name__ == "__main__":
    main()
