"""Which leaf partitions are streamed, awaited or gone, at every moment of a capture."""

from __future__ import annotations

from dataclasses import replace

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot.captured_tables import CapturedTables
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, decode_progress
from shared_schema.table_schema import TableId

ROOT = TableId("public", "root")


def capture(leaves: dict[int, int], at: int = 10) -> Capture:
    return Capture("slot", ROOT, 1, Lsn(at), 0, leaves={leaf: Lsn(since) for leaf, since in leaves.items()})


def tables(leaves: dict[int, int]) -> CapturedTables:
    return CapturedTables({ROOT: capture(leaves)}, Metrics(Health()))


def visible(_: str) -> bool:
    """All attachments are visible to whoever reads the catalog."""
    return True


def merged(known: CapturedTables, copied: dict[int, int]) -> Capture:
    """Return the record after leaves were copied at one point."""
    record = known.with_copied(capture(copied, at=max(copied.values())), set(copied))
    assert record is not None
    return record


def at_once(leaves: set[int]) -> dict[int, str]:
    """Return leaves that were all attached by one transaction."""
    return dict.fromkeys(leaves, ".7")


def test_leaves_leave_and_join() -> None:
    known = tables({2: 10, 3: 10})
    gone = known.leave(2, Lsn(20))
    assert gone is not None and (gone.root.table, gone.leaf) == (ROOT, 2)
    known.join(1, at_once({4, 5}), Lsn(20), {5})
    assert known.find_leaf(2) is None
    empty, awaited = known.find_leaf(5), known.find_leaf(4)
    assert empty is not None and empty.since == Lsn(20)
    assert awaited is not None and awaited.since is None
    assert known.held_at == Lsn(20) and known.is_leaf_awaited
    copied = known.add(merged(known, {4: 30}))
    assert copied.awaited == {} and known.held_at is None
    found = known.find_leaf(4)
    assert found is not None and found.since == Lsn(30)
    assert known.follow(1, at_once({3, 4, 5}), Lsn(40), visible) == []


def test_a_record_counts_once_its_commit_is_complete() -> None:
    known = tables({2: 10})
    known.leave(2, Lsn(20))
    known.join(1, at_once({3}), Lsn(20), {3})
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
    assert [one.leaf for one in known.follow(1, at_once({2}), Lsn(25), visible)] == [3], "a part of it may be written"
    assert known.held_at is None
    assert merged(known, {3: 30}).leaves == {2: Lsn(10)}


def test_leaves_are_followed_while_the_table_is_copied() -> None:
    known = CapturedTables({}, Metrics(Health()))
    known.prepare_copy(capture({2: 5}))
    root = known.find_root((1,))
    assert root is not None
    known.await_leaf(root, 3, Lsn(6))
    leaf = known.find_leaf(3)
    assert leaf is not None and leaf.is_copying and leaf.since == Lsn(6), "its rows are kept"
    known.begin_copy(capture({2: 10, 3: 10}))
    gone = known.leave(2, Lsn(20))
    known.join(1, at_once({4}), Lsn(20), {4})
    assert gone is not None and gone.leaf == 2
    known.commit()
    assert known.take_changed() == (), "no record before the copy is complete"
    done = known.add(capture({2: 10, 3: 10}))
    assert done.leaves == {3: Lsn(10), 4: Lsn(20)}
    assert not known.has_relation(2)


def test_tables_without_leaves_are_not_followed() -> None:
    old = Capture("slot", ROOT, 1, Lsn(10), 0)
    known = CapturedTables({ROOT: old}, Metrics(Health()))
    assert known.follow(1, at_once({2}), Lsn(20), visible) == [] and known.find_leaf(2) is None
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
    known.join(1, at_once({4, 7}), Lsn(20))
    assert known.take_changed() == ()
    known.commit()
    changed = {record.table: record for record in known.take_changed()}
    assert changed[ROOT].awaited == {4: Lsn(20), 7: Lsn(20)}
    for table in (alone, middle):
        assert "partition of public.root" in changed[table].stopped
        assert table not in known.settled and known.recorded[table] == changed[table]
    known.follow(1, at_once({2}), Lsn(30), visible)
    known.commit()
    assert known.find(4) is None and known.find_leaf(7) is None, "their own topics lack what happened meanwhile"
    assert set(known.settled) == {ROOT}


def test_a_leaf_that_left_and_joined_again_between_two_looks() -> None:
    known = tables({2: 10, 3: 10})
    known.follow(1, {2: ".7", 3: ".7"}, Lsn(20), visible)
    assert known.held_at is None, "how they were attached was not known"
    assert known.follow(1, {2: ".7", 3: ".9"}, Lsn(30), visible) == []
    known.commit()
    (record,) = known.take_changed()
    assert record.leaves == {2: Lsn(10)} and record.awaited == {3: Lsn(30)}
    assert decode_progress(record.encode()) == record
    # A copy of before is none of it; one of the snapshot after it is.
    assert merged(known, {3: 25}).awaited == {3: Lsn(30)}
    copied = known.add(merged(known, {3: 40}))
    assert copied.leaves == {2: Lsn(10), 3: Lsn(40)} and copied.joined == {2: ".7", 3: ".9"}


def test_a_leaf_that_another_transaction_attached_meanwhile_stays() -> None:
    known = tables({2: 10})
    known.join(1, {3: ".8"}, Lsn(20), {3})
    known.join(1, {4: ".9"}, Lsn(30), {4})
    found = known.find_leaf(3)
    assert found is not None and found.since == Lsn(20)
    # A tree that somebody saw before the commits above says nothing of leaves that are not in it.
    known.doubt(1, {2: ".7"}, Lsn(40))
    known.commit()
    (record,) = known.take_changed()
    assert record.leaves == {2: Lsn(10)} and record.awaited == {3: Lsn(40), 4: Lsn(40)}
    assert known.held_at == Lsn(40) and known.is_leaf_awaited
    # Now the catalog says that one of them is gone, and of the other one it may not know yet.
    gone = known.follow(1, {2: ".7"}, Lsn(50), lambda joined: joined != ".9")
    assert [one.leaf for one in gone] == [3] and known.held_at == Lsn(40)
    known.add(merged(known, {4: 60}))
    assert known.held_at is None


def test_a_table_that_stopped_while_a_leaf_was_copied() -> None:
    known = tables({2: 10})
    known.join(1, at_once({3}), Lsn(20))
    known.add(replace(capture({2: 10}), stopped="why", leaves=None))
    assert known.with_copied(capture({3: 30}, at=30), {3}) is None
    assert known.held_at is None and known.settled[ROOT].stopped == "why"


def test_rows_are_kept_for_a_copy_of_a_table_that_lost_its_leaves() -> None:
    known = tables({2: 10})
    root = known.find_root((1,))
    assert root is not None
    known.lose_leaves(root, Lsn(20))
    known.prepare_copy(capture({2: 25, 3: 25}))
    leaf = known.find_leaf(3)
    assert leaf is not None and leaf.is_copying
    assert known.held_at == Lsn(20), "until it is copied"


def test_a_leaf_is_awaited_under_the_present_name_only() -> None:
    """The root was renamed and captured again: nobody copies a new leaf for its old name, so nobody waits for it."""
    known = tables({2: 10})
    renamed = replace(capture({2: 20}, at=20), table=TableId("public", "renamed"))
    known.add(renamed)
    known.join(1, at_once({2, 3}), Lsn(30))
    assert known.held_at == Lsn(30)
    copied = known.with_copied(replace(renamed, snapshot_lsn=Lsn(40), leaves={3: Lsn(40)}), {3})
    assert copied is not None
    known.add(copied)
    assert known.held_at is None


def test_a_leaf_that_is_awaited_under_an_old_name_holds_nothing() -> None:
    known = tables({2: 10})
    known.join(1, at_once({2, 3}), Lsn(15))
    assert known.held_at == Lsn(15)
    known.add(replace(capture({2: 20, 3: 20}, at=20), table=TableId("public", "renamed")))
    assert known.held_at is None
