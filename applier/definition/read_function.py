"""A function in FROM -> its typed form, strictly."""

from __future__ import annotations

from applier.definition import query_tree, tree
from applier.definition.fields import Fields, unknown
from applier.definition.node_text import Node
from applier.definition.read_expr import read_expression
from applier.definition.refusal import Reason, Refused

_HINT = "store its rows in a table"


def read_table_function(fields: Fields, major: int) -> query_tree.FunctionEntry:
    """The range-table entry of a function, from its own fields."""
    ordinality = fields.flag("funcordinality")
    functions = fields.nodes("functions")
    if len(functions) != 1:
        raise Refused(Reason.CONSTRUCT, "ROWS FROM of several functions", hint="join them by their numbers")
    if functions[0].kind != "RANGETBLFUNCTION":
        raise unknown(f"a {functions[0].kind} node as a function in FROM")
    wrapper = Fields(functions[0], major)
    call = wrapper.node("funcexpr")
    if call.kind != "FUNCEXPR":
        raise Refused(Reason.CONSTRUCT, "an expression in FROM", hint="put it into the select list")
    own = Fields(call, major)
    if not own.flag("funcretset"):
        raise Refused(Reason.CONSTRUCT, "a function of one value in FROM", hint="put it into the select list")
    entry = query_tree.FunctionEntry(
        function=own.integer("funcid"),
        type=own.integer("funcresulttype"),
        args=tuple(e for n in own.nodes("args") for e in _argument(n, major)),
        ordinality=ordinality,
        at=own.location(),
    )
    for name in ("funccollid", "inputcollid"):
        own.integer(name)
    own.done()
    wrapper.done()
    return entry


def _argument(node: Node, major: int) -> tuple[tree.Expression, ...]:
    if node.kind != "ARRAYEXPR":
        return (read_expression(node, major),)
    array = Fields(node, major)
    elements = tuple(read_expression(n, major) for n in array.nodes("elements"))
    array.done()
    return elements
