"""Takes a plan and gives every column the name that people know it by. Pure; only `explain` uses it.

A column of a table has its name in the table, qualified by the table's alias in FROM. A computed column has the alias
of the select list that shows it. Without an alias it is shown as its expression, or under a generated name if that is
long. Two FROM items with the same alias are numbered as in PostgreSQL's EXPLAIN: o and o_1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import assert_never

from applier.plan.expr import AggregateCall, BoolOp, Call, Case, Coalesce, Col, Const, Expr, IsNull, Widen
from applier.plan.expression_text import Computed, Named, ShownColumn, ShownValue, Writer, leaves
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
    TableFunction,
    TopK,
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    fields,
    inputs,
)
from applier.plan.symbols import infix, prefix
from applier.plan.window import WindowCall

MAX_INLINE_LENGTH = 50
"""A computed column whose expression is longer than this gets a name instead."""

Aliases = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node, its inputs, and its named columns; `aliases` are the names in the select list."""

    node: Node
    inputs: tuple[NamedNode, ...]
    columns: tuple[ShownColumn, ...]
    aliases: Aliases = ()
    alias: str = ""
    """The alias of the whole node in FROM."""

    def walk(self) -> Iterator[NamedNode]:
        """Yield this node and everything below it, parents first."""
        yield self
        for below in self.inputs:
            yield from below.walk()

    def input_writer(self, *, qualified: bool = False) -> Writer:
        """Return a writer for expressions over the columns of the inputs."""
        return Writer((column for below in self.inputs for column in below.columns), qualified=qualified)

    def output_writer(self) -> Writer:
        """Return a writer for the node's own columns."""
        return Writer(self.columns)


def name_columns(plan: StreamPlan) -> NamedNode:
    """Return the plan with a name for every column."""
    return _Namer().root(plan)


class _Namer:
    def __init__(self) -> None:
        self._numbers = count()
        self._members: Counter[str] = Counter()
        self._generated: Counter[str] = Counter()
        self._ambiguous: set[str] = set()

    def root(self, plan: StreamPlan) -> NamedNode:
        shown = self._name_node(plan.root, plan.names)
        return NamedNode(shown.node, shown.inputs, shown.columns, plan.names, shown.alias)

    def _name_node(self, node: Node, outer_aliases: Aliases) -> NamedNode:
        labels = self._label_members(node)
        own_aliases = _resolve_aliases(node, outer_aliases)
        below = tuple(
            self._name_node(child, w)
            for child, w in zip(inputs(node), _push_aliases_down(node, own_aliases), strict=True)
        )
        made = self._derive_columns(node, below, labels, own_aliases)
        passed = {id(column) for shown in below for column in shown.columns}
        names = node.names or (None,) * len(made)
        columns = tuple(
            Named(labels.get(name.member, ""), name.column, next(self._numbers))
            if name is not None
            else self._name_column(column, alias, computed=id(column) not in passed, listed=isinstance(node, Project))
            for column, name, alias in zip(made, names, own_aliases, strict=True)
        )
        alias = "" if None in node.names or len(labels) != 1 else next(iter(labels.values()))
        return NamedNode(node, below, columns, alias=alias)

    def _label_members(self, node: Node) -> dict[str, str]:
        """Map each FROM item that the node's columns belong to, to a unique label."""
        members = dict.fromkeys(name.member for name in node.names if name is not None and name.member)
        if isinstance(node, Scan) and not members:
            members = {node.table.name: None}
        return {member: self._make_label(member) for member in members}

    def _make_label(self, member: str) -> str:
        seen = self._members[member]
        self._members[member] += 1
        return f"{member}_{seen}" if seen else member

    def _name_column(self, column: ShownColumn, alias: str | None, *, computed: bool, listed: bool) -> ShownColumn:
        """Name a column by its alias if it is computed or listed, else by its expression or by a generated name."""
        if isinstance(column, Named) or not computed:
            other = listed and not (isinstance(column, Named) and column.name == alias)
            return Named("", alias, next(self._numbers)) if other and alias is not None else column
        if alias is not None:
            return Named("", alias, next(self._numbers))
        text = Writer(column.over)(column.value)
        # Two expressions without columns that have the same text cannot be distinguished.
        is_unambiguous = isinstance(column.value, Const) or any(leaves(column)) or text not in self._ambiguous
        self._ambiguous.add(text)
        return (
            column
            if is_unambiguous and len(text) <= MAX_INLINE_LENGTH
            else self._generate_name(_generic_name(column.value))
        )

    def _generate_name(self, kind: str) -> Named:
        self._generated[kind] += 1
        return Named("", f"{kind}_{self._generated[kind]}", next(self._numbers))

    def _derive_columns(
        self, node: Node, below: tuple[NamedNode, ...], labels: dict[str, str], aliases: Aliases
    ) -> tuple[ShownColumn, ...]:
        """Return the columns of a node before the names of the query are applied."""
        read = tuple(column for shown in below for column in shown.columns)
        match node:
            case Scan():
                (label,) = labels.values() or ("",)
                return tuple(Named(label, column, next(self._numbers)) for column in node.columns)
            case WorkTable() | Values():
                return tuple(self._generate_name("column") for _ in fields(node))
            case Recursion() | UnionAll():
                return self._name_branch_columns(
                    "union" if isinstance(node, UnionAll) else "recursion", below[0].columns, aliases
                )
            case Unnest():
                number = (Named("", "ordinality", next(self._numbers)),) if node.ordinality else ()
                return (*read, *(Computed(made, read) for made in node.sets), *number)
            case Filter() | TopK() | Repeat() | Join() | OuterJoin():
                return read
            case SemiJoin():
                return below[0].columns
            case Project():
                return tuple(_make_column(expr, read) for expr in node.exprs)
            case Aggregate():
                keys = tuple(_make_column(key, read) for key in node.keys)
                return (*keys, *(Computed(call, read) for call in node.calls))
            case Window():
                return (*read, *(Computed(call, read) for call in node.calls))
            case _:
                assert_never(node)

    def _name_branch_columns(
        self, kind: str, first: tuple[ShownColumn, ...], aliases: Aliases
    ) -> tuple[ShownColumn, ...]:
        """Name the columns of a union or recursion; without an alias a column has its name in the first branch."""
        label, used, found = self._make_label(kind), Counter[str](), list[ShownColumn]()
        for column, alias in zip(first, aliases, strict=True):
            own = column.name if isinstance(column, Named) else _generic_name(column.value)
            seen = used[alias or own]
            used[alias or own] += 1
            name = f"{alias or own}_{seen}" if seen else alias or own
            found.append(Named(label, name, next(self._numbers)))
        return tuple(found)


def _make_column(expr: Expr, read: tuple[ShownColumn, ...]) -> ShownColumn:
    plain = _strip_widen(expr)
    return read[plain.ordinal] if isinstance(plain, Col) else Computed(plain, read)


def _strip_widen(expr: Expr) -> Expr:
    """Return the expression without conversions between physical types."""
    return _strip_widen(expr.arg) if isinstance(expr, Widen) else expr


def _resolve_aliases(node: Node, outer_aliases: Aliases) -> Aliases:
    """Return the names of the columns: those the query gives at this node, else those from further up."""
    names = node.names or (None,) * len(outer_aliases)
    return tuple(alias if name is None else name.column for name, alias in zip(names, outer_aliases, strict=True))


def _push_aliases_down(node: Node, outer_aliases: Aliases) -> list[Aliases]:
    """Map the aliases of a node's columns to the columns of each input."""
    match node:
        case Scan() | WorkTable() | Values():
            return []
        case Recursion() | UnionAll():
            return [outer_aliases for _ in inputs(node)]
        case Project():
            return [_aliases_of_inputs(node.input, node.exprs, outer_aliases)]
        case Aggregate():
            return [_aliases_of_inputs(node.input, node.keys, outer_aliases)]
        case Filter() | TopK() | Repeat() | Unnest() | Window():
            return [outer_aliases[: len(fields(node.input))]]
        case Join() | OuterJoin():
            width = len(fields(node.left))
            return [outer_aliases[:width], outer_aliases[width:]]
        case SemiJoin():
            return [outer_aliases, (None,) * len(fields(node.right))]
        case _:
            assert_never(node)


def _aliases_of_inputs(node: Node, exprs: Sequence[Expr], outer_aliases: Aliases) -> Aliases:
    found: dict[int, str | None] = {}
    for expr, alias in zip(map(_strip_widen, exprs), outer_aliases, strict=False):
        if isinstance(expr, Col):
            found.setdefault(expr.ordinal, alias)
    return tuple(found.get(i) for i in range(len(fields(node))))


def _generic_name(value: ShownValue) -> str:
    """Return the first part of the generated name of a computed column."""
    match value:
        case Call():
            function = value.signature.partition("(")[0].removesuffix("_of")
            return "value" if infix(function) or prefix(function) or function.startswith("io_cast") else function
        case AggregateCall():
            return value.signature.partition("(")[0]
        case WindowCall():
            return value.name
        case TableFunction():
            return "element"
        case Case():
            return "case"
        case Coalesce():
            return "coalesce"
        case BoolOp() | IsNull():
            return "condition"
        case Const() | Col() | Widen():
            return "value"
        case _:
            assert_never(value)
