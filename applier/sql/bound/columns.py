"""Columns of a bound query: what the ordinals in its expressions mean. Pure.

The expressions of a Select are plan expressions, in which `Col(i)` is column i of the Select's own list of columns. The
list says where each of them comes from. So an expression is bound and typed before it is known over which node it will
be evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from applier.plan.expr import Expr


@dataclass(frozen=True, slots=True)
class ItemCol:
    """A column of a FROM item, by the number of the item and of the column."""

    item: int
    number: int


@dataclass(frozen=True, slots=True)
class OuterCol:
    """A column of an outer query: the number of that Select, and the ordinal among its columns."""

    select: int
    ordinal: int
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SubqueryCol:
    """The result of a dependent join, by its index in the Select."""

    subquery: int


@dataclass(frozen=True, slots=True)
class ResultCol:
    """In the test of a dependent join: a column of its inner query."""

    subquery: int
    number: int


@dataclass(frozen=True, slots=True)
class KeyCol:
    """Above the groups: a key of GROUP BY."""

    number: int


@dataclass(frozen=True, slots=True)
class CallCol:
    """Above the groups: the result of an aggregate."""

    number: int


@dataclass(frozen=True, slots=True)
class GroupingCol:
    """Above the groups: the result of GROUPING()."""

    number: int


@dataclass(frozen=True, slots=True)
class SetCol:
    """The result of a set-returning function of the select list."""

    number: int


@dataclass(frozen=True, slots=True)
class WindowCol:
    """The result of a window function."""

    number: int


@dataclass(frozen=True, slots=True)
class ComputedCol:
    """An expression over other columns of the same Select, such as a column of JOIN … USING."""

    expr: Expr


BoundColumn = (
    ItemCol | OuterCol | SubqueryCol | ResultCol | KeyCol | CallCol | GroupingCol | SetCol | WindowCol | ComputedCol
)
