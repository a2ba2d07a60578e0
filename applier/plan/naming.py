"""Gives every column of a plan the name that people know it by. Pure; only `explain` uses it.

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
from applier.plan.expression_text import Column, Computed, Named, Value, Writer, leaves
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
"""What a computed column may be written as where it is read; a longer one gets a name."""

Aliases = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node, what is below it, and its columns; `aliases` are what the select list calls them."""

    node: Node
    inputs: tuple[NamedNode, ...]
    columns: tuple[Column, ...]
    aliases: Aliases = ()
    alias: str = ""
    """What all of it is called in FROM."""

    def walk(self) -> Iterator[NamedNode]:
        """This and everything below, parents first."""
        yield self
        for below in self.inputs:
            yield from below.walk()

    def reading(self, *, qualified: bool = False) -> Writer:
        """Writes what the node computes."""
        return Writer((column for below in self.inputs for column in below.columns), qualified=qualified)

    def showing(self) -> Writer:
        """Writes the node's own columns."""
        return Writer(self.columns)


def name_columns(plan: StreamPlan) -> NamedNode:
    """The plan, every column with its name."""
    return _Naming().root(plan)


class _Naming:
    def __init__(self) -> None:
        self._numbers = count()
        self._members: Counter[str] = Counter()
        self._made: Counter[str] = Counter()
        self._ambiguous: set[str] = set()

    def root(self, plan: StreamPlan) -> NamedNode:
        shown = self._name_node(plan.root, plan.names)
        return NamedNode(shown.node, shown.inputs, shown.columns, plan.names, shown.alias)

    def _name_node(self, node: Node, wanted: Aliases) -> NamedNode:
        labels = self._labels(node)
        known = _own_aliases(node, wanted)
        below = tuple(
            self._name_node(child, w) for child, w in zip(inputs(node), _wanted_below(node, known), strict=True)
        )
        made = self._columns(node, below, labels, known)
        passed = {id(column) for shown in below for column in shown.columns}
        names = node.names or (None,) * len(made)
        columns = tuple(
            Named(labels.get(name.member, ""), name.column, next(self._numbers))
            if name is not None
            else self._name_column(column, alias, computed=id(column) not in passed, listed=isinstance(node, Project))
            for column, name, alias in zip(made, names, known, strict=True)
        )
        alias = "" if None in node.names or len(labels) != 1 else next(iter(labels.values()))
        return NamedNode(node, below, columns, alias=alias)

    def _labels(self, node: Node) -> dict[str, str]:
        """The members of FROM that the node's columns are of, each by a name that no other has."""
        members = dict.fromkeys(name.member for name in node.names if name is not None and name.member)
        if isinstance(node, Scan) and not members:
            members = {node.table.name: None}
        return {member: self._label(member) for member in members}

    def _label(self, member: str) -> str:
        seen = self._members[member]
        self._members[member] += 1
        return f"{member}_{seen}" if seen else member

    def _name_column(self, column: Column, alias: str | None, *, computed: bool, listed: bool) -> Column:
        """A column by its alias where it is computed or listed, by what it is computed as, or by a name of its own."""
        if isinstance(column, Named) or not computed:
            other = listed and not (isinstance(column, Named) and column.name == alias)
            return Named("", alias, next(self._numbers)) if other and alias is not None else column
        if alias is not None:
            return Named("", alias, next(self._numbers))
        text = Writer(column.over)(column.value)
        # Without a column in it nothing tells it from another that is written so.
        is_unambiguous = isinstance(column.value, Const) or any(leaves(column)) or text not in self._ambiguous
        self._ambiguous.add(text)
        return column if is_unambiguous and len(text) <= MAX_INLINE_LENGTH else self._own_name(_kind(column.value))

    def _own_name(self, kind: str) -> Named:
        self._made[kind] += 1
        return Named("", f"{kind}_{self._made[kind]}", next(self._numbers))

    def _columns(
        self, node: Node, below: tuple[NamedNode, ...], labels: dict[str, str], aliases: Aliases
    ) -> tuple[Column, ...]:
        """What the columns are before the query says how it calls them."""
        read = tuple(column for shown in below for column in shown.columns)
        match node:
            case Scan():
                (label,) = labels.values() or ("",)
                return tuple(Named(label, column, next(self._numbers)) for column in node.columns)
            case WorkTable() | Values():
                return tuple(self._own_name("column") for _ in fields(node))
            case Recursion() | UnionAll():
                return self._met("union" if isinstance(node, UnionAll) else "recursion", below[0].columns, aliases)
            case Unnest():
                number = (Named("", "ordinality", next(self._numbers)),) if node.ordinality else ()
                return (*read, *(Computed(made, read) for made in node.sets), *number)
            case Filter() | TopK() | Repeat() | Join() | OuterJoin():
                return read
            case SemiJoin():
                return below[0].columns
            case Project():
                return tuple(_computed(expr, read) for expr in node.exprs)
            case Aggregate():
                keys = tuple(_computed(key, read) for key in node.keys)
                return (*keys, *(Computed(call, read) for call in node.calls))
            case Window():
                return (*read, *(Computed(call, read) for call in node.calls))
            case _:
                assert_never(node)

    def _met(self, kind: str, first: tuple[Column, ...], aliases: Aliases) -> tuple[Column, ...]:
        """Columns that several branches have: without an alias each is called as in the first branch."""
        label, taken, found = self._label(kind), Counter[str](), list[Column]()
        for column, alias in zip(first, aliases, strict=True):
            own = column.name if isinstance(column, Named) else _kind(column.value)
            seen = taken[alias or own]
            taken[alias or own] += 1
            name = f"{alias or own}_{seen}" if seen else alias or own
            found.append(Named(label, name, next(self._numbers)))
        return tuple(found)


def _computed(expr: Expr, read: tuple[Column, ...]) -> Column:
    plain = _narrow(expr)
    return read[plain.ordinal] if isinstance(plain, Col) else Computed(plain, read)


def _narrow(expr: Expr) -> Expr:
    """The same value, however it is held."""
    return _narrow(expr.arg) if isinstance(expr, Widen) else expr


def _own_aliases(node: Node, wanted: Aliases) -> Aliases:
    """What the columns are called: by the query where the node stands, else further up."""
    names = node.names or (None,) * len(wanted)
    return tuple(alias if name is None else name.column for name, alias in zip(names, wanted, strict=True))


def _wanted_below(node: Node, wanted: Aliases) -> list[Aliases]:
    """What the aliases of a node's columns are for the columns of its inputs."""
    match node:
        case Scan() | WorkTable() | Values():
            return []
        case Recursion() | UnionAll():
            return [wanted for _ in inputs(node)]
        case Project():
            return [_of_columns(node.input, node.exprs, wanted)]
        case Aggregate():
            return [_of_columns(node.input, node.keys, wanted)]
        case Filter() | TopK() | Repeat() | Unnest() | Window():
            return [wanted[: len(fields(node.input))]]
        case Join() | OuterJoin():
            width = len(fields(node.left))
            return [wanted[:width], wanted[width:]]
        case SemiJoin():
            return [wanted, (None,) * len(fields(node.right))]
        case _:
            assert_never(node)


def _of_columns(node: Node, exprs: Sequence[Expr], wanted: Aliases) -> Aliases:
    found: dict[int, str | None] = {}
    for expr, alias in zip(map(_narrow, exprs), wanted, strict=False):
        if isinstance(expr, Col):
            found.setdefault(expr.ordinal, alias)
    return tuple(found.get(i) for i in range(len(fields(node))))


def _kind(value: Value) -> str:
    """What a column is called that is computed so and has no other name."""
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
