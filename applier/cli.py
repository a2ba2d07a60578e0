"""Command line of the applier: flags in, one call per command. An expected error prints one line and a hint."""

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


def _report_errors(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        try:
            command(**arguments)
        except TrickleError as error:
            click.echo(f"error: {error.problem}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)
            if (accepted := getattr(error, "full_in_postgres", None)) is not None:
                click.echo(f"FULL mode, run by PostgreSQL itself, {'can' if accepted else 'cannot'} take it", err=True)
            sys.exit(1)

    return wrapper


def _connect(settings: ApplierSettings) -> psycopg.Connection[tuple[object, ...]]:
    from applier.catalog.database import connect

    return connect(settings.database_url.get_secret_value())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pg-trickle-spark")
def main() -> None:
    """Maintain stream tables: Kafka topics -> Spark -> PostgreSQL, Delta and a publication topic.

    Every setting is an environment variable PG_TRICKLE_<NAME>; see docs/settings.md.
    """


@main.command()
@click.option("--database-url", help="Database to install into.")
@click.option("--dry-run", is_flag=True, help="Print what would be applied, and roll it back.")
@_report_errors
def install(database_url: str | None, dry_run: bool) -> None:
    """Create or upgrade schema pgtrickle: the catalog and the SQL functions. Safe to repeat."""
    from applier.catalog.install import install_catalog

    with _connect(load_settings(ApplierSettings, database_url=database_url)) as connection:
        applied = install_catalog(connection, dry_run=dry_run)
    verb = "would install" if dry_run else "installed"
    click.echo(f"{verb}: {', '.join(applied)}" if applied else "already up to date; functions renewed")


@main.command()
@click.option("--database-url", help="Database to remove it from.")
@click.option("--drop-stream-tables", is_flag=True, help="Drop the stream tables too.")
@click.option("--keep-stream-tables", is_flag=True, help="Leave the stream tables as plain tables.")
@_report_errors
def uninstall(database_url: str | None, drop_stream_tables: bool, keep_stream_tables: bool) -> None:
    """Remove schema pgtrickle and the publication. Topics, Delta folders and the replication slot stay."""
    from applier.catalog.install import uninstall_catalog

    if drop_stream_tables and keep_stream_tables:
        raise TrickleError("stream tables cannot be both dropped and kept", hint="choose one of the two flags")
    with _connect(load_settings(ApplierSettings, database_url=database_url)) as connection:
        removed = uninstall_catalog(
            connection, drop_stream_tables=drop_stream_tables, keep_stream_tables=keep_stream_tables
        )
    click.echo(f"removed: {', '.join(removed)}" if removed else "schema pgtrickle is not installed")
    if removed:
        click.echo("the replication slot stays: pg-trickle-cdc drop-slot")


@main.command()
@click.option("--database-url", help="Database whose stream tables are maintained.")
@click.option("--kafka-bootstrap", help="Kafka bootstrap servers.")
@click.option("--topic-prefix", help="Prefix of the source topics.")
@click.option("--delta-root", help="Folder or URI of the Delta stream tables.")
@click.option("--state-dir", help="Folder or URI of the traces.")
@_report_errors
def run(**overrides: str | None) -> None:
    """Maintain all stream tables until stopped (SIGTERM or Ctrl-C stop cleanly)."""
    from applier.runtime.live_settings import LiveSettings
    from applier.runtime.run import Applier

    live_settings = LiveSettings(overrides)
    logs.configure(live_settings.settings.log_format, live_settings.settings.log_level)
    applier = Applier(live_settings)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: applier.stop())
    applier.run()


@main.command()
@click.argument("name", required=False)
@click.option("--sample", type=click.IntRange(min=1), help="Compare about this many randomly chosen rows.")
@click.option("--database-url", help="Database whose stream tables are checked.")
@_report_errors
def check(name: str | None, sample: int | None, database_url: str | None) -> None:
    """Compare stream tables with their queries at one LSN; exit code 1 when one differs or is suspended.

    Transactions that write the sources wait while a stream table is compared.
    """
    from applier.refresh.check import check_stream_table, stream_table_names

    settings = load_settings(ApplierSettings, database_url=database_url)
    any_differs = False
    with _connect(settings) as connection:
        tables = [t for t in stream_table_names(connection) if name in (None, t.name, str(t))]
        if name and not tables:
            raise TrickleError(
                f"there is no filled stream table {name}", hint="see SELECT * FROM pgtrickle.pgt_status()"
            )
        for table in tables:
            result = check_stream_table(connection, table, sample=sample)
            click.echo("\n".join(_format_result(result)))
            any_differs |= not result.equal
    sys.exit(1 if any_differs else 0)


def _format_result(result: CheckResult) -> list[str]:
    if result.suspended:
        return [f"{result.table}: SUSPENDED: {result.suspended}"]
    if result.skipped:
        return [f"{result.table}: NOT EQUAL: {result.skipped}"]
    verdict = "equal" if result.equal else "DIFFERENT"
    lines = [f"{result.table}: {verdict} at {result.frontier}, {result.rows} rows"]
    lines += [f"  columns    {result.columns}"] if result.columns else []
    lines += [f"  missing    {row}" for row in result.missing]
    return lines + [f"  unexpected {row}" for row in result.unexpected]


@main.command()
@click.option("--query", help="A query, as create_stream_table would get it.")
@click.option("--name", help="An existing stream table, with or without its schema.")
@click.option("--search-path", default="public", show_default=True, help="Schemas for the query's unqualified names.")
@click.option("--database-url", help="Database that has the tables.")
@_report_errors
def explain(query: str | None, name: str | None, search_path: str, database_url: str | None) -> None:
    """Print how a query is maintained: its plan, and per node the key, how a change passes through and what is read.

    Exit code 1 when it cannot be maintained; the error names the construct, its place and what to write instead.
    """
    from applier.refresh.planning import explain_query

    if (query is None) == (name is None):
        raise TrickleError("explain needs either --query or --name", hint="see pg-trickle-applier explain --help")
    with _connect(load_settings(ApplierSettings, database_url=database_url)) as connection:
        if query is not None:
            click.echo(explain_query.explain_query(connection, query, search_path), nl=False)
        else:
            click.echo(explain_query.explain_stream_table(connection, name or ""), nl=False)


@main.command()
@_report_errors
def jars() -> None:
    """Fetch and verify the jars that Spark needs, and print their paths."""
    from applier.spark.jars import SPARK_JARS, ensure

    for path in ensure(SPARK_JARS):
        click.echo(path)


@main.command()
@_report_errors
def prepare() -> None:
    """Fetch the jars, compile the functions and archive Spark's classes: every start is faster, and the first start
    needs no network."""
    from applier.runtime.prepare import prepare_start

    if (archive := prepare_start(click.echo)) is not None:
        click.echo(archive)
