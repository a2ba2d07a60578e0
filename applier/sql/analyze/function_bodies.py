"""A user's SQL function -> the expression of its body. Does IO, inside the analysis transaction.

PostgreSQL inlines the body of a simple function at its call; so do we. The server itself analyses the body, as the
body of a temporary function, with only pg_catalog on its search path: every function that it calls must be built in.
A digest identifies a body; a stream table stores the digests that it was created with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from applier.catalog.sources import DIGEST
from applier.sql.analyze.lexical import has_special_time_words
from applier.sql.pg_tree import tree
from applier.sql.pg_tree.node_text import TextNode, Token, parse_node_text
from applier.sql.pg_tree.read_expr import read_expression

_FIND: LiteralString = (
    "SELECT l.lanname = 'sql' AND p.prokind = 'f' AND NOT p.prosecdef AND NOT p.proretset AND p.proconfig IS NULL "
    "AND p.provolatile = 'i' AND p.provariadic = 0, p.proisstrict, p.prorettype::int8, p.prosrc, p.prosqlbody::text, "
    "pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), "
    + DIGEST
    + " FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid = %s::int8::oid"
)
_ANALYZED_BODY: LiteralString = (
    "SELECT prosqlbody::text FROM pg_proc WHERE pronamespace = pg_my_temp_schema() AND proname = 'pgtrickle_body'"
)
_DECLARED = re.compile(r"\s*/\* functions: ([0-9a-f= ]+) \*/")
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


def declared_digests(query: str) -> dict[int, str] | None:
    """Return the digests that a stored query was created with, by function; None for a query without them."""
    found = _DECLARED.match(query)
    if found is None:
        return None
    return {int(oid): digest for oid, _, digest in (pair.partition("=") for pair in found[1].split())}


def read_body(connection: psycopg.Connection[Any], oid: int, major: int) -> FunctionBody | None:
    """Return the body of a simple immutable SQL function: one expression over its arguments. None for others."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(_FIND, [oid]).fetchone()
        if found is None or not found[0] or has_special_time_words(found[3]):
            return None
        _, strict, result, source, stored, arguments, returns, digest = found
        text = stored or _analyze_body(connection, source, arguments, returns)
    expression = None if text is None else _single_expression(text, major)
    return None if expression is None else FunctionBody(expression, result, strict, digest)


def _analyze_body(connection: psycopg.Connection[Any], source: str, arguments: str, returns: str) -> str | None:
    statement = (
        f"CREATE FUNCTION pg_temp.pgtrickle_body({arguments}) RETURNS {returns} LANGUAGE sql IMMUTABLE "
        f"BEGIN ATOMIC {source.strip().rstrip(';')}; END"
    )
    try:
        with connection.transaction(force_rollback=True), connection.cursor(binary=True) as cursor:
            cursor.execute("SELECT set_config('search_path', 'pg_catalog', true)")
            # The binary format makes psycopg use the extended protocol, which accepts exactly one statement.
            cursor.execute(statement.encode(connection.info.encoding), prepare=False)
            with connection.cursor(row_factory=tuple_row) as reading:
                found = reading.execute(_ANALYZED_BODY).fetchone()
                return None if found is None else str(found[0])
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        return None


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
