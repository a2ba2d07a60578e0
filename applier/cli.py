"""Command line of the applier: settings, wiring, call. Expected errors are one line and a hint."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from applier.settings import ApplierSettings
from shared_schema import logs
from shared_schema.errors import TrickleError
from shared_schema.settings import load_settings

if TYPE_CHECKING:
    import psycopg

    from applier.refresh.check import CheckResult


def _reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        try:
            command(**arguments)
        except TrickleError as error:
            click.echo(f"error: {error.problem}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)
            if (able := getattr(error, "full_in_postgres", None)) is not None:
                click.echo(f"FULL mode, run by PostgreSQL itself, {'can' if able else 'cannot'} take it", err=True)
            sys.exit(1)

    return wrapper


def _connection(settings: ApplierSettings) -> psycopg.Connection[tuple[object, ...]]:
    from applier.catalog.database import connect

    return connect(settings.database_url.get_secret_value())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pg-trickle-spark")
def main() -> None:
    """Keep stream tables exact: Kafka topics -> Spark -> PostgreSQL, Delta and a publication topic.

    Every setting is an environment variable PG_TRICKLE_<NAME>; see docs/settings.md.
    """


@main.command()
@click.option("--database-url", help="Database to install into.")
@click.option("--dry-run", is_flag=True, help="Try it, say what would be applied, and leave nothing.")
@_reports_errors
def install(database_url: str | None, dry_run: bool) -> None:
    """Create or upgrade schema pgtrickle: the catalog and the SQL functions. Safe to repeat."""
    from applier.catalog.install import install_catalog

    with _connection(load_settings(ApplierSettings, database_url=database_url)) as connection:
        applied = install_catalog(connection, dry_run=dry_run)
    said = "would install" if dry_run else "installed"
    click.echo(f"{said}: {', '.join(applied)}" if applied else "already up to date; functions renewed")


@main.command()
@click.option("--database-url", help="Database to remove it from.")
@click.option("--drop-stream-tables", is_flag=True, help="Drop the stream tables too.")
@click.option("--keep-stream-tables", is_flag=True, help="Leave the stream tables as plain tables.")
@_reports_errors
def uninstall(database_url: str | None, drop_stream_tables: bool, keep_stream_tables: bool) -> None:
    """Remove schema pgtrickle and the publication. Topics, Delta folders and the replication slot stay."""
    from applier.catalog.install import uninstall_catalog

    if drop_stream_tables and keep_stream_tables:
        raise TrickleError("stream tables cannot be both dropped and kept", hint="choose one of the two flags")
    with _connection(load_settings(ApplierSettings, database_url=database_url)) as connection:
        removed = uninstall_catalog(
            connection, drop_stream_tables=drop_stream_tables, keep_stream_tables=keep_stream_tables
        )
    click.echo(f"removed: {', '.join(removed)}" if removed else "schema pgtrickle is not installed")
    if removed:
        click.echo("the replication slot stays: pg-trickle-cdc drop-slot")


@main.command()
@click.option("--database-url", help="Database whose stream tables are kept.")
@click.option("--kafka-bootstrap", help="Kafka bootstrap servers.")
@click.option("--topic-prefix", help="Prefix of the source topics.")
@click.option("--delta-root", help="Folder or URI of the Delta stream tables.")
@click.option("--state-dir", help="Folder or URI of the traces.")
@_reports_errors
def run(**overrides: str | None) -> None:
    """Keep all stream tables fresh until stopped (SIGTERM or Ctrl-C stop cleanly)."""
    from applier.runtime.live_settings import LiveSettings
    from applier.runtime.run import Applier

    tuning = LiveSettings(overrides)
    logs.configure(tuning.settings.log_format, tuning.settings.log_level)
    applier = Applier(tuning)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: applier.stop())
    applier.run()


@main.command()
@click.argument("name", required=False)
@click.option("--sample", type=click.IntRange(min=1), help="Compare about so many rows, chosen by chance.")
@click.option("--database-url", help="Database whose stream tables are checked.")
@_reports_errors
def check(name: str | None, sample: int | None, database_url: str | None) -> None:
    """Compare stream tables with their queries at one log position; exit code 1 when one differs or is suspended.

    Writers of the sources wait while their stream table is compared.
    """
    from applier.refresh import check as checking

    settings = load_settings(ApplierSettings, database_url=database_url)
    wrong = False
    with _connection(settings) as connection:
        tables = [t for t in checking.stream_table_names(connection) if name in (None, t.name, str(t))]
        if name and not tables:
            raise TrickleError(
                f"there is no filled stream table {name}", hint="see SELECT * FROM pgtrickle.pgt_status()"
            )
        for table in tables:
            result = checking.check_stream_table(connection, table, sample=sample)
            click.echo("\n".join(_told(result)))
            wrong |= not result.equal
    sys.exit(1 if wrong else 0)


def _told(result: CheckResult) -> list[str]:
    if result.suspended:
        return [f"{result.table}: SUSPENDED: {result.suspended}"]
    verdict = "equal" if result.equal else "DIFFERENT"
    lines = [f"{result.table}: {verdict} at {result.frontier}, {result.rows} rows"]
    lines += [f"  columns    {result.columns}"] if result.columns else []
    lines += [f"  missing    {row}" for row in result.missing]
    return lines + [f"  unexpected {row}" for row in result.unexpected]


@main.command()
@click.option("--query", help="The query of a stream table that might be.")
@click.option("--name", help="A stream table that is, with or without its schema.")
@click.option("--search-path", default="public", show_default=True, help="Where the query's names are looked up.")
@click.option("--database-url", help="Database that knows the tables.")
@_reports_errors
def explain(query: str | None, name: str | None, search_path: str, database_url: str | None) -> None:
    """Print how a query is kept: its plan, per node the key, how a change passes through, what is read.

    Exit code 1 when it cannot be kept; then the construct, its place and what to write instead.
    """
    from applier.refresh import explain_query

    if (query is None) == (name is None):
        raise TrickleError("explain needs either --query or --name", hint="see pg-trickle-applier explain --help")
    with _connection(load_settings(ApplierSettings, database_url=database_url)) as connection:
        if query is not None:
            click.echo(explain_query.explain_query(connection, query, search_path), nl=False)
        else:
            click.echo(explain_query.explain_stream_table(connection, name or ""), nl=False)


@main.command()
@_reports_errors
def jars() -> None:
    """Fetch and verify the jars Spark needs, and print where they are."""
    from applier.spark.jars import SPARK_JARS, ensure

    for path in ensure(SPARK_JARS):
        click.echo(path)


@main.command()
@_reports_errors
def prepare() -> None:
    """Fetch the jars, compile the functions and archive Spark's classes: every start is faster, the first needs no
    network."""
    from applier.runtime import prepare as preparing

    if (archive := preparing.prepare_start(click.echo)) is not None:
        click.echo(archive)
