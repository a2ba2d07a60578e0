"""The analysed text of a user's SQL function -> the expression of its body. Pure.

PostgreSQL inlines the body of a simple function at its call; so do we. Only pg_catalog was on the search path when the
server analysed it: every function that it calls must be built in.
"""

from __future__ import annotations

from dataclasses import dataclass

from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import tree
from applier.sql.pg_tree.node_text import TextNode, Token, parse_node_text
from applier.sql.pg_tree.read_expr import read_expression

_READ = frozenset({"targetList", "jointree"})
_ANY_VALUE = frozenset({"commandType", "querySource", "canSetTag", "isReturn", "stmt_location", "stmt_len"})
_NOTHING = (None, Token("false"), Token("0"), Token("-1"))


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """The expression of a function; its arguments are columns of entry -1. `strict`: NULL for a NULL argument."""

    expression: tree.Expression
    result: int
    strict: bool
    digest: str


def read_body(oid: int, catalog: CatalogSnapshot) -> FunctionBody | None:
    """Return the body of a simple immutable SQL function: one expression over its arguments. None for others."""
    found = catalog.function_texts.get(oid)
    expression = None if found is None else _single_expression(found.tree, catalog.major)
    if found is None or expression is None:
        return None
    return FunctionBody(expression, found.result, found.strict, found.digest)


def _single_expression(text: str, major: int) -> tree.Expression | None:
    """Return the one column of a SELECT without FROM; None where the query has anything else."""
    found = parse_node_text(text)
    while isinstance(found, tuple) and len(found) == 1:
        (found,) = found
    if not isinstance(found, TextNode) or found.kind != "QUERY" or found.fields.get("commandType") != Token("1"):
        return None
    for name, value in found.fields.items():
        if name not in _READ and name not in _ANY_VALUE and value not in _NOTHING:
            return None
    source, targets = found.fields.get("jointree"), found.fields.get("targetList")
    if not isinstance(source, TextNode) or any(source.fields.get(name) is not None for name in ("fromlist", "quals")):
        return None
    if not isinstance(targets, tuple) or len(targets) != 1 or not isinstance(targets[0], TextNode):
        return None
    expression = targets[0].fields.get("expr")
    return read_expression(expression, major) if isinstance(expression, TextNode) else None
