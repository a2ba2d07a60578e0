"""A query whose objects have other names by now -> its text with the present names, and a digest of its meaning. Pure.

PostgreSQL's analysed tree names objects by id and columns by number. So a text means the same as before exactly when
its tree is the same, apart from the names that the text was written with: that is checked, the text itself is only a
guess.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shared_schema.table_schema import TableId, quote_identifier

_NAMES = re.compile(r":(?:alias|eref) (?:<>|\{ALIAS (?:[^{}\\]|\\.)*\})")
_PLACES = re.compile(r":(?:location|stmt_location|stmt_len|token) -?\d+")
_RELID = re.compile(r":relid (\d+)")
_COLUMNS_OF_JOIN = re.compile(r":join(?:aliasvars|leftcols|rightcols) (?=[(<])")
_PAREN = re.compile(r"\\.|[()]")
_LEXEME = re.compile(
    r"""(?P<skip>--[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/|(?:[eE])?'(?:[^'\\]|''|\\.)*')
      |(?P<name>"(?:[^"]|"")*"|[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*)
      |(?P<dot>\.)|(?P<space>\s+)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_NO_ALIAS = frozenset(
    (
        *("all", "and", "as", "cross", "except", "fetch", "for", "from", "full", "group", "having", "inner"),
        *("intersect", "is", "join", "left", "limit", "natural", "not", "null", "on", "offset", "or", "order"),
        *("outer", "right", "tablesample", "union", "using", "when", "where", "window", "with"),
    )
)


@dataclass(frozen=True, slots=True)
class Renamed:
    """The present name of an object; of a relation whose columns have other names also the old ones, in their order.

    `labels` are those of an enum that have other names now, by their old ones.
    """

    now: TableId
    is_relation: bool
    columns: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    dropped: frozenset[int] = frozenset()
    """Places of columns that it has no more, among its old ones: a list of column aliases loses their names."""


def tree_digest(tree: str, relations: Collection[int]) -> str:
    """Return a digest of an analysed tree without the names and places of its text.

    `relations` are those that the query reads; older servers put the view that was analysed among them.
    """
    bare = _without_columns_of_joins(_PLACES.sub("", _NAMES.sub("", tree)))
    known = _RELID.sub(lambda found: found[0] if int(found[1]) in relations else ":relid 0", bare)
    return hashlib.md5(known.encode(), usedforsecurity=False).hexdigest()


def _without_columns_of_joins(tree: str) -> str:
    """Remove the lists of all columns that each join has: they say nothing about a column that the query does not use,
    and a source may get or lose such a one."""
    kept: list[str] = []
    start = 0
    for found in _COLUMNS_OF_JOIN.finditer(tree):
        kept.append(tree[start : found.start()])
        start = _end_of_list(tree, found.end())
    return "".join([*kept, tree[start:]])


def _end_of_list(tree: str, start: int) -> int:
    """Return the place after the list, or `<>`, that begins at a place of the tree."""
    depth = 0
    for found in _PAREN.finditer(tree, start) if tree[start] == "(" else ():
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return start + len("<>")


def restate(query: str, renamed: Mapping[TableId, Renamed]) -> str:
    """Return the text with present names where it names a renamed object with its schema.

    A relation keeps its old name as an alias, and old names of columns become a list of column aliases, so all else in
    the text may stay: `FROM shop.orders` -> `FROM shop.purchases orders(id, total)`.
    """
    lexemes = [(found.lastgroup or "", found.group()) for found in _LEXEME.finditer(query)]
    solid = [i for i, (kind, _) in enumerate(lexemes) if kind not in ("space", "skip")]
    result = [text for _, text in lexemes]
    for place, i in enumerate(solid):
        parts = [lexemes[k] for k in solid[place : place + 4]]
        if [kind for kind, _ in parts[:3]] != ["name", "dot", "name"]:
            continue
        if place and lexemes[solid[place - 1]][0] == "dot":
            continue
        found = renamed.get(TableId(_plain(parts[0][1]), _plain(parts[2][1])))
        after = parts[3] if len(parts) == 4 else ("", "")
        if found is None or after[0] == "dot":
            continue
        for k in range(i, solid[place + 2] + 1):
            result[k] = ""
        result[i] = found.now.quoted
        if after[0] == "name" and found.dropped:
            _shorten_aliases(solid[place + 4 :], found.dropped, lexemes, result)
        _rename_label(solid[max(0, place - 2)] - 1, found, lexemes, result)
        if not found.is_relation or (found.columns is None and found.now.name == _plain(parts[2][1])):
            continue
        columns = "" if found.columns is None else f"({', '.join(map(quote_identifier, found.columns))})"
        if after[0] != "name" or after[1].lower() in _NO_ALIAS:
            result[i] += f" {quote_identifier(_plain(parts[2][1]))}{columns}"
        elif columns and [lexemes[k][1] for k in solid[place + 4 : place + 5]] != ["("]:
            result[solid[place + 3]] += columns
    return "".join(result)


def _shorten_aliases(
    solid: list[int], dropped: frozenset[int], lexemes: list[tuple[str, str]], result: list[str]
) -> None:
    """Remove the names of dropped columns from the list of column aliases that may begin here: `(id, v, w)`."""
    if not solid or lexemes[solid[0]][1] != "(":
        return
    end = next((n for n, k in enumerate(solid) if lexemes[k][1] == ")"), None)
    if end is None:
        return
    names = [lexemes[k][1] for k in solid[1:end:2]]
    left = [name for place, name in enumerate(names) if place not in dropped]
    for k in range(solid[0], solid[end] + 1):
        result[k] = ""
    result[solid[0]] = f"({', '.join(left)})" if left else ""


def _rename_label(place: int, found: Renamed, lexemes: list[tuple[str, str]], result: list[str]) -> None:
    """Replace the constant before `::type`, two lexemes before the type's name, if its label has another name."""
    text = lexemes[place][1] if place >= 0 else ""
    for old, new in found.labels:
        if text == quote_literal(old) and "".join(lexeme for _, lexeme in lexemes[place + 1 : place + 3]) == "::":
            result[place] = quote_literal(new)


def quote_literal(text: str) -> str:
    """Quote a text for PostgreSQL, without escapes by backslash: `it's` -> `'it''s'`."""
    return "'" + text.replace("'", "''") + "'"


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
