"""The applier's settings with those of the database: read at the start, looked at while it runs."""

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
    """What is set in the database; nothing before the catalog is installed there."""
    if connection.execute(stored_settings.INSTALLED).fetchone() != (True,):
        return {}
    found = connection.execute(stored_settings.READ).fetchall()
    return {str(name): (str(value), str(source)) for name, value, source in found}


class LiveSettings:
    """Settings in use. `look` takes over what was changed in the database meanwhile, as far as that is possible."""

    def __init__(self, overrides: Mapping[str, Any]) -> None:
        self._overrides = overrides
        url = load_settings(ApplierSettings, **overrides).database_url.get_secret_value()
        with connect(url) as connection:
            self._stored = read_stored(connection)
        self._loaded = merge_settings(ApplierSettings, overrides, self._stored)
        self._refused: Stored | None = None

    @property
    def settings(self) -> ApplierSettings:
        """As they are now; what needs a restart is as it was at the start."""
        return self._loaded.settings

    def look(self, database: Database, engine: Engine, maintenance: Maintenance) -> None:
        """One question to the database; a value that is out of bounds is said once and not taken."""
        stored = read_stored(database.connection)
        if stored in (self._stored, self._refused):
            return
        try:
            fresh = merge_settings(ApplierSettings, self._overrides, stored)
        except SettingsError as error:
            log.warning("settings of the database are not taken over", extra={"error": error.problem})
            self._refused = stored
            return
        self._stored = stored
        before, self._loaded = self.settings, _with_live(self._loaded, fresh)
        _tune(engine, maintenance, before, self.settings)
        self.report(database)
        log.info("settings of the database were taken over")

    def report(self, database: Database) -> None:
        """Show in SQL what is in use."""
        connection = database.connection
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM pgtrickle.pgt_settings_in_use WHERE program = %s", (PROGRAM,))
            cursor.executemany(
                "INSERT INTO pgtrickle.pgt_settings_in_use (program, name, value, source) VALUES (%s, %s, %s, %s)",
                [(PROGRAM, *used) for used in self._loaded.in_use()],
            )


def _live() -> frozenset[str]:
    return frozenset(s.name for s in stored_settings.describe_settings(ApplierSettings, PROGRAM) if s.live)


def _with_live(
    now: LoadedSettings[ApplierSettings], fresh: LoadedSettings[ApplierSettings]
) -> LoadedSettings[ApplierSettings]:
    live = _live()
    taken = {name: getattr(fresh.settings, name) for name in live}
    sources = now.sources | {name: fresh.sources[name] for name in live}
    return LoadedSettings(now.settings.model_copy(update=taken), sources)


def _tune(engine: Engine, maintenance: Maintenance, before: ApplierSettings, settings: ApplierSettings) -> None:
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
        # Between two ticks, so nothing is in the old pool.
        engine.workers.shutdown()
        engine.workers = ThreadPoolExecutor(settings.max_parallel_workers, thread_name_prefix="compute")
