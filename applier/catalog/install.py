"""A connection in; schema `pgtrickle` at this version out: each migration runs once, the functions are replaced."""

from __future__ import annotations

import json
import logging
from importlib import resources
from importlib.resources.abc import Traversable

import psycopg
from psycopg import sql

from applier.errors import InstallError

log = logging.getLogger(__name__)

_LOCK = "LOCK TABLE pgtrickle.pgt_schema_version IN EXCLUSIVE MODE"
"""Only one installer runs at a time. Not an advisory lock: anybody may hold one."""

Connection = psycopg.Connection[tuple[object, ...]]
Cursor = psycopg.Cursor[tuple[object, ...]]


def _sql_files(folder: str) -> list[Traversable]:
    root = resources.files("shared_schema.sql_api").joinpath(folder)
    return sorted((f for f in root.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)


def migrations() -> dict[int, Traversable]:
    """Return the migration files by version, in order."""
    found: dict[int, Traversable] = {}
    for file in _sql_files("migrations"):
        version = int(file.name.split("_", 1)[0])
        if version in found:
            raise InstallError(f"two migrations have version {version}: {found[version].name}, {file.name}")
        found[version] = file
    return found


def install_catalog(connection: Connection, *, dry_run: bool = False) -> list[str]:
    """Bring schema `pgtrickle` to this version in one transaction; return the applied migrations.

    A dry run does all of it and rolls it back: what it returns would have worked.
    """
    try:
        with connection.transaction(force_rollback=dry_run), connection.cursor() as cursor:
            return _install(cursor)
    except psycopg.errors.InsufficientPrivilege as error:
        raise InstallError(
            f"the role may not install the catalog: {error.diag.message_primary}",
            hint="run it as a role with CREATE on the database, or as the one that owns schema pgtrickle",
        ) from error
    except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateTable) as error:
        raise InstallError("another session installs the catalog at this moment", hint="run it again") from error
    except psycopg.errors.ObjectInUse as error:
        raise InstallError(error.diag.message_primary or str(error), hint=error.diag.message_hint or "") from error
    except psycopg.errors.DependentObjectsStillExist as error:
        raise InstallError(
            f"an older function cannot be replaced: {error.diag.message_detail}",
            hint="drop the objects that use it, and create them again afterwards",
        ) from error


def _install(cursor: Cursor) -> list[str]:
    # Not IF NOT EXISTS: that requires the right to create the schema even when it exists.
    if cursor.execute("SELECT to_regnamespace('pgtrickle') IS NULL").fetchone() == (True,):
        cursor.execute("CREATE SCHEMA pgtrickle")
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS pgtrickle.pgt_schema_version"
        " (version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    cursor.execute(_LOCK)
    rows = cursor.execute("SELECT version FROM pgtrickle.pgt_schema_version").fetchall()
    done = {int(str(row[0])) for row in rows}
    known = migrations()
    if unknown := done - known.keys():
        raise InstallError(
            f"the catalog is at version {max(unknown)}, newer than this program knows",
            hint="upgrade pg-trickle-applier",
        )
    applied: list[str] = []
    for version, file in known.items():
        if version not in done:
            cursor.execute(file.read_bytes())
            cursor.execute(
                "INSERT INTO pgtrickle.pgt_schema_version (version, name) VALUES (%s, %s)", (version, file.name)
            )
            applied.append(file.name)
    _describe_settings(cursor)
    _renew_functions(cursor)
    return applied


def check_version(connection: Connection) -> None:
    """Raise InstallError when schema `pgtrickle` is missing, or older or newer than this program."""
    found = connection.execute("SELECT to_regclass('pgtrickle.pgt_schema_version') IS NOT NULL").fetchone()
    if found != (True,):
        raise InstallError("schema pgtrickle is not installed", hint="run `pg-trickle-applier install` first")
    row = connection.execute("SELECT max(version) FROM pgtrickle.pgt_schema_version").fetchone()
    installed, known = int(str(row[0])) if row and row[0] is not None else 0, max(migrations())
    if installed < known:
        raise InstallError(
            f"schema pgtrickle is at version {installed}, this program needs version {known}",
            hint="run `pg-trickle-applier install`: it upgrades the schema in one transaction",
        )
    if installed > known:
        raise InstallError(
            f"schema pgtrickle is at version {installed}, newer than version {known} of this program",
            hint="upgrade pg-trickle-applier",
        )


def _describe_settings(cursor: Cursor) -> None:
    """Store the bounds of all settings, which set_setting() checks; values that are set stay."""
    described = resources.files("shared_schema.sql_api").joinpath("settings.json").read_text()
    settings = json.loads(described)
    columns = [column for column in settings[0] if column != "name"]
    cursor.execute(
        "DELETE FROM pgtrickle.pgt_setting_definitions WHERE name <> ALL (%s)", ([s["name"] for s in settings],)
    )
    cursor.execute(
        "INSERT INTO pgtrickle.pgt_setting_definitions"
        " SELECT * FROM jsonb_populate_recordset(NULL::pgtrickle.pgt_setting_definitions, %s::jsonb)"
        f" ON CONFLICT (name) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in columns)}".encode(),
        (described,),
    )


_FUNCTIONS = (
    "SELECT oid::regprocedure::text, pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc"
    # Not trigger functions: dropping one, even for a moment, blocks every reader of its table. An event trigger fires
    # for the functions that are dropped here.
    " WHERE pronamespace = 'pgtrickle'::regnamespace AND prorettype <> ALL ('{trigger,event_trigger}'::regtype[])"
)


def _renew_functions(cursor: Cursor) -> None:
    """Replace every function in place, so that grants stay; first drop those whose signature is not in this version."""
    if not (before := set(cursor.execute(_FUNCTIONS).fetchall())):
        return _load_functions(cursor)
    # To know the functions of this version, create them without the old ones, and roll that back.
    with cursor.connection.transaction(force_rollback=True):
        for signature, _, _ in before:
            cursor.execute(f"DROP FUNCTION IF EXISTS {signature} CASCADE".encode())
        _load_functions(cursor)
        needed = set(cursor.execute(_FUNCTIONS).fetchall())
    for signature, _, _ in sorted(before - needed, key=str):
        cursor.execute(f"DROP FUNCTION {signature}".encode())
    return _load_functions(cursor)


def _load_functions(cursor: Cursor) -> None:
    for file in _sql_files("api"):
        cursor.execute(file.read_bytes())


_USERS = """
SELECT DISTINCT v.oid::regclass::text
FROM pg_depend d
JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
JOIN pg_class v ON v.oid = w.ev_class AND v.relnamespace <> 'pgtrickle'::regnamespace
LEFT JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
WHERE coalesce(c.relnamespace, p.pronamespace) = 'pgtrickle'::regnamespace ORDER BY 1
"""


def uninstall_catalog(
    connection: Connection, *, drop_stream_tables: bool = False, keep_stream_tables: bool = False
) -> list[str]:
    """Remove schema `pgtrickle` and the publication in one transaction; return what was removed.

    The caller decides whether stream tables are dropped or stay as plain tables. The replication slot and the
    sources' REPLICA IDENTITY stay.
    """
    removed: list[str] = []
    with connection.transaction(), connection.cursor() as cursor:
        if cursor.execute("SELECT to_regclass('pgtrickle.pgt_stream_tables') IS NULL").fetchone() == (True,):
            return removed
        cursor.execute(_LOCK)
        if users := [str(row[0]) for row in cursor.execute(_USERS).fetchall()]:
            raise InstallError(f"{', '.join(users)} read schema pgtrickle", hint="drop them first")
        # One that hangs still holds its lock.
        if cursor.execute("SELECT pgtrickle._is_running('pg-trickle-applier')").fetchone() == (True,):
            raise InstallError("an applier maintains the stream tables", hint="stop pg-trickle-applier first")
        tables = cursor.execute(
            # Those of self-monitoring go with the schema.
            "SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables"
            " WHERE pgt_schema <> 'pgtrickle'"
        ).fetchall()
        names = [str(row[0]) for row in tables]
        if names and not (drop_stream_tables or keep_stream_tables):
            raise InstallError(
                f"there are stream tables: {', '.join(names)}",
                hint="choose --drop-stream-tables or --keep-stream-tables (they stay as plain tables)",
            )
        publication = cursor.execute("SELECT pgtrickle._setting('publication')").fetchone()
        if drop_stream_tables:
            for name in names:
                cursor.execute(f"DROP TABLE IF EXISTS {name}".encode())
                removed.append(f"stream table {name}")
        cursor.execute("DROP SCHEMA pgtrickle CASCADE")
        removed.append("schema pgtrickle")
        if publication and isinstance(publication[0], str):
            cursor.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication[0])))
            removed.append(f"publication {publication[0]}")
    return removed
