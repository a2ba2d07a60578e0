"""Knows which tables are captured, which leaf partitions they have, and from which position on each is streamed. Pure.

The leaves of a partitioned table are followed by themselves. A leaf that joins with rows is *awaited* until it is
copied: its changes are dropped meanwhile, because the copy contains them, and readers of the table stay before the
position at which it joined. What changes inside a source commit counts for a restart when the commit is complete,
because a restart in its middle receives it again from its beginning.

A table that was captured by itself and joins another one stops: its changes go to the topic of its root. When it leaves
again it is copied again, because its own topic lacks what happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from cdc_consumer.metrics import Metrics
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class LeafOf:
    """A leaf partition of a captured table. Its commits are streamed from `since` on; None while it is awaited."""

    root: Capture
    since: Lsn | None
    is_copying: bool = False
    """Whether the whole table is being copied, or is about to be."""


class CapturedTables:
    """The captured tables of a slot, and the position from which on each of them is streamed.

    `unfinished` are tables that readers know and whose new copy did not finish: they are copied again.
    """

    def __init__(
        self, captured: Mapping[TableId, Capture], metrics: Metrics, unfinished: Collection[TableId] = ()
    ) -> None:
        self._recorded = dict(captured)
        self._captured = {t: c for t, c in captured.items() if t not in unfinished and not c.stopped}
        self._stopped: dict[TableId, Capture] = {}
        """Tables that this session does not try to capture again."""
        self._copying: dict[TableId, Capture] = {}
        """Partitioned tables that are being copied while the stream continues, or are about to be."""
        self._preparing: set[TableId] = set()
        """Those of which the snapshot is not known yet."""
        self.last_news: dict[int, Lsn] = {}
        """The last commit with a message about the leaves of each partitioned table, captured or not."""
        self._open: set[TableId] = set()
        """Tables whose leaves changed in the open commit."""
        self._changed: dict[TableId, Capture] = {}
        """Records that the next transaction of the sink must contain."""
        self._metrics = metrics
        self.is_leaf_awaited = False
        """Whether a leaf is awaited since the last check of the publications."""
        self._index()

    @property
    def captures(self) -> Mapping[TableId, Capture]:
        """The capture of each table that is streamed."""
        return self._captured

    @property
    def settled(self) -> Mapping[TableId, Capture]:
        """The captures of all tables that need not be copied: streamed ones and those that cannot be."""
        return {**self._stopped, **self._captured}

    @property
    def recorded(self) -> Mapping[TableId, Capture]:
        """The newest capture record of each table that readers know; without what the open commit changed."""
        return self._recorded

    @property
    def held_at(self) -> Lsn | None:
        """The position that the frontier must not pass yet, because leaves are not copied."""
        return self._held_at

    def find(self, relid: int) -> Capture | None:
        """Return the capture of a relation; None if it is not captured, or waits for a copy.

        By its identity, whatever its name is at this point of the stream: it may have another one for a moment.
        """
        capture = self._by_relid.get(relid)
        return None if capture is None or relid in capture.awaited else capture

    def has_relation(self, relid: int) -> bool:
        """Return whether the relation is captured."""
        return relid in self._by_relid

    def find_leaf(self, relid: int) -> LeafOf | None:
        """Return the captured table of which the relation is a leaf partition."""
        return self._by_leaf.get(relid)

    def find_root(self, relids: Collection[int]) -> Capture | None:
        """Return the partitioned table among these relations whose leaves are followed."""
        return next((root for root in self._roots() if root.relid in relids), None)

    @property
    def followed_roots(self) -> list[Capture]:
        """The partitioned tables whose leaves are followed."""
        return list(self._roots())

    def add(self, capture: Capture) -> Capture:
        """Add a captured table, or one that is stopped -> its record to publish, with the leaves that it has by now."""
        if (copied := self._copying.pop(capture.table, None)) is not None:
            capture = replace(capture, leaves=copied.leaves, awaited=copied.awaited, joined=copied.joined)
        self._preparing.discard(capture.table)
        self._recorded[capture.table] = capture
        known = [kept.pop(capture.table, None) for kept in (self._captured, self._stopped)]
        (self._stopped if capture.stopped else self._captured)[capture.table] = capture
        self._changed.pop(capture.table, None)
        if capture.leaves is None and not (capture.stopped or copied or any(known)) and self._is_new(capture.relid):
            # With many tables, as in a first load, an index of all of them for each one takes too long.
            self._by_relid[capture.relid] = capture
            self._metrics.captures.set(len(self._captured))
        else:
            self._index()
            self._stop_joined()
        return capture

    def _is_new(self, relid: int) -> bool:
        return relid not in self._by_relid and relid not in self._by_leaf

    def prepare_copy(self, capture: Capture) -> None:
        """Find the leaves of a table of which a copy is being prepared, so that its rows can be kept."""
        known = self._captured.get(capture.table)
        if known is None or known.leaves is None:
            self._copying[capture.table] = capture
            self._preparing.add(capture.table)
            self._index()
            self._stop_joined()

    def begin_copy(self, capture: Capture) -> None:
        """Follow the leaves of a partitioned table that is being copied, from its snapshot on; `add` ends that."""
        self._copying[capture.table] = capture
        self._preparing.discard(capture.table)
        self._index()
        self._stop_joined()

    def cancel_copies(self) -> None:
        """Forget the tables whose copies were prepared."""
        if self._copying:
            self._copying.clear()
            self._preparing.clear()
            self._index()

    def with_copied(self, copied: Capture, leaves: Collection[int]) -> Capture | None:
        """Return the record of a table after these leaves were copied; `copied` is that of the copy.

        One that left meanwhile is left out, also if it joined again after the snapshot. None if the whole table stopped
        meanwhile: its record says so already.
        """
        now = self._captured.get(copied.table)
        if now is None or now.leaves is None:
            return now
        at = copied.snapshot_lsn
        present = {leaf: at for leaf in leaves if leaf in now.awaited and now.awaited[leaf] <= at}
        awaited = {leaf: since for leaf, since in now.awaited.items() if leaf not in present}
        joined = {leaf: copied.joined[leaf] for leaf in present if leaf in copied.joined}
        return replace(now, leaves={**now.leaves, **present}, awaited=awaited, joined={**now.joined, **joined})

    def begin_check(self) -> None:
        """A check of the publications begins: it sees the leaves that are awaited now."""
        self.is_leaf_awaited = False

    def join(self, relid: int, leaves: Mapping[int, str], at: Lsn, empty: Collection[int] = ()) -> None:
        """Take over leaves that a table has from the commit at `at` on, and their attachments; it may have others too.

        New leaves are awaited, except those in `empty`, which have no rows at that moment. So are leaves with another
        attachment than before: no stream contains what happened to them in between.
        """
        self.last_news[relid] = at
        for root in [root for root in self._roots() if root.relid == relid]:
            known, awaited, joined = dict(root.leaves or {}), dict(root.awaited), {**root.joined, **leaves}
            if root.table in self._preparing:
                self._replace(root, replace(root, leaves=known | dict.fromkeys(leaves, at), joined=joined))
                continue
            again = {leaf for leaf, by in root.joined.items() if leaves.get(leaf, by) != by}
            for leaf in again:
                known.pop(leaf, None)
                awaited.pop(leaf, None)
            for leaf in {*leaves} - {*known, *awaited}:
                (known if leaf in empty and leaf not in again else awaited)[leaf] = at
            self.is_leaf_awaited = self.is_leaf_awaited or awaited != root.awaited
            self._replace(root, replace(root, leaves=known, awaited=awaited, joined=joined))

    def leave(self, leaf: int, at: Lsn) -> LeafGone | None:
        """Note that a relation is no partition from the commit at `at` on -> the leaf that left; None if it was none.

        None too while the copy of the table is prepared: its rows are not written yet.
        """
        known = self._by_leaf.get(leaf)
        if known is None:
            return None
        root = known.root
        self.last_news[root.relid] = at
        self._replace(
            root,
            replace(
                root,
                leaves=_without(root.leaves or {}, leaf),
                awaited=_without(root.awaited, leaf),
                joined=_without(root.joined, leaf),
            ),
        )
        return None if root.table in self._preparing else LeafGone(root, leaf)

    def doubt(self, relid: int, leaves: Mapping[int, str], at: Lsn) -> None:
        """Take over what somebody saw of a table before the commit at `at`, when other commits may have followed.

        Leaves that were not seen are awaited too: the next check says whether they left or joined since then.
        """
        self.join(relid, leaves, at)
        for root in [root for root in self._roots() if root.relid == relid and root.table not in self._preparing]:
            doubted = dict.fromkeys({*(root.leaves or {})} - {*leaves}, at)
            if doubted:
                self.is_leaf_awaited = True
                known = {leaf: since for leaf, since in (root.leaves or {}).items() if leaf in leaves}
                self._replace(root, replace(root, leaves=known, awaited={**doubted, **root.awaited}))

    def follow(
        self, relid: int, leaves: Mapping[int, str], at: Lsn, is_visible: Callable[[str], bool]
    ) -> list[LeafGone]:
        """Take over all leaves that a table has before `at`, as the catalog says -> those that left.

        A leaf that is missing stays if its attachment may not be visible yet: a commit is in the log before that.
        """
        left = [
            gone
            for root in [root for root in self._roots() if root.relid == relid]
            for leaf in sorted({*(root.leaves or {}), *root.awaited} - {*leaves})
            if is_visible(root.joined.get(leaf, "")) and (gone := self.leave(leaf, at)) is not None
        ]
        self.join(relid, leaves, at)
        return left

    def await_leaf(self, root: Capture, leaf: int, at: Lsn) -> None:
        """Note that a leaf of the table, of which nobody told, has a row in the commit at `at`."""
        self.last_news[root.relid] = at
        if root.table in self._preparing:
            self._replace(root, replace(root, leaves={**(root.leaves or {}), leaf: at}))
            return
        self.is_leaf_awaited = True
        self._replace(root, replace(root, awaited={**root.awaited, leaf: at}))

    def lose_leaves(self, root: Capture, at: Lsn) -> None:
        """Note that the commit at `at` has rows of the table without their leaf: all of it must be copied again."""
        self.is_leaf_awaited = True
        self._replace(root, replace(root, leaves=None, awaited={root.relid: at}))

    def forget_awaited(self, root: Capture) -> None:
        """Wait no longer for leaves of a table that is not published any more."""
        self._replace(root, replace(root, awaited={}))

    def note(self, capture: Capture, facts: str, left_out: str | None) -> bool:
        """Note what a table is like at present, and why its changes are not streamed -> whether that is new."""
        left_out = left_out or capture.left_out
        if (facts, left_out) == (capture.facts, capture.left_out):
            # Nearly always, and for every table at every check.
            return False
        self._replace(capture, replace(capture, facts=facts, left_out=left_out))
        return True

    def commit(self) -> None:
        """The open source commit is complete: what changed in it counts for a restart."""
        if self._open:
            self._stop_joined()
            changed = {table: self._captured[table] for table in self._open if table in self._captured}
            self._changed |= changed
            self._recorded |= changed
            self._open.clear()

    def take_changed(self) -> tuple[Capture, ...]:
        """Return the records that the next transaction of the sink must contain, once."""
        changed, self._changed = tuple(self._changed.values()), {}
        return changed

    def _replace(self, old: Capture, new: Capture) -> None:
        if old == new:
            return
        if old.table in self._copying and self._copying[old.table] is old:
            self._copying[old.table] = new
        else:
            self._captured[old.table] = new
            self._open.add(old.table)
        self._index()

    def _stop_joined(self) -> None:
        """Stop tables that are captured by themselves and are part of another captured table by now."""
        joined = {table: above for table, c in self._captured.items() if (above := self._find_above(c)) is not None}
        for table, above in joined.items():
            stopped = replace(
                self._captured.pop(table),
                stopped=f"it is a partition of {above.table}, whose topic has its changes",
                awaited={},
            )
            self._recorded[table] = self._changed[table] = stopped
        if joined:
            self._index()

    def _find_above(self, capture: Capture) -> Capture | None:
        """Return the other table of which a captured one is a partition; None if there is none."""
        if capture.leaves is None:
            leaf = self._by_leaf.get(capture.relid)
            return None if leaf is None else leaf.root
        own = {*capture.leaves, *capture.awaited}
        others = (root for root in self._roots() if root.relid != capture.relid and own)
        return next((root for root in others if own <= {*(root.leaves or ()), *root.awaited}), None)

    def _roots(self) -> Iterator[Capture]:
        """Yield the tables whose leaves are followed; a table that is copied again counts as it will be."""
        yield from self._copying.values()
        yield from (
            c
            for t, c in self._captured.items()
            if c.leaves is not None and t not in self._copying and self._is_latest(c)
        )

    def _is_latest(self, capture: Capture) -> bool:
        """Whether its relation was not captured later under another name: nobody copies leaves for the old one."""
        return self._by_relid.get(capture.relid, capture) is capture

    def _index(self) -> None:
        # Of a relation that was captured under two names the later capture counts.
        self._by_relid = {c.relid: c for c in sorted(self._captured.values(), key=lambda c: c.snapshot_lsn)}
        positions = [at for c in self._captured.values() if self._is_latest(c) for at in c.awaited.values()]
        self._held_at = min(positions, default=None)
        self._by_leaf: dict[int, LeafOf] = {}
        for root in self._roots():
            is_copying = root.table in self._copying
            self._by_leaf |= {leaf: LeafOf(root, since, is_copying) for leaf, since in (root.leaves or {}).items()}
            self._by_leaf |= {leaf: LeafOf(root, None, is_copying) for leaf in root.awaited}
        self._metrics.captures.set(len(self._captured))


def _without(leaves: Mapping[int, V], leaf: int) -> dict[int, V]:
    return {one: value for one, value in leaves.items() if one != leaf}


@dataclass(frozen=True, slots=True)
class LeafGone:
    """A leaf partition that is no longer part of a captured table: its rows leave."""

    root: Capture
    leaf: int
