"""Flags, environment and the settings stored in the database in; the settings in use, also after changes, out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from applier.catalog.database import Connection, Database, connect
from applier.refresh.engine import Engine
from applier.runtime.maintenance import Maintenance
from applier.settings import ApplierSettings
from shared_schema import stored_settings
from shared_schema.errors import SettingsError
from shared_schema.settings import load_settings
from shared_schema.stored_settings import LoadedSettings, Stored, merge_settings

log = logging.getLogger(__name__)

PROGRAM = "pg-trickle-applier"


def read_stored(connection: Connection) -> Stored:
    """Return the settings stored in the database; none before the catalog is installed there."""
    if connection.execute(stored_settings.INSTALLED).fetchone() != (True,):
        return {}
    found = connection.execute(stored_settings.READ).fetchall()
    return {str(name): (str(value), str(source)) for name, value, source in found}


class LiveSettings:
    """The settings in use. `reload` applies later changes in the database, as far as that needs no restart."""

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

    def reload(self, database: Database, engine: Engine, maintenance: Maintenance) -> None:
        """Read the stored settings and apply them; log a value that is out of bounds once and ignore it."""
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
        before, self._loaded = self.settings, _merge_live(self._loaded, fresh)
        _apply(engine, maintenance, before, self.settings)
        self.report(database)
        log.info("settings of the database were applied")

    def report(self, database: Database) -> None:
        """Write the settings in use to the catalog, for `pgtrickle.settings()`."""
        connection = database.connection
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM pgtrickle.pgt_settings_in_use WHERE program = %s", (PROGRAM,))
            cursor.executemany(
                "INSERT INTO pgtrickle.pgt_settings_in_use (program, name, value, source) VALUES (%s, %s, %s, %s)",
                [(PROGRAM, *used) for used in self._loaded.in_use()],
            )


def _live_names() -> frozenset[str]:
    return frozenset(s.name for s in stored_settings.describe_settings(ApplierSettings, PROGRAM) if s.live)


def _merge_live(
    now: LoadedSettings[ApplierSettings], fresh: LoadedSettings[ApplierSettings]
) -> LoadedSettings[ApplierSettings]:
    live = _live_names()
    values = {name: getattr(fresh.settings, name) for name in live}
    sources = now.sources | {name: fresh.sources[name] for name in live}
    return LoadedSettings(now.settings.model_copy(update=values), sources)


def _apply(engine: Engine, maintenance: Maintenance, before: ApplierSettings, settings: ApplierSettings) -> None:
    """Every live setting has its line here."""
    engine.sinks.postgres.batch_size = settings.pipeline_batch_size
    engine.scheduler.max_consecutive_errors = settings.max_consecutive_errors
    engine.planner.max_change_ratio = settings.differential_max_change_ratio
    engine.planner.step_rows = settings.catch_up_rows
    maintenance.max_buffer_rows = settings.max_buffer_rows
    maintenance.delta_interval_s = settings.delta_interval_ms / 1000
    maintenance.checkpoint_rows = settings.checkpoint_rows
    maintenance.tidy_interval_s = settings.delta_tidy_interval_s
    maintenance.delta_retention_hours = settings.delta_retention_hours
    maintenance.history_retention_days = settings.history_retention_days
    if before.max_parallel_workers != settings.max_parallel_workers:
        # Between two ticks, so the old pool has no work.
        engine.workers.shutdown()
        engine.workers = ThreadPoolExecutor(settings.max_parallel_workers, thread_name_prefix="compute")
