"""Nodes of aggregates and window functions -> typed expressions, strictly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from applier.sql.pg_tree import tree
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.node_text import TextNode

Read = Callable[[TextNode], tree.Expression]


def read_aggregate(fields: Fields, major: int, read: Read) -> tree.Aggref:
    """Read an aggregate; `read` reads the expressions inside it."""
    arguments = [_aggregate_argument(node, major, read) for node in fields.nodes("args")]
    by_reference = {reference: expression for expression, reference, _ in arguments if reference}
    args = tuple(expression for expression, _, hidden in arguments if not hidden)
    condition = fields.optional("aggfilter")
    if fields.flag("aggstar") != (not args and not fields.nodes("aggdirectargs")):
        raise unknown("an aggregate whose arguments do not match its star")
    distinct = [_sort_clause(node, major) for node in fields.nodes("aggdistinct")]
    order = [_sort_clause(node, major) for node in fields.nodes("aggorder")]
    if not {clause.reference for clause in (*distinct, *order)} <= by_reference.keys():
        raise unknown("an aggregate ordered by something that is not an argument")
    return tree.Aggref(
        function=fields.integer("aggfnoid"),
        type=fields.integer("aggtype"),
        collation=fields.integer("aggcollid"),
        input_collation=fields.integer("inputcollid"),
        args=args,
        direct=tuple(map(read, fields.nodes("aggdirectargs"))),
        order=tuple(
            tree.AggregateSort(by_reference[clause.reference], clause.operator, clause.nulls_first) for clause in order
        ),
        distinct=tuple(clause.equality for clause in distinct),
        filter=None if condition is None else read(condition),
        at=fields.location(),
    )


def read_window_function(fields: Fields, read: Read) -> tree.WindowFunc:
    """Read a window function, or an aggregate over a window."""
    condition = fields.optional("aggfilter")
    return tree.WindowFunc(
        function=fields.integer("winfnoid"),
        type=fields.integer("wintype"),
        collation=fields.integer("wincollid"),
        input_collation=fields.integer("inputcollid"),
        window=fields.integer("winref"),
        star=fields.flag("winstar"),
        args=tuple(map(read, fields.nodes("args"))),
        filter=None if condition is None else read(condition),
        at=fields.location(),
    )


@dataclass(frozen=True, slots=True)
class _SortClause:
    reference: int
    equality: int
    operator: int
    nulls_first: bool


def _sort_clause(node: TextNode, major: int) -> _SortClause:
    if node.kind != "SORTGROUPCLAUSE":
        raise unknown(f"a {node.kind} node in ORDER BY")
    fields = Fields(node, major)
    clause = _SortClause(
        fields.integer("tleSortGroupRef"),
        fields.integer("eqop"),
        fields.integer("sortop"),
        fields.flag("nulls_first"),
    )
    fields.finish()
    return clause


def _aggregate_argument(node: TextNode, major: int, read: Read) -> tuple[tree.Expression, int, bool]:
    """Return the argument, its reference for ORDER BY and DISTINCT, and whether it is only for those."""
    if node.kind != "TARGETENTRY":
        raise unknown(f"a {node.kind} node as an aggregate's argument")
    fields = Fields(node, major)
    for name in ("resno", "resname"):
        fields.tree(name)
    reference, hidden = fields.integer("ressortgroupref"), fields.flag("resjunk")
    argument = read(fields.node("expr"))
    fields.finish()
    return argument, reference, hidden
