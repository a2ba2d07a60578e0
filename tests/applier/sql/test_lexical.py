"""What is read from the query text itself: lexemes and the positions of constructs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.sql.lexical import Kind, find_word, lexemes
from applier.sql.refusal import Place


def test_strings_comments_and_names_are_distinguished() -> None:
    text = """SELECT "now" /* 'a' */, 'it''s', E'x\\'y', $q$ 'z' $q$ -- 'c'\n, U&'d' || w FROM t"""
    found = [(kind, lexeme) for kind, lexeme, _ in lexemes(text)]
    assert found == [
        (Kind.WORD, "select"),
        (Kind.STRING, "'it''s'"),
        (Kind.ESCAPED_STRING, "E'x\\'y'"),
        (Kind.STRING, "$q$ 'z' $q$"),
        (Kind.ESCAPED_STRING, "U&'d'"),
        (Kind.OPERATOR, "||"),
        (Kind.WORD, "w"),
        (Kind.WORD, "from"),
        (Kind.WORD, "t"),
    ]


@given(st.text(alphabet="'\"$-/*\\aE \n", max_size=40))
def test_any_text_has_lexemes_in_order(text: str) -> None:
    offsets = [offset for _, _, offset in lexemes(text)]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize(
    ("query", "construct", "place"),
    [
        ("SELECT upper(a) FROM t", "the function upper(text)", Place(7, 1, 8)),
        ("SELECT a FROM t\nLIMIT 3", "LIMIT", Place(16, 2, 1)),
        ("SELECT a ~ b FROM t", "the operator ~ (textregexeq(text,text))", Place(9, 1, 10)),
        ("SELECT 'upper', upper(a) FROM t", "the function upper(text)", Place(16, 1, 17)),
        ("SELECT upper(upper(a)) FROM t", "the function upper(text)", None),
        ("SELECT a FROM t", "the function float8(int4)", None),
    ],
)
def test_a_construct_is_found_when_its_word_is_there_once(query: str, construct: str, place: Place | None) -> None:
    assert find_word(query, construct) == place
