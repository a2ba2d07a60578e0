"""Which leaf partitions are streamed, awaited or gone, at every moment of a capture."""

from __future__ import annotations

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot.captured_tables import CapturedTables, LeafGone
from cdc_consumer.wal.visibility import Sight
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, decode_progress
from shared_schema.table_schema import TableId

ROOT = TableId("public", "root")

LATER = Sight(oldest=90, next=95, open=frozenset({90, 92}), at=Lsn(1_000))
"""It sees everything that the tests attach."""


def capture(leaves: dict[int, int], at: int = 10) -> Capture:
    return Capture("slot", ROOT, 1, Lsn(at), 0, leaves={leaf: Lsn(since) for leaf, since in leaves.items()})


def tables(leaves: dict[int, int]) -> CapturedTables:
    return CapturedTables({ROOT: capture(leaves)}, Metrics(Health()))


def at_once(leaves: set[int]) -> dict[int, str]:
    """Return leaves that were all attached by one transaction."""
    return dict.fromkeys(leaves, ".7")


def test_leaves_leave_and_join() -> None:
    known = tables({2: 10, 3: 10})
    gone = known.follow(1, at_once({3, 4, 5}), Lsn(20), {5}, LATER)
    assert [(one.root.table, one.leaf) for one in gone] == [(ROOT, 2)]
    assert known.find_leaf(2) is None
    empty, awaited = known.find_leaf(5), known.find_leaf(4)
    assert empty is not None and empty.since == Lsn(20)
    assert awaited is not None and awaited.since is None
    assert known.held_at == Lsn(20) and known.is_leaf_awaited
    copied = known.add(known.with_copied(capture({4: 30}, at=30), {4}))
    assert copied.awaited == {} and known.held_at is None
    found = known.find_leaf(4)
    assert found is not None and found.since == Lsn(30)
    assert known.follow(1, at_once({3, 4, 5}), Lsn(40), (), LATER) == []


def test_a_record_counts_once_its_commit_is_complete() -> None:
    known = tables({2: 10})
    known.follow(1, at_once({3}), Lsn(20), {3}, LATER)
    assert known.take_changed() == (), "a restart receives the open commit again"
    known.commit()
    (record,) = known.take_changed()
    assert record.leaves == {3: Lsn(20)}
    assert decode_progress(record.encode()) == record
    known.commit()
    assert known.take_changed() == ()


def test_a_leaf_that_leaves_before_it_is_copied() -> None:
    known = tables({2: 10})
    root = known.find_root((9, 1))
    assert root is not None
    known.await_leaf(root, 3, Lsn(20))
    known.commit()
    (record,) = known.take_changed()
    assert decode_progress(record.encode()) == record and record.awaited == {3: Lsn(20)}
    assert [one.leaf for one in known.follow(1, at_once({2}), Lsn(25), (), LATER)] == [3], "a part of it may be written"
    assert known.held_at is None
    assert known.with_copied(capture({3: 30}, at=30), {3}).leaves == {2: Lsn(10)}


def test_leaves_are_followed_while_the_table_is_copied() -> None:
    known = CapturedTables({}, Metrics(Health()))
    known.prepare_copy(capture({2: 5}))
    root = known.find_root((1,))
    assert root is not None
    known.await_leaf(root, 3, Lsn(6))
    leaf = known.find_leaf(3)
    assert leaf is not None and leaf.is_copying and leaf.since == Lsn(6), "its rows are kept"
    known.begin_copy(capture({2: 10, 3: 10}))
    gone = known.follow(1, at_once({3, 4}), Lsn(20), {4}, LATER)
    assert [one.leaf for one in gone] == [2]
    known.commit()
    assert known.take_changed() == (), "no record before the copy is complete"
    done = known.add(capture({2: 10, 3: 10}))
    assert done.leaves == {3: Lsn(10), 4: Lsn(20)}
    assert isinstance(gone[0], LeafGone) and not known.has_relation(2)


def test_tables_without_leaves_are_not_followed() -> None:
    old = Capture("slot", ROOT, 1, Lsn(10), 0)
    known = CapturedTables({ROOT: old}, Metrics(Health()))
    assert known.follow(1, at_once({2}), Lsn(20), (), LATER) == [] and known.find_leaf(2) is None
    assert decode_progress(old.encode()) == old
    assert known.find(1) == old


def test_a_table_that_was_published_via_its_root_waits_for_a_copy() -> None:
    known = tables({2: 10})
    root = known.find_root((1,))
    assert root is not None
    known.lose_leaves(root, Lsn(20))
    assert known.held_at == Lsn(20) and known.find_leaf(2) is None
    assert known.find(1) is None, "its rows are dropped until it is copied again"
    known.commit()
    assert [record.leaves for record in known.take_changed()] == [None]
    known.begin_copy(capture({2: 30}, at=30))
    known.add(capture({2: 30}, at=30))
    assert known.held_at is None and known.find_leaf(2) is not None


def test_a_table_that_joins_another_one_stops_and_does_not_resume() -> None:
    alone, middle = TableId("public", "alone"), TableId("public", "middle")
    own = Capture("slot", alone, 4, Lsn(10), 0)
    part = Capture("slot", middle, 6, Lsn(10), 0, leaves={7: Lsn(10)})
    known = CapturedTables({ROOT: capture({2: 10}), alone: own, middle: part}, Metrics(Health()))
    known.follow(1, at_once({2, 4, 7}), Lsn(20), (), LATER)
    assert known.take_changed() == ()
    known.commit()
    changed = {record.table: record for record in known.take_changed()}
    assert changed[ROOT].awaited == {4: Lsn(20), 7: Lsn(20)}
    for table in (alone, middle):
        assert "partition of public.root" in changed[table].stopped
        assert table not in known.settled and known.recorded[table] == changed[table]
    known.follow(1, at_once({2}), Lsn(30), (), LATER)
    known.commit()
    assert known.find(4) is None and known.find_leaf(7) is None, "their own topics lack what happened meanwhile"
    assert set(known.settled) == {ROOT}


def test_a_leaf_that_left_and_joined_again_between_two_looks() -> None:
    known = tables({2: 10, 3: 10})
    known.follow(1, {2: ".7", 3: ".7"}, Lsn(20), (), LATER)
    assert known.held_at is None, "how they were attached was not known"
    assert known.follow(1, {2: ".7", 3: ".9"}, Lsn(30), (), LATER) == []
    known.commit()
    (record,) = known.take_changed()
    assert record.leaves == {2: Lsn(10)} and record.awaited == {3: Lsn(30)}
    assert decode_progress(record.encode()) == record
    # A copy of before is none of it; one of the snapshot after it is.
    assert known.with_copied(capture({3: 25}, at=25), {3}).awaited == {3: Lsn(30)}
    copied = known.add(known.with_copied(capture({3: 40}, at=40), {3}))
    assert copied.leaves == {2: Lsn(10), 3: Lsn(40)} and copied.joined == {2: ".7", 3: ".9"}


def test_a_leaf_that_a_message_could_not_see_is_not_gone() -> None:
    """Another transaction attached it after the message was written, and committed first."""
    for attached, since in ((".92", 20), (".95", 20), (".80.92", 20), (".80", 1_500)):
        known = tables({2: 10})
        known.follow(1, {2: ".80", 3: attached}, Lsn(since), {3}, LATER)
        assert known.follow(1, {2: ".80"}, Lsn(2_000), (), LATER) == []
        assert known.held_at == Lsn(2_000) and known.is_leaf_awaited, "the catalog is looked at before it is passed"
    known = tables({2: 10})
    known.follow(1, {2: ".80", 3: ".91"}, Lsn(20), {3}, LATER)
    assert [one.leaf for one in known.follow(1, {2: ".80"}, Lsn(2_000), (), LATER)] == [3]
