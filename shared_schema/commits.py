"""Sessions that were at work when the catalog was looked at in; those whose commit may be under way out.

A commit is in the log before other sessions see it, and a synchronous standby that is away makes that gap long. So a
session that is committing when we look may have altered something that the comparison does not see yet. A session that
waits for its client has not begun to commit. Most commits take microseconds: one that still runs after a short pause,
and does not wait for a standby, is an ordinary long statement.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SESSIONS = """
WITH sessions AS MATERIALIZED (
    -- Our own sessions alter nothing that a plan rests on, whatever they stage or index for minutes. What follows in a
    -- text that is cut is not known.
    SELECT a.pid, a.backend_xid::text AS xid, a.state, a.wait_event, a.backend_type,
           coalesce(a.wait_event_type = 'Lock', false) AS waits_for_lock,
           CASE WHEN a.application_name = 'pg-trickle-applier' AND a.usename = session_user THEN 'select'
                WHEN length(a.query) > 4000
                  OR octet_length(a.query) >= pg_size_bytes(current_setting('track_activity_query_size')) - 4
                THEN left(a.query, 4000) || '; …' ELSE a.query END AS query
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND (a.backend_xid IS NOT NULL OR a.query ~* '^\\s*(/\\*.*?\\*/\\s*|--[^\\n]*\\n\\s*)*commit\\s+prepared')
), locks AS MATERIALIZED (
    SELECT l.pid, coalesce(l.relation, l.objid)::int8 AS oid FROM pg_locks l
    WHERE l.granted AND l.locktype IN ('relation', 'object')
      AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND l.database IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    UNION ALL
    -- Who closes a gate, or advances a watermark, changes how far the readers of that source go.
    SELECT l.pid, l.objid::int8 FROM pg_locks l
    WHERE l.granted AND l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::int8 = 1885828210
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT s.pid, coalesce(s.xid, ''), s.state, coalesce(s.wait_event, ''), s.query,
       coalesce(s.backend_type, ''), ARRAY(SELECT l.oid FROM locks l WHERE l.pid = s.pid), s.waits_for_lock
FROM sessions s
"""
"""The other sessions of the database that write, for `session_of`."""

COMMIT_S = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256)
"""Pauses in which a commit ends, also one that a synchronous standby far away confirms; those that begin meanwhile are
after the position for which one looks."""

_FIRST = re.compile(r"^\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*([a-z]+)\b([^;]*)(;?.*)$", re.IGNORECASE | re.DOTALL)
_READS_AND_WRITES = frozenset(
    ("select", "insert", "update", "delete", "merge", "with", "values", "table", "copy", "fetch", "explain", "truncate")
)
"""Statements that alter no object, unless they call a function that does."""
_UPKEEP = frozenset(("vacuum", "analyze", "cluster", "reindex", "refresh", "create index", "validate constraint"))
"""Statements that take long, and strong locks, and change nothing that a plan rests on: one that does not know that a
constraint holds for old rows is right all the same."""
_CREATE_INDEX = re.compile(r"^create\s+(?:unique\s+)?index\b", re.IGNORECASE)
_NAME = r'(?:"(?:[^"]|"")+"|[^\s",.;()*/-]+)'
_VALIDATE = re.compile(
    rf"^alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?{_NAME}(?:\.{_NAME})*\s+"
    rf"validate\s+constraint\s+{_NAME}\s*$",
    re.IGNORECASE,
)
"""Nothing else may be altered by the same statement."""
_LONG = frozenset(("call", "do", "execute"))
"""Statements that may run for hours and do anything."""
_OF_RELATIONS = re.compile(
    r"^(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:(?:global|local|temp|temporary|unlogged|unique|recursive|foreign|"
    r"materialized)\s+)*(?:table|index|view)\b",
    re.IGNORECASE,
)
"""Statements that keep a strong lock on every existing object that they alter. They may run for hours, too."""

_TAKES_LOCKS = "takes locks"


@dataclass(frozen=True, slots=True)
class SessionAtWork:
    """A session with a transaction that writes: its state in pg_stat_activity and the objects it has locked strongly.

    `state` is None, and `query` without content, where the role may not see the activity of others.
    """

    pid: int
    xid: str
    state: str | None
    wait_event: str
    query: str
    backend: str
    locked: frozenset[int]
    waits_for_lock: bool = False
    """Whether its statement waits for another session: a commit never does."""

    @property
    def is_visible(self) -> bool:
        """Whether we may see what it does."""
        return self.state not in (None, "disabled")

    @property
    def statement(self) -> str:
        """The first word of the statement, or that its locks tell; empty when others follow one that is harmless."""
        found = _FIRST.match(self.query)
        if found is None:
            return ""
        word, is_alone = found[1].lower(), not found[3].strip(" \n\t;")
        if is_alone and _CREATE_INDEX.match(f"{found[1]}{found[2]}"):
            return "create index"
        if is_alone and _VALIDATE.match(f"{found[1]}{found[2]}"):
            return "validate constraint"
        if is_alone and _OF_RELATIONS.match(f"{found[1]}{found[2]}"):
            return _TAKES_LOCKS
        return word if is_alone or word not in _READS_AND_WRITES | _UPKEEP else ""

    @property
    def waits_for_standby(self) -> bool:
        """Whether its commit is in the log and waits for a synchronous standby."""
        return self.wait_event == "SyncRep"

    @property
    def may_commit(self) -> bool:
        """Whether its commit may be under way."""
        if self.backend.startswith("autovacuum") or self.waits_for_lock or (self.state or "").startswith("idle"):
            return False
        return self.waits_for_standby or self.statement not in _UPKEEP

    @property
    def is_long(self) -> bool:
        """Whether its statement may run for long before it commits; not known of a session that we may not see."""
        return self.is_visible and self.statement in (_READS_AND_WRITES | _LONG | {""})

    def concerns(self, objects: Collection[int]) -> bool:
        """Whether it may have altered one of these objects."""
        if not self.locked.isdisjoint(objects):
            return True
        # Nothing is locked while a function is replaced: then only the statement tells.
        return self.is_visible and self.statement not in _READS_AND_WRITES | {_TAKES_LOCKS}


def commits_under_way(first: Iterable[SessionAtWork], second: Iterable[SessionAtWork]) -> list[SessionAtWork]:
    """Return the sessions of the first look whose commit may still be under way at a second one, shortly after."""
    still = {(s.pid, s.xid): s for s in second if s.may_commit}
    found = [still[s.pid, s.xid] for s in first if s.may_commit and (s.pid, s.xid) in still]
    return [s for s in found if s.waits_for_standby or not s.is_long]


def session_of(row: Sequence[Any]) -> SessionAtWork:
    """Return the session of a row of SESSIONS."""
    pid, xid, state, wait_event, query, backend, locked, waits_for_lock = row
    return SessionAtWork(pid, xid, state, wait_event, query, backend, frozenset(locked), waits_for_lock)


def find_commits(
    look: Callable[[], Iterable[SessionAtWork]], before: Iterable[SessionAtWork], objects: Collection[int] | None = None
) -> list[SessionAtWork]:
    """Return the sessions whose commit may be under way and may have altered something, or one of the `objects`.

    Looks again where one look does not tell; those that were found `before` are not waited for again.
    """
    waited = {(session.pid, session.xid) for session in before}
    found = [s for s in look() if s.may_commit and (s.concerns(objects or ()) or (objects is None and bool(s.locked)))]
    for pause in COMMIT_S:
        if all((session.pid, session.xid) in waited for session in found):
            break
        time.sleep(pause)
        found = commits_under_way(found, look())
    return found
