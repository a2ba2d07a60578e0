"""One generic node -> the values of its fields, strictly: a field that is not read must be listed as harmless."""

from __future__ import annotations

from applier.sql.pg_tree.layout import UNREAD_FIELDS, UNSUPPORTED_KINDS
from applier.sql.pg_tree.node_text import Datum, Quoted, TextNode, Token, Tree
from applier.sql.refusal import Reason, Refused

_UNKNOWN_HINT = "this program does not know the query tree that this server made; please report the query"


def unknown(what: str) -> Refused:
    """Return the refusal of a tree that this program cannot read."""
    return Refused(Reason.UNKNOWN_TREE, what, hint=_UNKNOWN_HINT)


class Fields:
    """The fields of one node. Read the fields that you need, then call `finish`."""

    def __init__(self, node: TextNode, major: int) -> None:
        self._node = node
        self._major = major
        self._names_read: set[str] = set()
        if node.kind not in UNREAD_FIELDS:
            known = UNSUPPORTED_KINDS.get(node.kind)
            if known is None:
                raise unknown(f"a node of kind {node.kind}")
            reason = Reason.CURRENT_TIME if node.kind == "SQLVALUEFUNCTION" else Reason.CONSTRUCT
            raise Refused(reason, known[0], hint=known[1], token=_first_position(node))

    def tree(self, name: str) -> Tree:
        """Return the raw value; a missing field is a refusal."""
        self._names_read.add(name)
        try:
            return self._node.fields[name]
        except KeyError:
            raise unknown(f"a {self._node.kind} node without {name}") from None

    def integer(self, name: str) -> int:
        """Return a number (also an object id or an enum code)."""
        value = self.tree(name)
        if isinstance(value, Token) and value.text.removeprefix("-").isascii() and value.text.lstrip("-").isdigit():
            return int(value.text)
        raise self._malformed(name)

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        match self.tree(name):
            case Token("true"):
                return True
            case Token("false"):
                return False
            case _:
                raise self._malformed(name)

    def text(self, name: str) -> str | None:
        """Return a name; None for NULL."""
        match self.tree(name):
            case None:
                return None
            case Token(text) | Quoted(text):
                return text
            case _:
                raise self._malformed(name)

    def datum(self, name: str) -> bytes | None:
        """Return the bytes of a constant; None for NULL."""
        match self.tree(name):
            case None:
                return None
            case Datum(data):
                return data
            case _:
                raise self._malformed(name)

    def node(self, name: str) -> TextNode:
        """Return a node."""
        value = self.tree(name)
        if isinstance(value, TextNode):
            return value
        raise self._malformed(name)

    def optional(self, name: str) -> TextNode | None:
        """Return a node; None for NULL."""
        return None if self.tree(name) is None else self.node(name)

    def nodes(self, name: str) -> tuple[TextNode, ...]:
        """Return a list of nodes; NULL is the empty list."""
        value = self.tree(name)
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise self._malformed(name)
        if not all(isinstance(item, TextNode) for item in value):
            raise self._malformed(name)
        return tuple(item for item in value if isinstance(item, TextNode))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of names; NULL is the empty list."""
        value = self.tree(name)
        items = value if isinstance(value, tuple) else ()
        found = tuple(item.text for item in items if isinstance(item, Token | Quoted))
        if (value is not None and not isinstance(value, tuple)) or len(found) != len(items):
            raise self._malformed(name)
        return found

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of numbers; in the text a letter for their kind comes first."""
        value = self.tree(name)
        items = value if isinstance(value, tuple) else ()
        texts = [item.text for item in items if isinstance(item, Token)]
        if not texts or len(texts) != len(items) or texts[0] not in ("i", "o"):
            raise self._malformed(name)
        if not all(text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() for text in texts[1:]):
            raise self._malformed(name)
        return tuple(int(text) for text in texts[1:])

    def location(self) -> int | None:
        """Return the byte offset of the node's token in the analysed statement; None if it is not stored."""
        self._names_read.add("location")
        return self._position()

    def _position(self) -> int | None:
        return _position(self._node)

    def check_unread(self, *names: str) -> None:
        """Check unread fields first, where another value would change the meaning of the fields that are read."""
        for name in names:
            self._check_harmless(name, self.tree(name))

    def finish(self) -> None:
        """Check the fields that were not read."""
        for name, value in self._node.fields.items():
            if name not in self._names_read:
                self._check_harmless(name, value)

    def _check_harmless(self, name: str, value: Tree) -> None:
        rule = UNREAD_FIELDS[self._node.kind].get(name)
        if rule is None or not rule.covers(self._major):
            raise unknown(f"the field {name} of a {self._node.kind} node")
        if rule.values is None or value in rule.values:
            return
        if rule.construct:
            token = _first_position(self._node)
            raise Refused(Reason.CONSTRUCT, rule.construct, hint=rule.hint, token=token, full_in_postgres=rule.in_full)
        raise unknown(f"the value of {name} in a {self._node.kind} node")

    def _malformed(self, name: str) -> Refused:
        return unknown(f"the form of {name} in a {self._node.kind} node")


def _position(node: TextNode) -> int | None:
    value = node.fields.get("location")
    return int(value.text) if isinstance(value, Token) and value.text.isdigit() else None


def _first_position(node: TextNode) -> int | None:
    """Return the position of the node, or else the first known position of a node inside it."""
    own = _position(node)
    children = (value for value in node.fields.values() if isinstance(value, TextNode))
    return own if own is not None else next((at for at in map(_first_position, children) if at is not None), None)
