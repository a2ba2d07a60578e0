"""`make soak MINUTES=n` runs a mixed load, prints how memory, files, lag and history grow, and compares the results.

The exit code is 1 when a figure grows by more than its limit or a stream table differs from the oracle.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import asdict

import click
import psycopg

from deploy.local.stack import Stack
from tests.chaos import report
from tests.fixtures.choice import server_folder
from tests.oracle import judge
from tests.soak.measure import LIMITS, Soaked, sample, slopes
from tests.workloads.workload import Writer, load


@click.command()
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--workload", "names", multiple=True, default=["small", "auction"], show_default=True)
@click.option("--every-s", default=15.0, show_default=True)
@click.option("--pause-s", default=0.1, show_default=True, help="Between two transactions of a writer.")
@click.option("--seed", default=1, show_default=True)
@click.option("--record/--no-record", default=False, help="Put the outcome on docs/reliability.md.")
def main(minutes: float, names: tuple[str, ...], every_s: float, pause_s: float, seed: int, record: bool) -> None:
    """Run the soak test."""
    settings = {"PG_TRICKLE_CHECKPOINT_ROWS": "2000"}
    with server_folder("soak") as folder, Stack(folder, durable=False, settings=settings, say=lambda _: None) as stack:
        url = stack.addresses.database_url
        with psycopg.connect(url, autocommit=True) as connection:
            for name in names:
                load(name).create_tables(connection)
                load(name).create_stream_tables(connection)
        click.echo(f"filled: {judge(stack.addresses, limit_s=300)}")
        samples: list[tuple[float, dict[str, float]]] = []
        with ExitStack() as running:
            writers = [
                running.enter_context(Writer(load(name), url, seed + i, pause_s)) for i, name in enumerate(names)
            ]
            began = time.monotonic()
            while (passed := time.monotonic() - began) < minutes * 60:
                samples.append((passed / 60, sample(stack, sum(w.commits for w in writers))))
                if len(samples) % 8 == 1:
                    shown = ", ".join(f"{k} {v:.1f}" for k, v in list(samples[-1][1].items())[:3])
                    click.echo(f"{passed / 60:5.1f} min, {sum(w.commits for w in writers)} commits: {shown}")
                time.sleep(every_s)
            commits = sum(writer.commits for writer in writers)
        verdict = judge(stack.addresses, limit_s=300)
        found = slopes(samples)
        click.echo(f"{minutes:.0f} minutes, {commits} commits, {len(samples)} samples of {len(LIMITS)} figures")
        for slope in found:
            click.echo(f"  {slope}")
        click.echo(f"oracle: {verdict}")
        if record:
            outcome = Soaked(minutes, list(names), commits, verdict.rows, verdict.equal, found)
            report.remember_soak(asdict(outcome))
            report.write_page()
    sys.exit(0 if verdict.equal and all(slope.within for slope in found) else 1)


if __name__ == "__main__":
    main()
