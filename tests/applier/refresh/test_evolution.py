"""What a difference between the facts of a plan and the present ones means for a stream table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from applier.refresh.vouching.evolution import Recompute, Replan, Suspend, Transparent, is_tree_changed, judge
from shared_schema.dependency_facts import DependencyFacts, read_facts, read_relation
from shared_schema.outdated_rows import outdated_rows
from shared_schema.table_schema import TableId

NAME = TableId("public", "st")
INT, TEXT, BIGINT = 23, 25, 20


def column(number: int, name: str, kind: int = INT, **other: Any) -> list[Any]:
    fact = {"typmod": -1, "collation": 0, "not_null": False, "generated": None, "written": "100"}
    return [number, name, kind, *(fact | {"default": None, "has_missing": False} | other).values()]


def relation(columns: list[list[Any]] | None = None, **other: Any) -> dict[str, Any]:
    return {
        "schema": "public",
        "name": "t",
        "kind": "r",
        "persistence": "p",
        "row_security": False,
        "is_partition": False,
        "has_children": False,
        "replica_identity": "f",
        "storage": 1,
        "rule": None,
        "options": "",
        "keys": "p {1}",
        "leaves": None,
        "publication_problem": None,
        "memberships": ["1"],
        "enums": {},
        "columns": columns or [column(1, "id"), column(2, "v"), column(3, "w")],
    } | other


def facts(table: dict[str, Any], **other: Any) -> DependencyFacts:
    return read_facts({"relations": {"5": table}, "used": {"5": [1, 2]}, **other})


def verdict(now: dict[str, Any], owners: Mapping[TableId, int] | None = None) -> object:
    return judge(facts(relation()), facts(now), owners or {}, NAME)


@pytest.mark.parametrize(
    "now",
    [
        relation(),
        relation(storage=2),  # VACUUM FULL, CLUSTER, TRUNCATE
        relation(replica_identity="d"),
        relation([column(1, "id"), column(2, "v", written="200"), column(3, "w")]),  # SET STATISTICS
        relation([column(1, "id", not_null=True), column(2, "v"), column(3, "w")]),
        relation([column(1, "id"), column(2, "v"), column(3, "x", TEXT)]),  # a column that is not read
    ],
)
def test_transparent(now: dict[str, Any]) -> None:
    assert verdict(now) == Transparent()


@pytest.mark.parametrize(
    ("now", "seen"),
    [
        (relation(row_security=True), "altered"),
        (relation(keys=None), "altered"),
        (relation([column(1, "id"), column(2, "v"), column(3, "w"), column(4, "x")]), "new columns"),
    ],
)
def test_the_plan_alone_is_made_again(now: dict[str, Any], seen: str) -> None:
    found = verdict(now)
    assert isinstance(found, Replan) and not found.renamed and seen in found.seen[0]
    # New columns are not read: nobody has to know.
    assert found.is_noted is (seen == "altered")


def test_a_column_that_is_not_read_leaves_the_text() -> None:
    assert verdict(relation([column(1, "id"), column(2, "v")])) == Replan(
        ("column w of public.t was dropped",), renamed=True, is_noted=False
    )


def test_a_constraint_that_is_gone() -> None:
    before = facts(relation([column(1, "id", not_null=True), column(2, "v")]))
    now = facts(relation([column(1, "id"), column(2, "v")]))
    assert judge(before, now, {}, NAME) == Replan(("column id of public.t may be NULL",), renamed=False)


@pytest.mark.parametrize(
    ("now", "renamed", "changes_rows"),
    [
        (relation(name="t2"), True, False),
        (relation([column(1, "id"), column(3, "v"), column(2, "w")]), True, False),  # two names swapped
        (relation([column(1, "id"), column(2, "v", BIGINT, written="2"), column(3, "w")], storage=2), False, False),
        (relation([column(1, "id"), column(2, "v", TEXT, written="2"), column(3, "w")], storage=2), False, True),
        (relation([column(1, "id"), column(2, "v", typmod=14, written="2"), column(3, "w")]), False, False),
        (relation([column(1, "id"), column(2, "v", written="2"), column(3, "w")], storage=2), False, True),
        (relation([column(1, "id"), column(2, "v", generated="e"), column(3, "w")]), False, True),
        (relation([column(1, "id"), column(2, "v", collation=950), column(3, "w")]), False, True),
        (relation(rule="other"), False, True),
    ],
)
def test_all_of_it_is_computed(now: dict[str, Any], renamed: bool, changes_rows: bool) -> None:
    found = verdict(now, {TableId("public", "other"): 9})
    assert isinstance(found, Recompute)
    assert (found.renamed, found.changes_rows) == (renamed, changes_rows)


def test_a_type_that_is_rewritten_is_never_taken_for_the_same() -> None:
    """The same plan gives other rows when USING gave the column other values; and later rows lack the old type."""
    wider = verdict(relation([column(1, "id"), column(2, "v", BIGINT, written="2"), column(3, "w")], storage=2))
    in_place = verdict(relation([column(1, "id"), column(2, "v", typmod=14, written="2"), column(3, "w")]))
    assert isinstance(wider, Recompute) and wider.rewritten and wider.retyped == {5}
    assert isinstance(in_place, Recompute) and not in_place.rewritten and in_place.retyped == {5}


def test_suspended() -> None:
    gone = judge(facts(relation()), read_facts({"used": {"5": [1, 2]}}), {}, NAME)
    again = judge(facts(relation()), read_facts({"used": {"5": [1, 2]}}), {TableId("public", "t"): 9}, NAME)
    taken = verdict(relation(name="old"), {TableId("public", "t"): 9})
    dropped = verdict(relation([column(1, "id"), column(3, "w")]))
    replaced = verdict(relation([column(1, "id"), column(3, "w"), column(4, "v")]))
    for found, problem in (
        (gone, "table public.t was dropped"),
        (again, "dropped and created again"),
        (taken, "another relation has its name"),
        (dropped, "column v of public.t was dropped"),
        (replaced, "another column has its name"),
    ):
        assert isinstance(found, Suspend) and problem in found.error.problem and found.error.hint


def test_labels_and_functions() -> None:
    def with_objects(labels: list[list[Any]], digest: str) -> DependencyFacts:
        mood = {
            "schema": "public",
            "name": "mood",
            "kind": "e",
            "base": 0,
            "typmod": -1,
            "labels": labels,
            "columns": None,
        }
        function = {"schema": "public", "name": "f", "digest": digest}
        return facts(relation(), types={"7": mood}, functions={"8": function})

    before = with_objects([[1, "a"], [2, "b"]], "d")
    assert isinstance(judge(before, with_objects([[1, "a"], [3, "x"], [2, "b"]], "d"), {}, NAME), Replan)
    renamed = judge(before, with_objects([[1, "z"], [2, "b"]], "d"), {}, NAME)
    assert isinstance(renamed, Recompute) and not renamed.changes_rows
    replaced = judge(before, with_objects([[1, "a"], [2, "b"]], "e"), {}, NAME)
    assert isinstance(replaced, Recompute) and replaced.changes_rows


@pytest.mark.parametrize(
    ("now", "outdated"),
    [
        (relation(storage=2), False),
        (relation([column(1, "id"), column(2, "v", written="2"), column(3, "w")]), False),
        (relation([column(1, "id"), column(2, "v", written="2"), column(3, "w")], storage=2), True),
        (relation([column(1, "id"), column(2, "v", typmod=14, written="2"), column(3, "w")]), False),
        (relation([column(1, "id"), column(2, "v", typmod=14, written="2"), column(3, "w")], storage=2), True),
        # The trace keeps an int and a bigint apart.
        (relation([column(1, "id"), column(2, "v", BIGINT, written="2"), column(3, "w")], storage=2), False),
        (relation([column(1, "id"), column(3, "v"), column(2, "w")]), True),
        (relation([column(1, "id"), column(2, "v"), column(4, "w")]), True),
        (relation([column(1, "id"), column(2, "v"), column(4, "x")]), False),
        (relation([column(1, "id"), column(2, "v"), column(4, "known")]), True),
        (relation(enums={"1": "b"}), True),
        (relation(enums={"1": "a", "2": "c"}), False),
    ],
)
def test_rows_of_a_trace(now: dict[str, Any], outdated: bool) -> None:
    before = read_relation(relation(enums={"1": "a"}))
    assert (
        outdated_rows(before, read_relation({**now, "enums": now["enums"] or {"1": "a"}}), {"known"}) is not None
    ) is outdated


def test_a_rewrite_puts_defaults_into_old_rows() -> None:
    def added(written: str, default: str, *, has_missing: bool, storage: int) -> dict[str, Any]:
        return relation(
            [column(1, "id"), column(2, "v", written=written, default=default, has_missing=has_missing)],
            storage=storage,
        )

    before = facts(added("1", "d", has_missing=True, storage=1))
    vacuumed = facts(added("2", "d", has_missing=False, storage=2))
    rewritten = facts(added("2", "e", has_missing=False, storage=2))
    assert judge(before, vacuumed, {}, NAME) == Transparent()
    assert isinstance(judge(before, rewritten, {}, NAME), Recompute)


def test_a_partition_tree() -> None:
    leaf = [10, "f", "r", "p", "FOR VALUES IN (1)"]
    before = read_relation(relation(kind="p", leaves={"6": leaf}))
    vacuumed = read_relation(relation(kind="p", leaves={"6": [11, *leaf[1:]]}))
    moved = read_relation(relation(kind="p", leaves={"6": [*leaf[:4], "FOR VALUES IN (2)"]}))
    assert not is_tree_changed(before, vacuumed)
    assert is_tree_changed(before, moved) and is_tree_changed(before, read_relation(relation(kind="p", leaves={})))
