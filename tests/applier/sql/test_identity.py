"""A stored query is put into present names; its tree tells whether it still means the same."""

from __future__ import annotations

import pytest

from applier.sql.identity import Renamed, restate, tree_digest
from shared_schema.table_schema import TableId

ORDERS = TableId("shop", "orders")
MOVED = TableId("Shop 2", "purchases")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM shop.orders;", 'SELECT id FROM "Shop 2"."purchases" "orders";'),
        ("SELECT o.id FROM shop.orders o WHERE true", 'SELECT o.id FROM "Shop 2"."purchases" o WHERE true'),
        (
            "FROM (shop.orders JOIN shop.items USING (id))",
            'FROM ("Shop 2"."purchases" "orders" JOIN shop.items USING (id))',
        ),
        ("SELECT 'shop.orders' FROM shop . \"orders\" x(a)", 'SELECT \'shop.orders\' FROM "Shop 2"."purchases" x(a)'),
        ("/* shop.orders */ SELECT shop.orders.id", "/* shop.orders */ SELECT shop.orders.id"),
    ],
)
def test_a_renamed_relation_keeps_its_old_name_as_an_alias(query: str, expected: str) -> None:
    assert restate(query, {ORDERS: Renamed(MOVED, is_relation=True)}) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT v FROM shop.orders", 'SELECT v FROM "shop"."orders" "orders"("id", "v")'),
        ("SELECT o.v FROM shop.orders o", 'SELECT o.v FROM "shop"."orders" o("id", "v")'),
        ("SELECT o.v FROM shop.orders o(id, v)", 'SELECT o.v FROM "shop"."orders" o(id, v)'),
    ],
)
def test_old_names_of_columns_become_aliases(query: str, expected: str) -> None:
    assert restate(query, {ORDERS: Renamed(ORDERS, is_relation=True, columns=("id", "v"))}) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT v FROM shop.orders", 'SELECT v FROM "shop"."orders"'),
        ("SELECT o.v FROM shop.orders o", 'SELECT o.v FROM "shop"."orders" o'),
        ('SELECT v FROM shop.orders o(id, "a, b", v, w)', 'SELECT v FROM "shop"."orders" o(id, v)'),
        ("SELECT id FROM shop.orders o(id, x), t", 'SELECT id FROM "shop"."orders" o(id), t'),
        ("SELECT count(*) FROM shop.items i, shop.orders o", 'SELECT count(*) FROM shop.items i, "shop"."orders" o'),
    ],
)
def test_a_list_of_aliases_loses_the_columns_that_were_dropped(query: str, expected: str) -> None:
    assert restate(query, {ORDERS: Renamed(ORDERS, is_relation=True, dropped=frozenset({1, 3}))}) == expected


def test_types_and_functions_get_no_alias() -> None:
    renamed = {TableId("public", "mood"): Renamed(TableId("public", "temper"), is_relation=False)}
    assert restate("SELECT 'x'::public.mood", renamed) == 'SELECT \'x\'::"public"."temper"'
    assert restate("SELECT public.mood(v)", renamed) == 'SELECT "public"."temper"(v)'


def test_labels_of_an_enum_are_renamed_in_constants_of_its_type() -> None:
    mood = TableId("public", "mood")
    renamed = {mood: Renamed(mood, is_relation=False, labels=(("it's", "is"),))}
    query = "SELECT 'it''s'::public.mood, 'it''s'::text, public.mood('it''s')"
    assert restate(query, renamed) == "SELECT 'is'::\"public\".\"mood\", 'it''s'::text, \"public\".\"mood\"('it''s')"


def test_the_digest_of_a_tree_leaves_out_names_and_places() -> None:
    tree = (
        '({QUERY :rtable ({RTE :alias <> :eref {ALIAS :aliasname t :colnames ("id" "a\\}b")} :relid 5 :location 17})})'
    )
    other = tree.replace(":alias <>", ":alias {ALIAS :aliasname x :colnames <>}").replace('"a\\}b"', '"c"')
    other = other.replace(":location 17", ":location 3")
    assert tree_digest(tree, {5}) == tree_digest(other, {5})
    assert tree_digest(tree, {5}) != tree_digest(tree.replace(":relid 5", ":relid 6"), {5, 6})


def test_the_digest_is_the_same_whatever_columns_a_join_has_besides() -> None:
    join = ":rtekind 2 :jointype 0 :joinmergedcols 0 :joinaliasvars ({VAR :varno 1 :varattno 1} {C \\( :a (1 2)} %s) "
    join += ":joinleftcols (i 1 %s) :joinrightcols <> :inh false"
    digests = {tree_digest(join % columns, set()) for columns in (("{VAR :varno 1 :varattno 2}", "2"), ("<>", "0 3"))}
    assert len(digests) == 1
    assert tree_digest(join.replace(":inh false", ":inh true") % ("", ""), set()) not in digests
    assert tree_digest(join.replace(":jointype 0", ":jointype 1") % ("", ""), set()) not in digests
