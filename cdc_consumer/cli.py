"""The commands of `pg-trickle-cdc`. An expected error prints one line and a hint; only a defect prints a traceback."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import click

from cdc_consumer.settings import ConsumerSettings
from shared_schema.errors import TrickleError
from shared_schema.logs import configure
from shared_schema.settings import load_settings
from shared_schema.stored_settings import LoadedSettings, merge_settings


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for every setting; a flag overrides its PG_TRICKLE_* variable."""
    for name, field in reversed(ConsumerSettings.model_fields.items()):
        flag = click.option(f"--{name.replace('_', '-')}", name, default=None, help=field.description, metavar="VALUE")
        command = flag(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pg-trickle-spark")
def cli() -> None:
    """Turn PostgreSQL's write-ahead log into change rows on Kafka, exactly once."""


@cli.command()
@_options
def run(**flags: Any) -> None:
    """Stream until stopped by SIGTERM or SIGINT."""
    from cdc_consumer import pipeline
    from cdc_consumer.beats import Beats
    from cdc_consumer.errors import ForeignServer, ServerBehind
    from cdc_consumer.health import Health, health_report
    from cdc_consumer.health_probe import HealthProbe
    from cdc_consumer.metrics import Metrics
    from cdc_consumer.settings_report import SettingsReport
    from cdc_consumer.wal.log_clock import LogClock
    from shared_schema.alert_sender import AlertSender
    from shared_schema.status_server import StatusServer

    loaded = _with_stored(flags)
    settings = loaded.settings
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    health = Health()
    metrics, clock = Metrics(health), LogClock()

    def report() -> dict[str, Any]:
        return {"slot": settings.slot} | health_report(health)

    server = StatusServer(settings.metrics_host, settings.metrics_port, metrics.registry, health, report)
    alerts = AlertSender(
        time.monotonic,
        lambda event: metrics.alerts.labels(event.value).inc(),
        lambda: settings.schedule_alert_cooldown_seconds,
    )
    probe = HealthProbe(settings, health, metrics.slot, alerts)
    with server, probe, Beats(settings, health, clock, alerts) as beats:
        settings_report = SettingsReport(settings.slot, loaded.in_use())
        try:
            pipeline.run_pipeline(settings, stop, health, metrics, settings_report, clock=clock)
        except (ForeignServer, ServerBehind) as error:
            beats.report_loss(error.problem)
            beats.report_end(error.problem)
            raise
        except TrickleError as error:
            beats.report_end(error.problem)
            raise


@cli.command()
@_options
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of text")
def status(as_json: bool, **flags: Any) -> None:
    """Show the slot, the published frontier and the captured tables."""
    from cdc_consumer.status import describe_status, read_status

    report = read_status(_settings(flags))
    click.echo(json.dumps(report) if as_json else describe_status(report))


@cli.command("drop-slot")
@_options
def drop_slot(**flags: Any) -> None:
    """Drop the slot and its stored progress: the next run captures every table again."""
    from cdc_consumer.status import drop_progress

    settings = _settings(flags)
    dropped = drop_progress(settings)
    click.echo(f"slot {settings.slot} {'dropped' if dropped else 'did not exist'}, its progress is erased")


@cli.command()
@_options
@click.option("--yes", is_flag=True, help="do it; without, only show what would be done and ask")
@click.option("--restored", is_flag=True, help="the server was restored to an older state, whatever it looks like")
def resync(yes: bool, restored: bool, **flags: Any) -> None:
    """Begin again on the same topics after a lost slot, a restored server or a dropped publication."""
    from cdc_consumer.resync import carry_out, describe_plan, plan_resync

    settings = _settings(flags)
    plan = plan_resync(settings, restored=restored)
    click.echo(describe_plan(plan))
    if not yes:
        click.confirm("Do that?", abort=True)
    left = carry_out(settings, plan)
    click.echo("done" if left else "done: start pg-trickle-cdc")
    for task in left:
        click.echo(f"before pg-trickle-cdc is started, {task}")


def _settings(flags: dict[str, Any]) -> ConsumerSettings:
    """Load the settings from flags and environment."""
    settings = load_settings(ConsumerSettings, **_parsed(flags))
    configure(settings.log_format, settings.log_level)
    return settings


def _with_stored(flags: dict[str, Any]) -> LoadedSettings[ConsumerSettings]:
    """From flags and environment, and from the database behind them."""
    from cdc_consumer.wal.catalog import stored_settings

    flags = _parsed(flags)
    url = load_settings(ConsumerSettings, **flags).database_url.get_secret_value()
    loaded = merge_settings(ConsumerSettings, flags, stored_settings(url))
    configure(loaded.settings.log_format, loaded.settings.log_level)
    return loaded


def _parsed(flags: dict[str, Any]) -> dict[str, Any]:
    options = flags.get("kafka_options")
    return flags | {"kafka_options": _json_object(options)} if options else flags


def _json_object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text  # the settings class reports what is wrong with it


def main() -> None:
    """The console script."""
    try:
        cli(standalone_mode=False)
    except TrickleError as error:
        click.echo(f"error: {error.problem}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
