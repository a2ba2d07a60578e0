"""The strict reader on trees captured from real servers: it refuses everything that it does not know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.layout import UNREAD_FIELDS
from applier.sql.pg_tree.node_text import Datum, MalformedTree, Quoted, TextNode, Token, parse_node_text
from applier.sql.pg_tree.read_query import read_query
from applier.sql.refusal import Reason, Refused

MAJORS = (15, 16, 18)
TREES = {major: (Path(__file__).parent / "trees" / f"{major}.txt").read_text().strip() for major in MAJORS}


def _kinds(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{([A-Z]+) ", text)))


CASES = [(major, kind) for major in MAJORS for kind in _kinds(TREES[major])]


@pytest.mark.parametrize("major", MAJORS)
def test_each_major_reads_as_the_same_query(major: int) -> None:
    query = read_query(TREES[major], major)
    names = [t.name for t in query.targets if not t.hidden]
    assert names == ["region", "state", "n", "total", "ab", "w", "odd {name}", "t", "z", "d"]
    assert len(query.groups) == 5
    assert query.has_aggregates
    assert isinstance(query.where, tree.BoolExpr)
    tables = [e for e in query.entries if isinstance(e, query_tree.TableEntry) and e.with_children]
    assert [e.name for e in tables] == ["c", "o"]
    assert len([e for e in query.entries if isinstance(e, query_tree.SubqueryEntry)]) == 1


@pytest.mark.parametrize("major", MAJORS)
def test_a_tree_of_another_major_is_refused(major: int) -> None:
    for other in set(MAJORS) - {major}:
        with pytest.raises(Refused) as caught:
            read_query(TREES[other], major)
        assert caught.value.reason is Reason.UNKNOWN_TREE


@pytest.mark.parametrize("major", [13, 19])
def test_an_unknown_major_is_refused(major: int) -> None:
    with pytest.raises(Refused):
        read_query(TREES[18], major)


@pytest.mark.parametrize(("major", "kind"), CASES)
def test_an_unknown_field_is_refused(major: int, kind: str) -> None:
    mutated = TREES[major].replace(f"{{{kind} ", f"{{{kind} :surprise 0 ", 1)
    with pytest.raises(Refused) as caught:
        read_query(mutated, major)
    assert caught.value.reason is Reason.UNKNOWN_TREE
    assert "surprise" in caught.value.construct


@pytest.mark.parametrize(("major", "kind"), CASES)
def test_an_unknown_kind_is_refused(major: int, kind: str) -> None:
    with pytest.raises(Refused) as caught:
        read_query(TREES[major].replace(f"{{{kind} ", "{NOVELTY ", 1), major)
    assert caught.value.reason in (Reason.UNKNOWN_TREE, Reason.CONSTRUCT)


@pytest.mark.parametrize("major", MAJORS)
def test_a_spare_field_with_another_value_is_refused(major: int) -> None:
    for kind in _kinds(TREES[major]):
        for name, linear_map in UNREAD_FIELDS[kind].items():
            found = re.search(rf"\{{{kind} [^{{}}]*?:{name} (true|false|<>|-?\d+|n)(?=[ }}])", TREES[major])
            if linear_map.values is None or found is None:
                continue
            start, end = found.span(1)
            with pytest.raises(Refused):
                read_query(TREES[major][:start] + "77" + TREES[major][end:], major)


@pytest.mark.parametrize("major", MAJORS)
def test_a_missing_field_is_refused_when_it_is_read(major: int) -> None:
    for name in ("varno", "opfuncid", "args", "consttype", "jointree", "rtekind", "aggfnoid", "quals"):
        mutated = re.sub(rf":{name} (?:[^\s(){{}}]+|<>)", "", TREES[major], count=1)
        if mutated != TREES[major]:
            with pytest.raises(Refused):
                read_query(mutated, major)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MAJORS), st.data())
def test_damaged_text_gives_a_refusal_and_nothing_else(major: int, data: st.DataObject) -> None:
    text = TREES[major]
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 40))
    damaged = text[:start] + data.draw(st.text(alphabet=' (){}[]<>:"\\09az-', max_size=5)) + text[start + length :]
    try:
        read_query(damaged, major)
    except Refused:
        return


@given(st.text(alphabet=' (){}[]<>:"\\09aA', max_size=60))
def test_any_text_is_a_tree_or_malformed(text: str) -> None:
    try:
        parse_node_text(text)
    except MalformedTree:
        return


def test_the_forms_of_values() -> None:
    node = parse_node_text(r'{THING :a 1 :b <> :c (1 <> "x\ y") :d :e :f "" :g \<> :constvalue 3 [ -1 0 127 ]}')
    assert node == TextNode(
        "THING",
        {
            "a": Token("1"),
            "b": None,
            "c": (Token("1"), None, Quoted("x y")),
            "d": Token(":e"),
            "f": Quoted(""),
            "g": Token("<>"),
            "constvalue": Datum(b"\xff\x00\x7f"),
        },
    )


@pytest.mark.parametrize(
    "text",
    ["", "(", ")", "{", "{A", "{A b}", "{A :b}", "{A :b 1 :b 2}", "1 2", "\\", "{A :constvalue 1 [ x ]}", "(" * 900],
)
def test_malformed_text_is_said_to_be(text: str) -> None:
    with pytest.raises(MalformedTree):
        parse_node_text(text)
