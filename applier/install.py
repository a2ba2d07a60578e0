"""Installs the catalog and the SQL functions: numbered migrations once each, the functions anew every time."""

from __future__ import annotations

import logging
from importlib import resources
from importlib.resources.abc import Traversable

import psycopg

from applier.errors import InstallError

log = logging.getLogger(__name__)

LOCK_KEY = 0x7067_7472
"""Advisory lock so that two installers take turns."""


def _sql_files(folder: str) -> list[Traversable]:
    root = resources.files("shared_schema.catalog").joinpath(folder)
    return sorted((f for f in root.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)


def install(connection: psycopg.Connection[tuple[object, ...]]) -> list[str]:
    """Bring schema `pgtrickle` to this version in one transaction; return what was applied."""
    applied: list[str] = []
    try:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
            cursor.execute("CREATE SCHEMA IF NOT EXISTS pgtrickle")
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS pgtrickle.pgt_schema_version"
                " (version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
            )
            done = {
                int(str(row[0]))
                for row in cursor.execute("SELECT version FROM pgtrickle.pgt_schema_version").fetchall()
            }
            migrations = {int(f.name.split("_", 1)[0]): f for f in _sql_files("migrations")}
            if unknown := done - migrations.keys():
                raise InstallError(
                    f"the catalog is at version {max(unknown)}, newer than this program knows",
                    hint="upgrade pg-trickle-applier",
                )
            for version, file in migrations.items():
                if version not in done:
                    cursor.execute(file.read_bytes())
                    cursor.execute(
                        "INSERT INTO pgtrickle.pgt_schema_version (version, name) VALUES (%s, %s)", (version, file.name)
                    )
                    applied.append(file.name)
            for file in _sql_files("api"):
                cursor.execute(file.read_bytes())
    except psycopg.errors.InsufficientPrivilege as error:
        raise InstallError(
            f"the role may not install the catalog: {error.diag.message_primary}",
            hint="run it once as the database's owner",
        ) from error
    return applied
