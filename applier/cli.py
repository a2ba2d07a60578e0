"""Command line of the applier: settings, wiring, call. Expected errors are one line and a hint."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from applier.settings import ApplierSettings
from shared_schema import logs
from shared_schema.errors import TrickleError
from shared_schema.settings import load


def _reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        try:
            command(**arguments)
        except TrickleError as error:
            click.echo(f"error: {error.problem}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)
            sys.exit(1)

    return wrapper


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pg-trickle-spark")
def main() -> None:
    """Keep stream tables exact: Kafka topics -> Spark -> PostgreSQL, Delta and a publication topic.

    Every setting is an environment variable PG_TRICKLE_<NAME>; see docs/settings.md.
    """


@main.command()
@click.option("--database-url", help="Database to install into.")
@_reports_errors
def install(database_url: str | None) -> None:
    """Create or upgrade schema pgtrickle: the catalog and the SQL functions. Safe to repeat."""
    import psycopg

    from applier.errors import Infrastructure
    from applier.install import install as install_catalog

    settings = load(ApplierSettings, database_url=database_url)
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
            applied = install_catalog(connection)
    except psycopg.OperationalError as error:
        raise Infrastructure(
            f"PostgreSQL cannot be reached: {str(error).splitlines()[0]}",
            hint="check PG_TRICKLE_DATABASE_URL and that the server is running",
        ) from None
    click.echo(f"installed: {', '.join(applied)}" if applied else "already up to date; functions renewed")


@main.command()
@click.option("--database-url", help="Database whose stream tables are kept.")
@click.option("--kafka-bootstrap", help="Kafka bootstrap servers.")
@click.option("--topic-prefix", help="Prefix of the source topics.")
@click.option("--delta-root", help="Folder or URI of the Delta stream tables.")
@click.option("--state-dir", help="Folder or URI of the traces.")
@_reports_errors
def run(**overrides: str | None) -> None:
    """Keep all stream tables fresh until stopped (SIGTERM or Ctrl-C stop cleanly)."""
    from applier.run import Applier

    settings = load(ApplierSettings, **overrides)
    logs.configure(settings.log_format, settings.log_level)
    applier = Applier(settings)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: applier.stop())
    applier.run()


@main.command()
@_reports_errors
def jars() -> None:
    """Fetch and verify the jars Spark needs, and print where they are."""
    from applier.jars import SPARK_JARS, ensure

    for path in ensure(SPARK_JARS):
        click.echo(path)
