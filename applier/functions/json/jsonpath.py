"""Entries for functions of jsonb and a literal jsonpath; the plan holds the path in JSON form (see PathItem.java)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments, literal_text
from applier.plan.expr import Call, Const, Expr

_PATHS = (
    "$", "$.a", "strict $.a", "$.*", "$.a.b", "$[*]", "strict $[*]", "$[0]", "$[last]", "strict $[0]",
    "$[0 to 1, last]", "$.**", "$.**{1}", "strict $.**{2 to last}.a", "$.**{last}", "$.b ? (@ > 1)",
    "$[*] ? (@ == 1 || @ == null)",
    "strict $[*] ? (@.a == 1)", '$ ? (@.a.type() == "number" && @.b != 2)', "$.size()", "strict $.size()", "$.a.abs()",
    "-$.a", "+$[*]", "$.a + 1", "$.a / $.b", "$[*] % 2", "$.a * 1.50 - 2", "$.a.floor()", "$[*].ceiling()",
    '$ ? (@.a starts with "x")', '$[*] ? (@ like_regex "^a")', '$.* ? (@ like_regex "a.b" flag "s")',
    "$ ? (exists(@.a))", "strict $ ? (exists(@.a))", "$.a ? (@ <> null).type()", "($.a == 1).type()", "$[$.a]",
    "$.a[*].b ? (@ >= 1.0)", '"x"', "null",
)  # fmt: skip
_PREDICATES = (
    "$.a == 1", "$.a < $.b", "$ > 0", '$[*] <= "b"', "strict $.a == 1", "exists($.a)", "!exists($[*] ? (@ > 0))",
    "!($.a == 1)", "($.a == 1) is unknown", "$[*] == null && $[0] <> 2", "$.a == 1 || $.b == true", "1", "$.a",
)  # fmt: skip
_WITH_VARIABLES = ("$[$x]", "$ ? (@.a == $x)", "$y[*]", "$.* ? (@ == $y)")
"""The paths of the fuzz tests."""

_VARIABLE_ITEM = '"kind": "variable"'
_FAILING = frozenset({"+", "-", "*", "/", "%", "plus", "minus", "abs", "floor", "ceiling", "variable"})
_SUPPRESSING = frozenset({"filter", "exists", "==", "<>", "<", ">", "<=", ">=", "starts_with", "like_regex"})
SET_OF_ITEMS = "jsonb_path_query(jsonb,jsonpath,jsonb,bool)"
ARRAY_OF_ITEMS = "jsonb_path_query_array(jsonb,jsonpath,jsonb,bool)"


def takes_path(signature: str) -> bool:
    """Return whether the second argument is a jsonpath."""
    return "(jsonb,jsonpath" in signature


def may_fail(path: Const) -> bool:
    """Return whether a path may fail: it is strict, computes, or has a subscript that is not a number."""
    found = json.loads(literal_text(path))
    return not found["lax"] or _may_fail(found["path"])


def _may_fail(item: dict[str, Any], *, suppressed: bool = False) -> bool:
    places = item.get("places", [])
    computed = any(
        place is not None and (place["kind"] not in ("value", "last") or "next" in place) for place in places
    )
    own = item["kind"] in _FAILING or computed
    inner = suppressed or item["kind"] in _SUPPRESSING
    parts = [item[name] for name in ("left", "right") if name in item]
    return (
        (own and not suppressed)
        or any(_may_fail(part, suppressed=inner) for part in parts)
        or ("next" in item and _may_fail(item["next"], suppressed=suppressed))
    )


def _physical_type(result: str, raises: bool, args: tuple[Expr, ...]) -> str:
    if len(args) == 4 and not (isinstance(args[3], Const) and isinstance(args[3].value, bool)):
        raise UnsuitableArguments("an argument silent that is no literal", hint="write true or false")
    # Quotes inside the texts of a path are escaped, so this finds only real variables.
    if len(args) == 2 and not raises and _VARIABLE_ITEM in literal_text(args[1]):
        raise UnsuitableArguments("a path of which the variables are not given", hint="use the function with variables")
    return result


def _write_call(function: str, silent: str, _: Call, args: Sequence[str]) -> str:
    document, path, variables, quiet = [*args, *("'{}'", silent)[len(args) - 2 :]]
    return f"pg_jsonpath_{function}({document}, {path}, {variables}, {quiet})"


def _fuzz_calls(paths: Sequence[str], *more: str) -> tuple[tuple[FuzzArg, ...], ...]:
    return tuple(("jsonb", Fixed(f"'{path}'::jsonpath"), *map(Fixed, more)) for path in paths)


def _entry(signature: str, function: str, fuzz: tuple[tuple[FuzzArg, ...], ...], *, silent: str) -> Entry:
    raises = silent == "false"
    physical_type = partial(_physical_type, "string" if function.startswith("query") else "boolean", raises)
    write: Callable[[Call, Sequence[str]], str] = partial(_write_call, function, silent)
    return Entry(signature, physical_type, write, fuzz, raises=raises)


def _functions() -> Iterator[Entry]:
    variables = """'{"x": 1, "y": [1, "a"]}'"""
    fuzz_by_function = {
        "exists": _fuzz_calls(_PATHS[1:12:2], "'{}'", "false") + _fuzz_calls(_WITH_VARIABLES, variables, "true"),
        "match": _fuzz_calls(_PREDICATES, "'{}'", "false"),
        "query_array": _fuzz_calls(_PATHS, "'{}'", "false") + _fuzz_calls(_WITH_VARIABLES, variables, "false"),
        "query_first": _fuzz_calls(_PATHS[20:30], "'{}'", "true") + _fuzz_calls(_PATHS[:3], "'{}'", "false"),
    }
    for function, calls in fuzz_by_function.items():
        yield _entry(f"jsonb_path_{function}(jsonb,jsonpath,jsonb,bool)", function, calls, silent="false")
    yield _entry("jsonb_path_exists_opr(jsonb,jsonpath)", "exists", _fuzz_calls(_PATHS[::2]), silent="true")
    yield _entry("jsonb_path_match_opr(jsonb,jsonpath)", "match", _fuzz_calls(_PREDICATES), silent="true")


ENTRIES: tuple[Entry, ...] = tuple(_functions())
