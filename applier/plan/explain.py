"""A plan as an indented text tree for people: what each node computes, its row key, how a change passes through it.

Columns are written as in the plan, c0.. from the left; the outermost names come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from applier.plan.expr import (
    AggregateCall,
    BoolOp,
    Call,
    Case,
    Coalesce,
    Col,
    Const,
    Expr,
    IsNull,
    Logic,
    Widen,
)
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
    inputs,
    row_key,
    scans,
    walk,
)
from applier.plan.recursion import is_delete_rederivable
from applier.plan.sort import SortKey
from applier.plan.window import Bound, Exclude, Frame, WindowCall

_INDENT = "  "


def explain(plan: StreamPlan) -> str:
    """The tree, parents above their inputs, one blank-free text that ends with a newline."""
    columns = zip(plan.names, fields(plan.root), strict=True)
    head = ", ".join(f"{name} {field.type.pg.display}" for name, field in columns)
    return "\n".join([f"StreamTable ({head})", *_lines(plan.root, 1)]) + "\n"


def summary(plan: StreamPlan, kept: Sequence[Node]) -> str:
    """What following it takes, in a few lines: what is read, what is kept, and what is computed anew in full."""
    key = row_key(plan.root)
    named = "none: equal rows are counted" if key is None else ", ".join(plan.names[i] for i in key) or "one row"
    read: dict[str, dict[str, None]] = {}
    for scan in scans(plan.root):
        read.setdefault(str(scan.table), {}).update(dict.fromkeys(scan.columns))
    lines = ["", f"row key: {named}"]
    lines += [f"reads: {table} ({', '.join(columns) or 'only how many rows'})" for table, columns in read.items()]
    lines.append("state: the traces of what is read, shared with every other stream table")
    lines += [f"keeps of its own: {describe(node)}" for node in kept]
    in_full = [(node, reason) for node in walk(plan.root) if (reason := computed_in_full(node, kept)) is not None]
    lines += [f"in full: {describe(node)}: {reason}" for node, reason in in_full]
    if not in_full:
        lines.append("in full: nothing; every node follows the changes")
    return "\n".join(lines) + "\n"


def computed_in_full(node: Node, kept: Sequence[Node]) -> str | None:
    """Why a change makes the node look at its whole input, with a code; None where it does not."""
    if node in kept:
        return None
    match node:
        case Recursion():
            return "a step is more than a join [recursion_recomputed]; every change derives all rows again"
        case TopK(keys=()):
            return (
                "which rows are first shows only among all of them [whole_input]; what is above follows the difference"
            )
        case Window(keys=()):
            return "a window without PARTITION BY is all rows [whole_input]; PARTITION BY bounds it"
        case Aggregate(keys=()):
            return "one group is all rows [whole_input]; GROUP BY bounds it"
        case Join(equi=()) | OuterJoin(equi=()) | SemiJoin(equi=()):
            return "no equality connects the sides [no_equality]; every change meets the whole other side"
        case _:
            return None


def _lines(node: Node, depth: int) -> Iterator[str]:
    yield f"{_INDENT * depth}{describe(node)}"
    notes = f"key {_key(node)}; delta {delta_strategy(node)}; carries {_physical_types(node)}"
    yield f"{_INDENT * (depth + 2)}{notes}"
    for child in inputs(node):
        yield from _lines(child, depth + 1)


def describe(node: Node) -> str:
    """The node itself in one line."""
    match node:
        case Scan():
            return f"Scan {node.table} reads {', '.join(node.columns) or 'no column'}"
        case WorkTable():
            return f"Working rows of recursion {node.number}"
        case Recursion():
            return f"Recursion {node.number} {'of distinct rows' if node.distinct else 'of all rows'}"
        case Values():
            return f"Values {', '.join('(' + ', '.join(render(e) for e in row) + ')' for row in node.rows)}"
        case Unnest():
            kind = "UnfoldOuter" if node.outer else "Unfold"
            number = " with its number" if node.ordinality else ""
            made = (f"{s.function.value}({', '.join(render(arg) for arg in s.args)})" for s in node.sets)
            return f"{kind} {' beside '.join(made)}{number}"
        case Filter():
            return f"Filter {render(node.predicate)}"
        case Project():
            return f"Project {', '.join(render(e) for e in node.exprs)}"
        case Join():
            return f"Join{_condition(node)}" if node.equi else f"CrossJoin{_condition(node)}"
        case OuterJoin():
            return f"{'FullJoin' if node.full else 'LeftJoin'}{_condition(node)}"
        case SemiJoin():
            return f"{'AntiJoin' if node.anti else 'SemiJoin'}{_condition(node)}"
        case Aggregate():
            keys = f" by {', '.join(render(k) for k in node.keys)}" if node.keys else ""
            calls = f" of {', '.join(render_call(c) for c in node.calls)}" if node.calls else ""
            return f"Aggregate{keys}{calls}"
        case UnionAll():
            return "UnionAll"
        case Repeat():
            return f"Repeat {render(node.times)} times"
        case TopK():
            return f"TopK {_places(node)}{_partition(node.keys)}{_order(node.order)}"
        case Window():
            calls = ", ".join(render_window(call) for call in node.calls)
            return f"Window of {calls}"
        case _:
            assert_never(node)


def _places(node: TopK) -> str:
    count = "all" if node.limit is None else f"first {node.limit}"
    return count + (f" after {node.offset}" if node.offset else "") + (" with ties" if node.ties else "")


def _partition(keys: tuple[Expr, ...]) -> str:
    return f" for each {', '.join(render(key) for key in keys)}" if keys else ""


def _order(order: tuple[SortKey, ...]) -> str:
    return f" by {', '.join(_sort_key(key) for key in order)}" if order else ""


def _sort_key(key: SortKey) -> str:
    direction = " DESC" if key.descending else ""
    nulls = "" if key.nulls_first == key.descending else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
    return f"{render(key.expr)}{direction}{nulls}"


def _condition(node: Join | OuterJoin | SemiJoin) -> str:
    pairs = ", ".join(f"left {render(left)} = right {render(right)}" for left, right in node.equi)
    residual = "" if node.residual is None else f" where {render(node.residual)}"
    return (f" on {pairs}" if pairs else "") + residual


def delta_strategy(node: Node) -> str:
    """How a change of the inputs becomes a change of the output."""
    match node:
        case Scan():
            return "change rows"
        case Values():
            return "none, it never changes"
        case WorkTable():
            return "none, within its recursion"
        case Recursion() if not is_delete_rederivable(node):
            return "derived anew before and after [recursion_recomputed]"
        case Recursion():
            lost = "what lost a derivation leaves and is derived again; " if node.distinct else ""
            return f"{lost}rounds over what changes"
        case Unnest():
            return "linear"
        case Filter() | Project() | UnionAll() | Repeat():
            return "linear"
        case Join():
            return "bilinear"
        case OuterJoin():
            return "bilinear, and rows without a partner by touched keys"
        case SemiJoin():
            return "by touched keys"
        case Aggregate():
            return "touched groups"
        case TopK():
            scope = "of touched partitions" if node.keys else "of the first rows kept, or of the whole input"
            open_end = "" if node.decided else "; a tie across the border is an error [undecided_order]"
            return f"first rows {scope} before and after{open_end}"
        case Window():
            scope = f"partitions of {', '.join(map(render, node.keys))} touched" if node.keys else "the whole input"
            return f"{scope}, before and after"
        case _:
            assert_never(node)


def _key(node: Node) -> str:
    key = row_key(node)
    if key is None:
        return "none"
    return "(" + ", ".join(f"c{i}" for i in key) + ")"


def _physical_types(node: Node) -> str:
    found = [f"{f.type.spark}{'' if f.nullable else ' not null'}" for f in fields(node)]
    return "(" + ", ".join(found) + ")"


def render(expr: Expr) -> str:
    """An expression in the words of PostgreSQL's own functions."""
    match expr:
        case Col():
            return f"c{expr.ordinal}"
        case Const():
            return _constant(expr)
        case Call():
            return f"{expr.signature.partition('(')[0]}({', '.join(render(a) for a in expr.args)})"
        case BoolOp(logic=Logic.NOT):
            return f"NOT {render(expr.args[0])}"
        case BoolOp():
            return "(" + f" {expr.logic.name} ".join(render(a) for a in expr.args) + ")"
        case IsNull():
            return f"{render(expr.arg)} IS {'NOT ' if expr.negated else ''}NULL"
        case Coalesce():
            return f"coalesce({', '.join(render(a) for a in expr.args)})"
        case Widen():
            return f"{render(expr.arg)} as {expr.type.spark}"
        case Case():
            whens = "".join(f"WHEN {render(c)} THEN {render(r)} " for c, r in expr.branches)
            return f"CASE {whens}ELSE {render(expr.default)} END"
        case _:
            assert_never(expr)


def _constant(const: Const) -> str:
    match const.value:
        case None:
            return "NULL"
        case str() as text:
            return "'" + text.replace("'", "''") + "'"
        case value:
            return str(value)


def render_window(call: WindowCall) -> str:
    """One window function with its frame."""
    name = f"{call.name}({', '.join(render(arg) for arg in call.args)})"
    text = name if call.aggregate is None else render_call(call.aggregate)
    rows = "" if call.frame is None else f" over {_frame(call.frame)}"
    return f"{text}{rows}{_partition(call.partition)}{_order(call.order)}"


def _frame(frame: Frame) -> str:
    ends = (_bound(frame.start), _bound(frame.end))
    rest = f" except {frame.exclude.value}" if frame.exclude is not Exclude.NOTHING else ""
    return f"{frame.mode.value.lower()} {ends[0]} to {ends[1]}{rest}"


def _bound(bound: Bound) -> str:
    kind = bound.kind.value.lower()
    return kind if bound.offset is None else f"{_constant(bound.offset)} {kind}"


def render_call(call: AggregateCall) -> str:
    """One aggregate, in PostgreSQL's own form."""
    function = call.signature.partition("(")[0]
    order = f"ORDER BY {', '.join(_sort_key(key) for key in call.order)}" if call.order else ""
    args = ", ".join(render(arg) for arg in call.args) or "*"
    if call.direct or call.signature.startswith("mode("):
        text = f"{function}({', '.join(render(d) for d in call.direct)}) WITHIN GROUP ({order})"
    else:
        text = f"{function}({'DISTINCT ' if call.distinct else ''}{args}{f' {order}' if order else ''})"
    return text if call.filter is None else f"{text} FILTER (WHERE {render(call.filter)})"
