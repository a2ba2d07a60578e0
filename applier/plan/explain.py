"""Writes a plan as an indented text tree: what each node computes, its row key, and how a change passes through it.

Columns have the names of the query (see naming.py). Expressions are written in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from applier.plan.expr import BOOL, BoolOp, Call, Coalesce, Const, Expr, IsNull, Logic, shift
from applier.plan.expression_text import Named, ShownValue, Writer, quote_name
from applier.plan.keys import is_order_decided, row_key
from applier.plan.naming import NamedNode, name_columns
from applier.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    StreamPlan,
    TopK,
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    fields,
    scans,
)
from applier.plan.recursion import is_delete_rederivable

_INDENT = "  "


def explain(plan: StreamPlan, stateful: Sequence[Node]) -> str:
    """Return the tree, parents above their inputs, as one text without blank lines that ends with a newline.

    `stateful` are the nodes that hold state in memory between refreshes.
    """
    columns = zip(plan.names, fields(plan.root), strict=True)
    head = ", ".join(f"{quote_name(name)} {field.type.pg.display}" for name, field in columns)
    return "\n".join([f"StreamTable ({head})", *_write_tree(name_columns(plan), stateful, 1)]) + "\n"


def summarize(plan: StreamPlan, stateful: Sequence[Node]) -> str:
    """Return the cost of maintaining the plan in a few lines: what is read, held in memory and recomputed in full."""
    shown = name_columns(plan)
    key = row_key(plan.root)
    named = "none: equal rows are counted" if key is None else ", ".join(plan.names[i] for i in key) or "one row"
    read: dict[str, dict[str, None]] = {}
    for scan in scans(plan.root):
        read.setdefault(str(scan.table), {}).update(dict.fromkeys(scan.columns))
    lines = ["", f"row key: {named}"]
    lines += [f"reads: {table} ({', '.join(columns) or 'only how many rows'})" for table, columns in read.items()]
    lines.append("in memory, shared by all stream tables: the rows of the tables it reads")
    lines += [f"in memory, its own: {describe_memory(found)}" for found in named_nodes_of(shown, stateful)]
    in_full = [
        (found, reason) for found in shown.walk() if (reason := full_recompute_reason(found.node, stateful)) is not None
    ]
    lines += [f"recomputed in full: {describe(found)}: {reason}" for found, reason in in_full]
    if not in_full:
        lines.append("recomputed in full: nothing; every node is maintained incrementally")
    return "\n".join(lines) + "\n"


def named_nodes_of(shown: NamedNode, nodes: Sequence[Node]) -> list[NamedNode]:
    """Return the first occurrence of each of these nodes in the named tree."""
    return [next(found for found in shown.walk() if found.node == node) for node in nodes]


def describe_memory(shown: NamedNode) -> str:
    """Describe what a node holds in memory between refreshes."""
    match shown.node:
        case Aggregate(keys=()):
            return f"the accumulators of {describe(shown)}"
        case Aggregate():
            return f"the accumulators of each group of {describe(shown)}"
        case TopK():
            return f"the first rows and some spare ones of {describe(shown)}"
        case _:
            return f"all rows of {describe(shown)}"


def full_recompute_reason(node: Node, stateful: Sequence[Node]) -> str | None:
    """Return why a change makes the node read its whole input, with a code; None if it does not."""
    if node in stateful:
        return None
    match node:
        case Recursion():
            return "a step is more than a join [recursion_recomputed]; every change derives all rows again"
        case TopK(keys=()):
            return "which rows are first shows only among all of them [whole_input]; what is above gets the difference"
        case Window(keys=()):
            return "a window without PARTITION BY is all rows [whole_input]; PARTITION BY bounds it"
        case Aggregate(keys=()):
            return "one group is all rows [whole_input]; GROUP BY bounds it"
        case Join(equi=()) | OuterJoin(equi=()) | SemiJoin(equi=()):
            return "no equality connects the sides [no_equality]; every change row meets the whole other side"
        case _:
            return None


def _write_tree(shown: NamedNode, stateful: Sequence[Node], depth: int) -> Iterator[str]:
    yield f"{_INDENT * depth}{describe(shown)}"
    facts = f"{_write_row_key(shown)} · {delta_strategy(shown, stateful)} · physical types {_write_types(shown.node)}"
    yield f"{_INDENT * (depth + 2)}{facts}"
    for below in shown.inputs:
        yield from _write_tree(below, stateful, depth + 1)


def describe(shown: NamedNode) -> str:
    """Describe the node itself in one line."""
    says_alias = not shown.alias or isinstance(shown.node, Scan | Values | UnionAll | Recursion | WorkTable)
    return _describe_node(shown) + ("" if says_alias else f" (as {quote_name(shown.alias)})")


def _describe_node(shown: NamedNode) -> str:
    node = shown.node
    write = shown.input_writer(qualified=isinstance(node, Join | OuterJoin | SemiJoin))
    match node:
        case Scan():
            alias = "" if shown.alias in ("", node.table.name) else f" {quote_name(shown.alias)}"
            read = [
                f"{quote_name(column)}{_write_alias(shown, i, quote_name(column))}"
                for i, column in enumerate(node.columns)
            ]
            return f"Scan {node.table}{alias} reads {', '.join(read) or 'no column'}"
        case WorkTable():
            return f"Work table of recursion {node.number}{_write_column_list(shown)}"
        case Recursion():
            return (
                f"Recursion {node.number} of {'distinct' if node.distinct else 'all'} rows{_write_column_list(shown)}"
            )
        case Values():
            return f"Values {', '.join(f'({write.all(row)})' for row in node.rows)}{_write_column_list(shown)}"
        case Unnest():
            first = len(fields(node.input))
            made = [_write_column(shown, first + i, made, write) for i, made in enumerate(node.sets)]
            number = (
                f" with ordinality{_write_alias(shown, len(shown.columns) - 1, 'ordinality')}"
                if node.ordinality
                else ""
            )
            return f"{'UnnestOuter' if node.outer else 'Unnest'} {', '.join(made)}{number}"
        case Filter():
            return f"Filter {write(node.predicate)}"
        case Project():
            shows = [_write_column(shown, i, expr, write) for i, expr in enumerate(node.exprs)]
            return f"Project {', '.join(shows) or 'no column'}"
        case Join():
            return f"{'Join' if node.equi else 'CrossJoin'}{_write_condition(node, write)}"
        case OuterJoin():
            return f"{'FullJoin' if node.full else 'LeftJoin'}{_write_condition(node, write)}"
        case SemiJoin():
            return f"{'AntiJoin' if node.anti else 'SemiJoin'}{_write_condition(node, write)}"
        case Aggregate():
            keys = [_write_column(shown, i, key, write) for i, key in enumerate(node.keys)]
            calls = [_write_column(shown, len(keys) + i, call, write) for i, call in enumerate(node.calls)]
            by = f" by {', '.join(keys)}" if keys else ""
            return f"Aggregate{by}{':' if keys and calls else ''}{' ' if calls else ''}{', '.join(calls)}"
        case UnionAll():
            return f"UnionAll{_write_column_list(shown)}"
        case Repeat():
            return f"Repeat every row {write(node.times)} times"
        case TopK():
            each = f" for each {write.all(node.keys)}" if node.keys else ""
            return f"TopK {_write_limit(node)}{each}{f' ORDER BY {write.order(node.order)}' if node.order else ''}"
        case Window():
            first = len(fields(node.input))
            return (
                f"Window {', '.join(_write_column(shown, first + i, call, write) for i, call in enumerate(node.calls))}"
            )
        case _:
            assert_never(node)


def _write_column(shown: NamedNode, place: int, value: ShownValue, write: Writer) -> str:
    """Write what a node computes and the name of the resulting column."""
    text = write(value)
    plain = text.rpartition(".")[2]
    return f"{text}{_write_alias(shown, place, plain)}"


def _write_alias(shown: NamedNode, place: int, text: str) -> str:
    column = shown.columns[place]
    if shown.aliases:
        name = quote_name(shown.aliases[place] or "")
    elif isinstance(column, Named):
        name = quote_name(column.name) if column.member else shown.output_writer().column(place)
    else:
        return ""
    return "" if name == text else f" AS {name}"


def _write_column_list(shown: NamedNode) -> str:
    show, alias = shown.output_writer(), f"{quote_name(shown.alias)} " if shown.alias else ""
    names = ", ".join(show.column(i) for i in range(len(shown.columns)))
    return f" AS {alias}({names})" if names else ""


def _write_limit(node: TopK) -> str:
    count = "all" if node.limit is None else f"first {node.limit}"
    return count + (f" after {node.offset}" if node.offset else "") + (" with ties" if node.ties else "")


def _write_condition(node: Join | OuterJoin | SemiJoin, write: Writer) -> str:
    width = len(fields(node.left))
    pairs = _join_conditions([(ours, shift(theirs, width)) for ours, theirs in node.equi])
    residual = "" if node.residual is None else f" where {write(node.residual)}"
    return (f" on {' AND '.join(map(write, pairs))}" if pairs else "") + residual


def _join_conditions(pairs: Sequence[tuple[Expr, Expr]]) -> list[Expr]:
    """Return the equalities of a join.

    Two that compare a value, and whether it is NULL, become one IS NOT DISTINCT FROM.
    """
    tested = {(a.arg, b.arg) for a, b in pairs if isinstance(a, IsNull) and isinstance(b, IsNull)}
    safe = {pair for pair in map(_unwrap_coalesce, pairs) if pair in tested}
    found: list[Expr] = []
    for ours, theirs in pairs:
        filled = _unwrap_coalesce((ours, theirs))
        if filled is not None and filled in safe:
            found.append(BoolOp(Logic.NOT, (_make_is_distinct(*filled),), BOOL))
        elif not (isinstance(ours, IsNull) and isinstance(theirs, IsNull) and (ours.arg, theirs.arg) in safe):
            found.append(_make_equality(ours, theirs))
    return found


def _unwrap_coalesce(pair: tuple[Expr, Expr]) -> tuple[Expr, Expr] | None:
    """Return the two sides without their COALESCE, if both replace NULL by the same constant."""
    match pair:
        case Coalesce(args=(mine, Const() as filler)), Coalesce(args=(other, Const() as same)) if filler == same:
            return mine, other
        case _:
            return None


def _make_equality(ours: Expr, theirs: Expr) -> Call:
    return Call("int4eq(int4,int4)", (ours, theirs), BOOL)


def _make_is_distinct(ours: Expr, theirs: Expr) -> Expr:
    both = BoolOp(Logic.AND, (IsNull(ours, False, BOOL), IsNull(theirs, False, BOOL)), BOOL)
    return BoolOp(Logic.NOT, (Coalesce((_make_equality(ours, theirs), both), BOOL),), BOOL)


def delta_strategy(shown: NamedNode, stateful: Sequence[Node]) -> str:
    """Describe how a change of the inputs becomes a change of the output, and what is read for it."""
    node = shown.node
    match node:
        case Scan():
            return "reads the change rows"
        case Values():
            return "never changes"
        case WorkTable():
            return "the rows of the previous round"
        case Recursion() if not is_delete_rederivable(node):
            return "derives all rows again [recursion_recomputed]"
        case Recursion():
            lost = "rows that lost a derivation are deleted and derived again, then " if node.distinct else ""
            return f"{lost}rounds over the change rows"
        case Unnest() | Filter() | Project() | UnionAll() | Repeat():
            return "change rows only"
        case Join(equi=()):
            return "change rows meet all rows of the other side"
        case Join():
            return "change rows look up their matches on the other side by join key"
        case OuterJoin(equi=()):
            return "change rows meet all rows of the other side, rows without a match are re-evaluated"
        case OuterJoin():
            return (
                "change rows look up their matches by join key, rows without a match are re-evaluated by affected key"
            )
        case SemiJoin(equi=()):
            return "change rows meet all rows of the other side"
        case SemiJoin():
            return "re-evaluates the rows of the affected join keys"
        case Aggregate():
            scope = "affected groups" if node.keys else "one group"
            return f"updates the accumulators of the {scope}" if node in stateful else f"re-reads the {scope}"
        case TopK():
            return _top_k_strategy(node, stateful)
        case Window():
            by = shown.input_writer().all(node.keys)
            return f"re-evaluates the affected partitions of {by}" if node.keys else "re-evaluates all rows"
        case _:
            assert_never(node)


def _top_k_strategy(node: TopK, stateful: Sequence[Node]) -> str:
    open_end = "" if is_order_decided(node) else "; a tie across the border is an error [undecided_order]"
    if node in stateful:
        return f"keeps the first rows and some spare ones; re-reads all rows when too many of them leave{open_end}"
    return f"re-evaluates {'the affected partitions' if node.keys else 'all rows'}{open_end}"


def _write_row_key(shown: NamedNode) -> str:
    key = row_key(shown.node)
    if key is None:
        return "no row key"
    show = shown.output_writer()
    return f"row key {', '.join(show.column(i) for i in key)}" if key else "at most one row"


def _write_types(node: Node) -> str:
    found = [f"{f.type.spark}{'' if f.nullable else ' not null'}" for f in fields(node)]
    return "(" + ", ".join(found) + ")"
