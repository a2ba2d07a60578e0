"""The epoch in which this process maintains the stream tables of a database; every session of the applier names it.

A statement of a session that names an epoch is refused once another applier has taken over
(`shared_schema/sql_api/api/_ownership.sql`). Sessions of other commands, such as `check`, name none.
"""

from __future__ import annotations

import psycopg

ENDED = "57PT1"
"""The SQLSTATE of a write that names an epoch which has ended."""

SESSION_LOCK = 0x7067_747C
"""The class of the advisory locks of sessions that name an epoch: its successor ends them."""

_HELD: dict[str, int] = {}
"""By the URL of the database: sessions are opened in many places, and none may forget the epoch."""


def hold_epoch(url: str, epoch: int) -> None:
    """From now on name this epoch in every session that is opened."""
    _HELD[url] = epoch


def drop_epoch(url: str) -> None:
    """From now on name none."""
    _HELD.pop(url, None)


def epoch_of(url: str) -> int | None:
    """Return the epoch of this process; None when it maintains nothing there."""
    return _HELD.get(url)


def name_epoch(connection: psycopg.Connection[tuple[object, ...]], epoch: int) -> None:
    """Let a session name an epoch in all that it writes, and show others by a lock that it does; raise the server's
    error if the epoch has ended."""
    connection.execute(
        # Not one that waits: anybody may hold it.
        "SELECT pg_catalog.set_config('pg_trickle.epoch', %s, false),"
        " pg_catalog.pg_try_advisory_lock_shared(%s, %s), pgtrickle._confirm_epoch()",
        (str(epoch), SESSION_LOCK, lock_number(epoch)),
    )


def lock_number(epoch: int) -> int:
    """Return the second half of the lock of all sessions that name an epoch."""
    return epoch % 2**31


def confirm_epoch(cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
    """Keep the epoch from ending before the transaction does; raise the server's error if it has ended. For commits of
    rows on which no trigger is sure to look: that of a stream table can be disabled."""
    cursor.execute("SELECT pgtrickle._confirm_epoch() WHERE pg_catalog.current_setting('pg_trickle.epoch', true) <> ''")


def has_ended(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is a write of an epoch that has ended."""
    while error is not None:
        if isinstance(error, psycopg.Error) and error.sqlstate == ENDED:
            return True
        error = error.__cause__ or error.__context__
    return False
