"""UPDATE = D + I, under every replica identity, with unchanged TOAST and changed keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_consumer.change_rows.split import TableReader, Transaction
from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.messages import (
    Begin,
    Delete,
    Insert,
    OldImage,
    Relation,
    RelationColumn,
    RowMessage,
    Tuple,
    Unchanged,
    Update,
)
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

TOAST = Unchanged.TOAST
BEGIN = Begin(Lsn(500), 77, 9)
TEXT = PgType(25, -1, "text", "text")


def cols(*ordinals: int) -> frozenset[int]:
    return frozenset(ordinals)


def reader(identity: ReplicaIdentity, names: str = "kvw", key: str = "k") -> TableReader:
    """Return a reader of text columns, one per letter; `key` are those of the primary key."""
    full = identity is ReplicaIdentity.FULL
    relation = Relation(5, "s", "t", identity, tuple(RelationColumn(n, 25, -1, full or n in key) for n in names))
    columns = tuple(Column(n, TEXT) for n in names)
    return TableReader(relation, TableSchema(TableId("s", "t"), 5, columns, tuple(key), identity))


def split(message: RowMessage, identity: ReplicaIdentity = ReplicaIdentity.FULL) -> list[ChangeRow]:
    return list(Transaction(BEGIN).split(message, reader(identity)))


def test_insert() -> None:
    (row,) = split(Insert(5, (b"1", None, b"w")))
    assert (row.op, row.values, row.changed, row.unknown) == (Op.INSERT, ("1", None, "w"), None, frozenset())
    assert (row.stamp, row.xid, row.commit_ts_us, row.snapshot) == (Stamp(Lsn(500), 0), 9, 77, False)


def test_delete_under_full() -> None:
    (row,) = split(Delete(5, OldImage((b"1", None, b"w"), full=True)))
    assert (row.op, row.values, row.changed, row.unknown) == (Op.DELETE, ("1", None, "w"), None, frozenset())


def test_delete_by_key_knows_only_the_key() -> None:
    (row,) = split(Delete(5, OldImage((b"1", None, None), full=False)), ReplicaIdentity.DEFAULT)
    assert (row.values, row.unknown) == (("1", None, None), cols(1, 2))


def test_update_under_full_names_exactly_what_changed() -> None:
    old = OldImage((b"1", b"v", None), full=True)
    before, after = split(Update(5, old, (b"1", b"V", None)))
    assert (before.op, before.values) == (Op.DELETE, ("1", "v", None))
    assert (after.op, after.values) == (Op.INSERT, ("1", "V", None))
    assert before.changed == after.changed == cols(1)
    assert after.stamp == Stamp(Lsn(500), 1)


def test_update_that_changes_nothing_still_says_it_is_an_update() -> None:
    before, after = split(Update(5, OldImage((b"1", b"v", None), full=True), (b"1", b"v", None)))
    assert before.changed == after.changed == frozenset()


def test_unchanged_toast_is_filled_from_a_full_old_image() -> None:
    before, after = split(Update(5, OldImage((b"1", b"long", b"w"), full=True), (b"1", TOAST, b"W")))
    assert after.values == ("1", "long", "W")
    assert after.unknown == before.unknown == frozenset()
    assert after.changed == cols(2)


def test_unchanged_toast_without_an_old_image_is_unknown_and_unchanged() -> None:
    before, after = split(Update(5, None, (b"1", TOAST, b"W")), ReplicaIdentity.DEFAULT)
    assert (before.values, before.unknown) == (("1", None, None), cols(1, 2))
    assert (after.values, after.unknown) == (("1", None, "W"), cols(1))
    assert after.changed == before.changed == cols(2)


def test_changed_key_is_old_on_d_and_new_on_i() -> None:
    update = Update(5, OldImage((b"1", None, None), full=False), (b"2", b"v", None))
    before, after = split(update, ReplicaIdentity.DEFAULT)
    assert (before.values, before.unknown) == (("1", None, None), cols(1, 2))
    assert (after.values, after.unknown) == (("2", "v", None), frozenset())
    assert before.changed == after.changed == cols(0, 1, 2)


def test_a_set_to_null_counts_as_changed_when_the_old_value_is_unknown() -> None:
    _, after = split(Update(5, None, (b"1", None, b"w")), ReplicaIdentity.DEFAULT)
    assert after.changed == cols(1, 2)


def test_a_partition_with_a_smaller_identity_than_its_root() -> None:
    before, after = split(Update(5, None, (b"1", b"v", b"w")), ReplicaIdentity.FULL)
    assert (before.values, before.unknown) == (("1", None, None), cols(1, 2))
    assert after.changed == cols(1, 2)
    before, _ = split(Update(5, OldImage((b"0", None, None), full=False), (b"1", b"v", b"w")), ReplicaIdentity.FULL)
    assert (before.values, before.unknown) == (("0", None, None), cols(1, 2))


def test_rows_are_numbered_across_tables_and_skips() -> None:
    transaction, table = Transaction(BEGIN), reader(ReplicaIdentity.FULL)
    insert = Insert(5, (b"1", None, None))
    update = Update(5, OldImage((b"1", None, None), full=True), (b"1", b"v", None))
    transaction.skip(insert)
    transaction.skip(update)
    rows = [*transaction.split(update, table), transaction.truncate(), *transaction.split(insert, table)]
    assert [row.stamp.seq for row in rows] == [3, 4, 5, 6]
    assert rows[2].op is Op.TRUNCATE and rows[2].values is None and rows[2].changed is None


@pytest.mark.parametrize(
    "message",
    [
        Insert(5, (b"1",)),
        Delete(5, OldImage((b"1",), full=True)),
        Update(5, OldImage((b"1",), full=True), (b"1", None, None)),
        Update(5, None, (b"1", None)),
    ],
)
def test_tuples_of_another_width_are_malformed(message: RowMessage) -> None:
    with pytest.raises(MalformedMessage):
        split(message)


values = st.one_of(st.none(), st.sampled_from([b"a", b"b"]))
rows_of_three = st.tuples(st.sampled_from([b"1", b"2"]), values, values)


@given(old=rows_of_three, new=rows_of_three, toast=st.frozensets(st.sampled_from([1, 2])))
def test_every_identity_describes_the_same_update(old: Tuple, new: Tuple, toast: frozenset[int]) -> None:
    """For every identity, known values are correct, and the possibly changed columns include all changed ones."""
    toast = frozenset(i for i in toast if old[i] == new[i])
    sent = tuple(TOAST if i in toast else value for i, value in enumerate(new))
    full = split(Update(5, OldImage(old, full=True), sent), ReplicaIdentity.FULL)
    key_image = OldImage((old[0], None, None), full=False) if old[0] != new[0] else None
    keyed = split(Update(5, key_image, sent), ReplicaIdentity.DEFAULT)
    for exact, partial in zip(full, keyed, strict=True):
        assert exact.unknown == frozenset()
        assert exact.values is not None and partial.values is not None
        assert all(partial.values[i] == exact.values[i] for i in range(3) if i not in partial.unknown)
        assert exact.changed is not None and partial.changed is not None
        assert exact.changed == {i for i in range(3) if old[i] != new[i]}
        assert exact.changed <= partial.changed
        assert not partial.changed & toast
