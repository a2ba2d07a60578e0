"""The text of a query -> its strings, words and operators, by PostgreSQL's lexical rules. Pure.

The text is read for what the analysed tree does not have: positions (since 17), whether a date was written as 'today',
which PostgreSQL replaces by the date of the analysis, and the digests of functions in front of a stored query.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from enum import Enum

from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.refusal import Place, Reason, Refused
from applier.sql.typing.constants import decode_constant

_LEXEME = re.compile(
    r"""(?P<comment>--[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)
      |(?P<dollar>\$(?P<tag>[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$.*?\$(?(tag)(?P=tag))\$)
      |(?P<escaped>(?:[eE]|[uU]&)'(?:[^'\\]|''|\\.)*')
      |(?P<string>'(?:[^']|'')*')
      |(?P<name>(?:[uU]&)?"(?:[^"]|"")*")
      |(?P<word>[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*)
      |(?P<operator>[-+*/<>=~!@#%^&|`?]+)
      |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_SPECIAL_TIME_WORDS = re.compile(r"(?<![a-z])(?:now|today|tomorrow|yesterday)(?![a-z])", re.IGNORECASE)
_NAMED = re.compile(r"the (?:window )?(?:function|aggregate|operator) (?P<name>[^\s(]+)")
_IN_VIEW = re.compile(r"\(in view (?:\w+\.)?(?P<name>\w+)\)")
_KEYWORD = re.compile(r"\b[A-Z][A-Z_]+\b")
_QUALIFIED = re.compile(r"\b\w+(?:\.\w+)+\b")
_LEADING = re.compile(r"(?P<name>\w+) (?:of|over|by) ")
_DECLARED = re.compile(r"\s*/\* functions: ([0-9a-f= ]+) \*/")
_NEAR = datetime.timedelta(days=3)
"""'tomorrow' is at most two days from now in any time zone."""

_DATE, _TIMESTAMP, _TIMESTAMPTZ = 1082, 1114, 1184
_TIMES = {_DATE: "date", _TIMESTAMP: "timestamp", _TIMESTAMPTZ: "timestamptz"}


class Kind(Enum):
    """The kinds of lexemes that matter here."""

    STRING = "string"
    ESCAPED_STRING = "escaped"
    WORD = "word"
    OPERATOR = "operator"


def lexemes(query: str) -> Iterator[tuple[Kind, str, int]]:
    """Yield strings, words and operators with their character offsets, but no comments and quoted names."""
    for found in _LEXEME.finditer(query):
        match found.lastgroup:
            case "string" | "dollar" | "tag":
                yield Kind.STRING, found.group(), found.start()
            case "escaped":
                yield Kind.ESCAPED_STRING, found.group(), found.start()
            case "word":
                yield Kind.WORD, found.group().lower(), found.start()
            case "operator":
                yield Kind.OPERATOR, found.group(), found.start()
            case _:
                continue


def find_word(query: str, construct: str) -> Place | None:
    """Return the place of a construct if its word occurs exactly once in the text; of a view, the first place."""
    if view := _IN_VIEW.search(construct):
        spots = [at for kind, text, at in lexemes(query) if kind is Kind.WORD and text == view["name"].lower()]
        return Place.at(query, spots[0]) if spots else None
    return _find_unique(query, construct)


def _find_unique(query: str, construct: str) -> Place | None:
    named = _NAMED.search(construct) or _LEADING.match(construct)
    candidates = [named["name"]] if named else [*_QUALIFIED.findall(construct), *_KEYWORD.findall(construct)]
    spots: dict[str, list[int]] = {}
    for kind, text, offset in lexemes(query):
        if kind in (Kind.WORD, Kind.OPERATOR):
            spots.setdefault(text, []).append(offset)
    for candidate in candidates:
        found = spots.get(candidate.rpartition(".")[2].lower() or candidate, [])
        if len(found) == 1:
            return Place.at(query, found[0])
    return None


def declared_digests(query: str) -> dict[int, str] | None:
    """Return the digests that a stored query was created with, by function; None for a query without them."""
    found = _DECLARED.match(query)
    if found is None:
        return None
    return {int(oid): digest for oid, _, digest in (pair.partition("=") for pair in found[1].split())}


def without_digests(query: str) -> str:
    """Return a stored query without the digests of its functions."""
    return _DECLARED.sub("", query, count=1)


def has_special_time_words(query: str) -> bool:
    """Whether a string of the text contains 'now', 'today' or a similar word, or may contain one."""
    return any(
        (kind is Kind.STRING and _SPECIAL_TIME_WORDS.search(text))
        or (kind is Kind.ESCAPED_STRING and (_SPECIAL_TIME_WORDS.search(text) or "\\" in text))
        for kind, text, _ in lexemes(query)
    )


def refuse_special_times(query: str, analysed: query_tree.Query, now: datetime.datetime) -> None:
    """Refuse 'now', 'today' and similar words: in the tree they are constants of the moment of analysis.

    A query is refused when it has such a word in a string and a date constant near to now.
    """
    suspect = next(
        (
            offset
            for kind, text, offset in lexemes(query)
            if (kind is Kind.STRING and _SPECIAL_TIME_WORDS.search(text))
            or (kind is Kind.ESCAPED_STRING and (_SPECIAL_TIME_WORDS.search(text) or "\\" in text))
        ),
        None,
    )
    if suspect is None or not any(_is_near(c, now) for c in _constants(analysed)):
        return
    raise Refused(
        Reason.CURRENT_TIME,
        "a date or time written as 'now', 'today' or similar",
        hint="PostgreSQL replaces it by the time of creation; write a date, or filter when you read the stream table",
        place=Place.at(query, suspect),
    )


def _is_near(constant: tree.Constant, now: datetime.datetime) -> bool:
    if constant.datum is None or constant.type not in _TIMES:
        return False
    value = decode_constant(_TIMES[constant.type], constant.datum, constant.at)
    if isinstance(value, datetime.datetime):
        moment = value.replace(tzinfo=datetime.UTC)
    elif isinstance(value, datetime.date):
        moment = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
    else:
        return False
    return abs(moment - now) <= _NEAR


def _constants(query: query_tree.Query) -> Iterator[tree.Constant]:
    for expression in query_tree.expressions(query):
        yield from _constants_in(expression)
        for subquery in walk.subqueries(expression):
            if subquery.test is not None:
                yield from _constants_in(subquery.test)
    for inner in query_tree.inner_queries(query):
        yield from _constants(inner)


def _constants_in(expression: tree.Expression) -> Iterator[tree.Constant]:
    if isinstance(expression, tree.Constant):
        yield expression
    for argument in walk.arguments(expression):
        yield from _constants_in(argument)
