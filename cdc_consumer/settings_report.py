"""Writes the settings that the consumer uses into the database, for `pgtrickle.settings()`. Nothing depends on it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg

from cdc_consumer.wal.catalog import Connection

log = logging.getLogger(__name__)

TABLE = "pgtrickle.pgt_consumer_settings_in_use"

_RIGHTS = """
SELECT n.oid IS NOT NULL, c.oid IS NOT NULL,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
       AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'DELETE')
FROM (SELECT) AS one LEFT JOIN pg_namespace n ON n.nspname = 'pgtrickle'
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'pgt_consumer_settings_in_use'
"""


class SettingsReport:
    """Name, value and source of every setting that is not a secret. The consumer that holds the slot writes them."""

    def __init__(self, slot: str, in_use: Sequence[tuple[str, str, str]]) -> None:
        self._slot = slot
        self._in_use = in_use
        self._is_logged = False

    def write(self, catalog: Connection) -> None:
        """Replace the stored settings of this slot. If that is not possible, log the reason once."""
        try:
            installed, current, allowed = catalog.execute(_RIGHTS).fetchone() or (False, False, False)
            if not installed:
                # The consumer runs alone, without an applier.
                self._log_once(logging.INFO, "schema pgtrickle is not installed in this database")
            elif not current:
                self._log_once(
                    logging.WARNING, "schema pgtrickle is of an old version: run `pg-trickle-applier install`"
                )
            elif not allowed:
                self._log_once(logging.WARNING, f"GRANT SELECT, INSERT, DELETE ON {TABLE} to this role is missing")
            else:
                self._replace(catalog)
        except psycopg.Error as error:
            # A broken connection is found again by its next user.
            self._log_once(logging.WARNING, (str(error).splitlines() or [type(error).__name__])[0])

    def _log_once(self, level: int, problem: str) -> None:
        if not self._is_logged:
            log.log(level, "settings are not reported", extra={"problem": problem})
            self._is_logged = True

    def _replace(self, catalog: Connection) -> None:
        with catalog.transaction(), catalog.cursor() as cursor:
            # Neither a lock nor an unreachable standby of the server may delay the stream.
            cursor.execute("SET LOCAL lock_timeout = '2s'; SET LOCAL synchronous_commit = off")
            cursor.execute(f"DELETE FROM {TABLE} WHERE slot = %s", (self._slot,))
            cursor.executemany(
                f"INSERT INTO {TABLE} (slot, name, value, source) VALUES (%s, %s, %s, %s)",
                [(self._slot, *used) for used in self._in_use],
            )
