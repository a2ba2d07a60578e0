"""Flags, environment and the settings stored in the database in; the settings in use, also after changes, out.

Nobody is told of a change: who uses a setting asks for it each time (`LiveSettings.settings`, or a function of it).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from applier.catalog.database import Connection, Database, connect
from applier.settings import ApplierSettings
from shared_schema import stored_settings
from shared_schema.errors import SettingsError
from shared_schema.settings import load_settings
from shared_schema.stored_settings import LoadedSettings, Stored, merge_settings

log = logging.getLogger(__name__)

APPLIER_PROGRAM = "pg-trickle-applier"


def read_stored(connection: Connection) -> Stored:
    """Return the settings stored in the database; none before the catalog is installed there."""
    if connection.execute(stored_settings.INSTALLED).fetchone() != (True,):
        return {}
    found = connection.execute(stored_settings.READ).fetchall()
    return {str(name): (str(value), str(source)) for name, value, source in found}


class LiveSettings:
    """The settings in use. `reload` replaces them after changes in the database, as far as that needs no restart."""

    def __init__(self, overrides: Mapping[str, Any]) -> None:
        self._overrides = overrides
        url = load_settings(ApplierSettings, **overrides).database_url.get_secret_value()
        with connect(url) as connection:
            self._stored = read_stored(connection)
        self._loaded = merge_settings(ApplierSettings, overrides, self._stored)
        self._refused: Stored | None = None

    @property
    def settings(self) -> ApplierSettings:
        """The present values; a setting that needs a restart has its value from the start."""
        return self._loaded.settings

    def reload(self, database: Database) -> None:
        """Read the stored settings; log a value that is out of bounds once and ignore it."""
        stored = read_stored(database.connection)
        if stored in (self._stored, self._refused):
            return
        try:
            fresh = merge_settings(ApplierSettings, self._overrides, stored)
        except SettingsError as error:
            log.warning(
                "settings of the database are not valid, the old ones stay in use", extra={"error": error.problem}
            )
            self._refused = stored
            return
        self._stored = stored
        self._loaded = _merge_live(self._loaded, fresh)
        self.report(database)
        log.info("settings of the database were applied")

    def report(self, database: Database) -> None:
        """Write the settings in use to the catalog, for `pgtrickle.settings()`."""
        connection = database.connection
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM pgtrickle.pgt_settings_in_use WHERE program = %s", (APPLIER_PROGRAM,))
            cursor.executemany(
                "INSERT INTO pgtrickle.pgt_settings_in_use (program, name, value, source) VALUES (%s, %s, %s, %s)",
                [(APPLIER_PROGRAM, *used) for used in self._loaded.in_use()],
            )


def _live_names() -> frozenset[str]:
    return frozenset(s.name for s in stored_settings.describe_settings(ApplierSettings, APPLIER_PROGRAM) if s.live)


def _merge_live(
    now: LoadedSettings[ApplierSettings], fresh: LoadedSettings[ApplierSettings]
) -> LoadedSettings[ApplierSettings]:
    live = _live_names()
    values = {name: getattr(fresh.settings, name) for name in live}
    sources = now.sources | {name: fresh.sources[name] for name in live}
    return LoadedSettings(now.settings.model_copy(update=values), sources)
