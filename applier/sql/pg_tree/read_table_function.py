"""Nodes of set-returning functions -> their typed form, strictly: in FROM, and in the select list."""

from __future__ import annotations

from collections.abc import Callable

from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.node_text import TextNode

Read = Callable[[TextNode], tree.Expression]


def read_table_function(fields: Fields, major: int, read: Read) -> query_tree.FunctionEntry:
    """Read the range-table entry of functions in FROM."""
    ordinality = fields.flag("funcordinality")
    calls, widths, records = [], [], []
    for node in fields.nodes("functions"):
        if node.kind != "RANGETBLFUNCTION":
            raise unknown(f"a {node.kind} node as a function in FROM")
        wrapper = Fields(node, major)
        calls.append(read(wrapper.node("funcexpr")))
        widths.append(wrapper.integer("funccolcount"))
        records.append(_columns(wrapper))
        wrapper.finish()
    return query_tree.FunctionEntry(tuple(calls), tuple(widths), ordinality, tuple(records))


def _columns(function: Fields) -> tuple[tuple[str, int, int], ...]:
    """Return the columns that the query lists after AS for a function of records."""
    names = function.texts("funccolnames")
    if not names:
        return ()
    types, modifiers = function.integers("funccoltypes"), function.integers("funccoltypmods")
    if not len(names) == len(types) == len(modifiers):
        raise unknown("the column list of a function")
    return tuple(zip(names, types, modifiers, strict=True))


def read_set_function(fields: Fields, major: int, read: Read) -> tree.SetReturningExpr:
    """Read a call of a set-returning function."""
    return tree.SetReturningExpr(
        function=fields.integer("funcid"),
        type=fields.integer("funcresulttype"),
        collation=fields.integer("funccollid"),
        input_collation=fields.integer("inputcollid"),
        args=tuple(e for n in fields.nodes("args") for e in _argument(n, major, read)),
        at=fields.location(),
    )


def _argument(node: TextNode, major: int, read: Read) -> tuple[tree.Expression, ...]:
    if node.kind != "ARRAYEXPR":
        return (read(node),)
    array = Fields(node, major)
    elements = tuple(map(read, array.nodes("elements")))
    array.finish()
    return elements
