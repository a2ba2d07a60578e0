"""Turns PostgreSQL's advanced regular expressions into Java's, for the part that means the same in both. Pure.

Accepted: characters, `.`, `^` and `$` at the ends of a branch, brackets, groups, `|`, quantifiers, `\\d` and escaped
punctuation; under the C collation also `\\w`, `\\s`, `\\m`, `\\M`, `\\y` and named classes. Anything else raises
UnsuitableArguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from applier.functions.entry import UnsuitableArguments

_HINT = "use LIKE, or a simpler pattern: characters, ., brackets, groups, |, * + ? {m,n}, ^ and $ at the ends"
_SPECIAL = frozenset("\\^$.[]|()?*+{}")
_WORD = "[A-Za-z0-9_]"
_CLASSES = {"d": "[0-9]", "D": "[^0-9]"}
_C_CLASSES = {
    "w": _WORD,
    "W": "[^A-Za-z0-9_]",
    "s": "[ \\t\\n\\u000b\\f\\r]",
    "S": "[^ \\t\\n\\u000b\\f\\r]",
    "m": f"(?<!{_WORD})(?={_WORD})",
    "M": f"(?<={_WORD})(?!{_WORD})",
    "y": f"(?:(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD}))",
}
_NAMED = {
    "digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z",
    "space": " \\t\\n\\u000b\\f\\r", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_MAX_REPEAT = 255


@dataclass(frozen=True, slots=True)
class Regex:
    """The pattern in Java's dialect; `plain`: groups and extents are certain, not only whether it matches."""

    java: str
    groups: int
    plain: bool


def translate(pattern: str, *, c_collation: bool, ignore_case: bool = False, newline_apart: bool = False) -> Regex:
    """Return the same pattern for java.util.regex with DOTALL.

    `newline_apart`: only a literal newline matches a newline.
    """
    reader = _Reader(pattern, c_collation, newline_apart)
    java = reader.alternatives()
    if reader.at < len(pattern):
        raise UnsuitableArguments("this regular expression", hint=_HINT)
    if ignore_case and not pattern.isascii():
        raise UnsuitableArguments(
            "a pattern with letters beyond ASCII that ignores case", hint="use ~ with both cases in brackets"
        )
    return Regex(f"(?i){java}" if ignore_case else java, reader.groups, reader.plain)


class _Reader:
    def __init__(self, pattern: str, c_collation: bool, newline_apart: bool) -> None:
        self.pattern = pattern
        self.newline_apart = newline_apart
        self.c_collation = c_collation
        self.at = 0
        self.groups = 0
        self.plain = True
        if pattern.startswith("***") or (pattern.startswith("(?") and not pattern.startswith("(?:")):
            raise self._unsuitable()

    def _unsuitable(self) -> UnsuitableArguments:
        return UnsuitableArguments(f"the regular expression {self.pattern!r}", hint=_HINT)

    def _next(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def _take(self) -> str:
        current = self._next()
        self.at += 1
        return current

    def alternatives(self) -> str:
        branches = [self._branch()]
        while self._next() == "|":
            self.at += 1
            branches.append(self._branch())
            if self.groups:
                self.plain = False
        if len(branches) > 1 and "" in branches:
            raise self._unsuitable()
        return "|".join(branches)

    def _branch(self) -> str:
        out = ""
        if self._next() == "^":
            self.at += 1
            out = "\\A"
        while self._next() not in ("", "|", ")"):
            if self._next() == "$" and self.pattern[self.at + 1 : self.at + 2] in ("", "|", ")"):
                self.at += 1
                out += "\\z"
                continue
            out += self._piece()
        return out

    def _piece(self) -> str:
        groups = self.groups
        atom = self._atom()
        quantifier = self._quantifier()
        if quantifier and self.groups > groups:
            # The engines differ in which repetition a group captures.
            self.plain = False
        return atom + quantifier

    def _atom(self) -> str:
        character = self._take()
        match character:
            case ".":
                return "[^\\n]" if self.newline_apart else "."
            case "(":
                return self._group()
            case "[":
                return self._bracket()
            case "\\":
                return self._escape()
            case "^" | "$" | "*" | "+" | "?" | "{" | "}" | "]" | ")":
                raise self._unsuitable()
            case _:
                return _escape_character(character)

    def _group(self) -> str:
        if self.pattern.startswith("?:", self.at):
            self.at += 2
            opening = "(?:"
        elif self._next() == "?":
            raise self._unsuitable()
        else:
            self.groups += 1
            opening = "("
        inner = self.alternatives()
        if "|" in inner and opening == "(":
            self.plain = False
        if self._take() != ")" or not inner:
            raise self._unsuitable()
        return f"{opening}{inner})"

    def _escape(self) -> str:
        character = self._take()
        if self.newline_apart and character in "DWS":
            raise self._unsuitable()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _C_CLASSES and self.c_collation:
            return _C_CLASSES[character]
        simple = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}.get(character)
        if simple:
            return _escape_character(simple)
        if not character or character.isalnum() or not character.isascii():
            raise self._unsuitable()
        return _escape_character(character)

    def _bracket(self) -> str:
        out = "["
        if self._next() == "^":
            self.at += 1
            out += "^\\n" if self.newline_apart else "^"
        first = True
        while first or self._next() != "]":
            first = False
            if self.pattern.startswith("[:", self.at):
                out += self._named_class()
                continue
            low = self._member()
            if low.startswith("\\d"):
                out += "0-9"
                continue
            if self._next() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low > high or not (low + high).isascii():
                    raise self._unsuitable()
                out += f"{_escape_character(low)}-{_escape_character(high)}"
            else:
                out += _escape_character(low)
        self.at += 1
        return out + "]"

    def _member(self) -> str:
        character = self._take()
        if character == "" or (character == "[" and self._next() in ("=", ".", ":")):
            raise self._unsuitable()
        if character != "\\":
            return character
        escaped = self._take()
        if escaped == "d":
            return "\\d"
        simple = {"n": "\n", "t": "\t", "r": "\r"}.get(escaped)
        if simple:
            return simple
        if not escaped or escaped.isalnum():
            raise self._unsuitable()
        return escaped

    def _named_class(self) -> str:
        end = self.pattern.find(":]", self.at)
        name = self.pattern[self.at + 2 : end] if end > 0 else ""
        if name not in _NAMED or not (self.c_collation or name == "digit"):
            raise self._unsuitable()
        self.at = end + 2
        return _NAMED[name]

    def _quantifier(self) -> str:
        sign = self._next()
        if sign not in ("*", "+", "?", "{") or not sign:
            return ""
        if sign == "{":
            end = self.pattern.find("}", self.at)
            inner = self.pattern[self.at + 1 : end] if end > 0 else ""
            numbers = inner.split(",")
            if len(numbers) > 2 or not numbers[0].isdigit() or not all(n.isdigit() or not n for n in numbers[1:]):
                raise self._unsuitable()
            bounds = [int(n) for n in numbers if n]
            if max(bounds) > _MAX_REPEAT or sorted(bounds) != bounds:
                raise self._unsuitable()
            self.at = end + 1
            sign = f"{{{inner}}}"
        else:
            self.at += 1
        if self._next() == "?":
            # A non-greedy quantifier does not change whether there is a match, but its extent follows other rules.
            self.plain = False
            self.at += 1
        if self._next() in ("*", "+", "?", "{") and self._next():
            raise self._unsuitable()
        return sign


def _escape_character(character: str) -> str:
    if character.isalnum() and character.isascii():
        return character
    return f"\\x{{{ord(character):x}}}"


def from_similar(pattern: str, escape: str = "\\") -> str:
    """Turn a SIMILAR TO pattern without brackets and without quantifiers in braces into a regular expression."""
    out = "^(?:"
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped == '"':
                raise UnsuitableArguments(f"the pattern {pattern!r}", hint=_HINT)
            out += f"\\{escaped}" if not escaped.isalnum() else escaped
        elif character == "%":
            out += ".*"
        elif character == "_":
            out += "."
        elif character in "|*+?()":
            out += "(?:" if character == "(" else character
        elif character in _SPECIAL:
            if character in "[]{}":
                raise UnsuitableArguments(f"the pattern {pattern!r}", hint=_HINT)
            out += f"\\{character}"
        else:
            out += character
    return out + ")$"
