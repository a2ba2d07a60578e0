"""The text of a PostgreSQL node tree -> generic nodes. Pure and total: malformed text gives MalformedTree.

The text is what the server's outfuncs.c writes: `{KIND :field value …}` for nodes, `(…)` for lists, `<>` for NULL,
bare tokens with backslash escapes for everything else. A field has exactly one value, so a value that begins with a
colon cannot be mistaken for a field; the one exception is a constant's `length [ bytes ]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shared_schema.errors import TrickleError

_TOKEN = re.compile(r"\s+|[(){}]|(?:\\.|[^\s(){}\\])+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DATUM_FIELD = "constvalue"
_NULL = "<>"
MAX_DEPTH = 200
"""Deeper trees are refused, because they would overflow the interpreter's stack. Hand-written queries stay below 60."""


class MalformedTree(TrickleError):
    """The text is not a node tree."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bare value without its escapes: a number, a truth value, a name."""

    text: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string node, as in lists of names."""

    text: str


@dataclass(frozen=True, slots=True)
class Datum:
    """The bytes of a constant."""

    data: bytes


@dataclass(frozen=True, slots=True)
class TextNode:
    """One node: its kind and its fields by name, each name once."""

    kind: str
    fields: dict[str, Tree]


Tree = None | Token | Quoted | Datum | TextNode | tuple["Tree", ...]
"""A tuple is a list; `(i 1 2)`, `(o 1 2)` and `(b 1 2)` keep their leading letter as the first token."""


def parse_node_text(text: str) -> Tree:
    """Return the one value that the text contains."""
    tokens = _TOKEN.findall(text)
    if sum(map(len, tokens)) != len(text):
        raise MalformedTree("a node tree ends inside an escape")
    parser = _Parser([t for t in tokens if not t.isspace()])
    value = parser.value(0)
    parser.expect_end()
    return value


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0

    def value(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise MalformedTree("a node tree is nested too deeply")
        token = self._take()
        match token:
            case "{":
                return self._node(depth)
            case "(":
                return self._list(depth)
            case ")" | "}":
                raise MalformedTree(f"a node tree has {token!r} where a value should be (token {self._next})")
            case _ if token == _NULL:
                return None
            case _ if len(token) > 1 and token[0] == token[-1] == '"':
                return Quoted(_unescape(token[1:-1]))
            case _:
                return Token(_unescape(token))

    def expect_end(self) -> None:
        if self._next != len(self._tokens):
            raise MalformedTree(f"a node tree continues after its end (token {self._next})")

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise MalformedTree(f"a node tree ends early (token {self._next})")
        self._next += 1
        return self._tokens[self._next - 1]

    def _list(self, depth: int) -> tuple[Tree, ...]:
        items: list[Tree] = []
        while self._peek() != ")":
            items.append(self.value(depth + 1))
        self._next += 1
        return tuple(items)

    def _node(self, depth: int) -> TextNode:
        kind = self._take()
        if not kind.isidentifier():
            raise MalformedTree(f"a node tree has {kind!r} where a node's kind should be (token {self._next})")
        fields: dict[str, Tree] = {}
        while (key := self._take()) != "}":
            name = key[1:]
            if key[0] != ":" or not name or name in fields:
                raise MalformedTree(f"a {kind} node has {key!r} where a new field should be (token {self._next})")
            value = self.value(depth + 1)
            fields[name] = self._datum(value) if name == _DATUM_FIELD else value
        return TextNode(kind, fields)

    def _datum(self, length: Tree) -> Datum | None:
        if length is None:
            return None
        if not isinstance(length, Token) or self._take() != "[":
            raise MalformedTree(f"a constant has no bytes (token {self._next})")
        numbers: list[str] = []
        while (token := self._take()) != "]":
            numbers.append(token)
        try:
            return Datum(bytes(int(n) & 0xFF for n in numbers))
        except ValueError as error:
            raise MalformedTree(f"a constant's bytes are not numbers (token {self._next})") from error

    def _peek(self) -> str:
        if self._next >= len(self._tokens):
            raise MalformedTree(f"a node tree ends inside a list (token {self._next})")
        return self._tokens[self._next]


def _unescape(token: str) -> str:
    return _ESCAPE.sub(r"\1", token) if "\\" in token else token
