"""Thresholds of plan depth: a warning when exceeded, with a hint."""

from __future__ import annotations

import psycopg

from applier.plan.depth import Thresholds, exceeded_thresholds
from applier.plan.facts import plan_facts
from applier.sql.plan_query import plan_query

CHAIN = "SELECT a.id FROM t a " + " ".join(f"JOIN t b{i} ON b{i}.id = a.id" for i in range(4))


def test_a_deep_join_is_named_with_its_depth(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        deep = plan_query(connection, CHAIN, "public").plan
        wide = plan_query(connection, f"{CHAIN} WHERE EXISTS (SELECT FROM t c WHERE c.v = a.v)", "public").plan
    assert exceeded_thresholds(deep, Thresholds(5, 5)) == []
    (one,) = exceeded_thresholds(deep, Thresholds())
    assert (one.threshold, one.limit, one.value) == ("deep_join_l0_scan_threshold", 4, 5)
    assert [found.threshold for found in exceeded_thresholds(wide, Thresholds(5, 5))] == ["part3_max_scan_count"]
    facts = plan_facts(wide, Thresholds(5, 5), ())
    assert facts["crossed"][0]["value"] == 6
    assert "part3_max_scan_count is 5, here it is 6" in facts["suggestions"][0]
