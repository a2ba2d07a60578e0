"""The estimated size of a delta is an upper bound, and at most one row per key where a key exists."""

from __future__ import annotations

from collections import Counter

import psycopg
from hypothesis import given
from hypothesis import strategies as st

from applier.plan.cardinality import Cardinality, bound_cardinality, may_shrink
from applier.plan.nodes import Node, Scan
from applier.sql.plan_query import plan_query
from tests.applier.operators.plans import TABLES, Bag, bags, evaluate, plans

states = st.fixed_dictionaries({name: bags for name in TABLES})


def changed(old: Bag, new: Bag) -> Counter[object]:
    both: Counter[object] = Counter(new)
    both.subtract(old)
    return Counter({row: abs(n) for row, n in both.items() if n})


@given(node=plans(), old=states, new=states)
def test_it_is_a_bound(node: Node, old: dict[str, Bag], new: dict[str, Bag]) -> None:
    def relation(scan: Scan) -> Cardinality:
        rows = changed(old[scan.table.name], new[scan.table.name]).total()
        return Cardinality(rows, old[scan.table.name].total() + rows)

    found = bound_cardinality(node, relation)
    before, after = evaluate(node, old), evaluate(node, new)
    assert len(changed(before, after)) <= found.changed
    assert len(+after) <= found.held


def test_a_key_has_one_match(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE few (id int PRIMARY KEY, v int)")
        connection.execute("CREATE TABLE many (id int PRIMARY KEY, few_id int, v int)")

        def reached(query: str, few: int, many: int) -> float:
            relations = {"few": Cardinality(few, 1_000), "many": Cardinality(many, 1_000_000)}
            return bound_cardinality(
                plan_query(connection, query, "public").plan.root, lambda scan: relations[scan.table.name]
            ).changed

        joined = "SELECT m.id, f.v FROM many m JOIN few f ON f.id = m.few_id"
        assert reached(joined, 0, 5) == 5
        assert reached(joined, 1, 0) == 1_000_000
        assert reached("SELECT f.v, count(*) FROM many m JOIN few f ON f.id = m.few_id GROUP BY 1", 0, 5) == 10
        assert reached("SELECT m.id FROM many m JOIN few f ON f.v = m.v", 0, 5) == 5_000
        assert reached("SELECT id, v FROM many WHERE v > 3", 0, 7) == 7


def test_what_groups_or_leaves_out_rows_may_shrink(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE few (id int PRIMARY KEY, v int)")
        connection.execute("CREATE TABLE many (id int PRIMARY KEY, few_id int, v int)")

        def shrinks(query: str) -> bool:
            return may_shrink(plan_query(connection, query, "public").plan.root)

        grouped = "SELECT few_id, sum(v) AS total FROM many GROUP BY few_id"
        assert shrinks(grouped)
        assert shrinks("SELECT id, v + 1 AS v FROM many WHERE v > 3")
        assert shrinks("SELECT DISTINCT v FROM many")
        assert shrinks("SELECT id FROM many ORDER BY id LIMIT 5")
        assert shrinks(f"SELECT g.total, h.total AS other FROM ({grouped}) g JOIN ({grouped}) h USING (few_id)")
        assert not shrinks("SELECT id, v + 1 AS v FROM many")
        assert not shrinks("SELECT m.id, f.v FROM many m JOIN few f ON f.id = m.few_id")
        assert not shrinks(f"SELECT m.id, g.total FROM many m JOIN ({grouped}) g USING (few_id)")
        assert not shrinks("SELECT id FROM many UNION ALL SELECT id FROM few WHERE v = 3")
