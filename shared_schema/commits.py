"""Sessions that were at work when the catalog was looked at in; those whose commit may be under way out.

A commit is in the log before other sessions see it, and a synchronous standby that is away makes that gap long. So a
session that is committing when we look may have altered something that the comparison does not see yet. A session that
waits for its client has not begun to commit. Most commits take microseconds: one that still runs after a short pause,
and does not wait for a standby, is an ordinary long statement.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

SESSIONS = """
WITH sessions AS MATERIALIZED (
    SELECT a.pid, a.backend_xid::text AS xid, a.state, a.wait_event, a.query, a.backend_type FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND (a.backend_xid IS NOT NULL OR a.query ~* '^\\s*commit\\s+prepared')
), locks AS MATERIALIZED (
    SELECT l.pid, coalesce(l.relation, l.objid)::int8 AS oid FROM pg_locks l
    WHERE l.granted AND l.locktype IN ('relation', 'object')
      AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND l.database IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
)
SELECT s.pid, coalesce(s.xid, ''), s.state, coalesce(s.wait_event, ''), left(s.query, 4000),
       coalesce(s.backend_type, ''), ARRAY(SELECT l.oid FROM locks l WHERE l.pid = s.pid)
FROM sessions s
"""
"""The other sessions of the database that write; a row is the arguments of `SessionAtWork`."""

COMMIT_S = (0.002, 0.004, 0.008, 0.016, 0.032)
"""Pauses in which a commit that does not wait for a standby ends; those that begin meanwhile are after the frontier."""

_INDEX = re.compile(r"\s*(unique\s+)?index\b", re.IGNORECASE)
_LOCKING = re.compile(
    r"\s*((global|local|temp|temporary|unlogged)\s+)*(table|materialized\s+view|index|sequence)\b", re.IGNORECASE
)
"""What CREATE, ALTER and DROP say of objects that they lock as long as the statement alters them."""

_FIRST = re.compile(r"^\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*([a-z]+)\b([^;]*)(;?.*)$", re.IGNORECASE | re.DOTALL)
_READS_AND_WRITES = frozenset(
    ("select", "insert", "update", "delete", "merge", "with", "values", "table", "copy", "fetch", "explain", "truncate")
)
"""Statements that alter no object, unless they call a function that does."""
_UPKEEP = frozenset(("vacuum", "analyze", "cluster", "reindex", "refresh"))
"""Statements that take long, and strong locks, and change nothing that a plan rests on."""
_LONG = frozenset(("call", "do", "execute"))
"""Statements that may run for hours and do anything."""


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

    @property
    def statement(self) -> str:
        """The first word of the statement; empty when others follow one that is harmless by itself."""
        found = _FIRST.match(self.query)
        if found is None:
            return ""
        word, is_alone = found[1].lower(), not found[3].strip(" \n\t;")
        if is_alone and word == "create" and _INDEX.match(found[2]):
            return "reindex"
        return word if is_alone or word not in _READS_AND_WRITES | _UPKEEP else ""

    @property
    def waits_for_standby(self) -> bool:
        """Whether its commit is in the log and waits for a synchronous standby."""
        return self.wait_event == "SyncRep"

    @property
    def may_commit(self) -> bool:
        """Whether its commit may be under way."""
        if self.backend.startswith("autovacuum") or (self.state or "").startswith("idle"):
            return False
        return self.waits_for_standby or self.statement not in _UPKEEP

    @property
    def is_long(self) -> bool:
        """Whether its statement may run for long before it commits; not known of a session that we may not see."""
        return self.state is not None and self.statement in (_READS_AND_WRITES | _LONG | {""})

    def concerns(self, objects: Collection[int]) -> bool:
        """Whether it may have altered one of these objects."""
        if not self.locked.isdisjoint(objects):
            return True
        # Nothing is locked while a function is replaced: then only the statement tells.
        return self.state is not None and not self._locks_what_it_alters

    @property
    def _locks_what_it_alters(self) -> bool:
        """Whether the statement takes locks on all that it alters. An unrelated one that rewrites a table for an hour
        must not stop anybody."""
        found = _FIRST.match(self.query)
        if self.statement in _READS_AND_WRITES or found is None:
            return self.statement in _READS_AND_WRITES
        is_alone = not found[3].strip(" \n\t;")
        return is_alone and self.statement in ("create", "alter", "drop") and bool(_LOCKING.match(found[2]))


def commits_under_way(first: Iterable[SessionAtWork], second: Iterable[SessionAtWork]) -> list[SessionAtWork]:
    """Return the sessions of the first look whose commit may still be under way at a second one, shortly after."""
    still = {(s.pid, s.xid): s for s in second if s.may_commit}
    found = [still[s.pid, s.xid] for s in first if s.may_commit and (s.pid, s.xid) in still]
    return [s for s in found if s.waits_for_standby or not s.is_long]


def find_commits(
    look: Callable[[], Iterable[SessionAtWork]], objects: Collection[int], pause: Callable[[float], None] = time.sleep
) -> list[SessionAtWork]:
    """Return the sessions that may be committing a change of one of the objects. Looks again where one look does not
    tell."""
    first = [session for session in look() if session.may_commit and session.concerns(objects)]
    for seconds in COMMIT_S:
        if not first or all(session.waits_for_standby for session in first):
            break
        pause(seconds)
        first = commits_under_way(first, look())
    return first
