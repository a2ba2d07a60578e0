"""Describes one PostgreSQL aggregate in the allow-list: how it is computed from the rows of a group.

There are three forms. *Additive*: sums over rows, so each row is multiplied by its weight and weights need not be
consolidated. *OfSet*: a function of the distinct values. *OfList*: a function of all values in an order. The last two
need the Z-set itself, so weights are consolidated per value first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from applier.functions.entry import CollationNeed, FuzzArg
from applier.functions.numeric.physical_types import digits, outgrows_decimal
from applier.plan.expr import AggregateCall, Expr

LIMBS = 4
"""A long numeric is summed in this many parts of 15 digits. A sum of 38 digits holds each of them."""

LIMBS_DIGITS = LIMBS * 15


@dataclass(frozen=True, slots=True)
class Sum:
    """Σ of one SQL text per row over {0}, {1} … (the arguments); `type` is the Spark type of the sum."""

    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Additive:
    """`result` is over {n}, the number of rows that count, and {0}, {1} …, the sums; it must allow an empty group."""

    sums: Callable[[AggregateCall], tuple[Sum, ...]]
    result: Callable[[AggregateCall], str]


@dataclass(frozen=True, slots=True)
class OfSet:
    """A Spark aggregate over {0}, the argument. The argument is NULL if the row does not count, and NULLs are skipped.

    {1} … are further arguments, which are literals.
    """

    text: str


@dataclass(frozen=True, slots=True)
class OfList:
    """A Spark expression over {list}: the rows that count, in order, as structs a0, a1 …; there is at least one.

    `default_order`: PostgreSQL does not define the order of the rows, so several results are right; without ORDER BY
    the result is the one for ascending arguments. If it is false, an ORDER BY is required.
    """

    result: Callable[[AggregateCall], str]
    default_order: bool = False
    on_empty: str = ""
    """The result if no row counts, if it is not NULL."""


Form = Additive | OfSet | OfList


@dataclass(frozen=True, slots=True)
class AggregateEntry:
    """One aggregate.

    `physical_type` maps the arguments to the Spark type of the result. It raises UnsuitableArguments for physical types
    that are not proven. `skips_null`: a row with a NULL argument does not count. `takes_distinct`: DISTINCT is proven
    too. `within_group`: it is called with its direct arguments, and WITHIN GROUP orders the only other one.
    `fuzz` are the argument lists that the tests call it with.
    """

    signature: str
    physical_type: Callable[[tuple[Expr, ...]], str]
    form: Form
    fuzz: tuple[tuple[FuzzArg, ...], ...]
    skips_null: bool = True
    never_null: bool = False
    takes_distinct: bool = True
    collation: CollationNeed = CollationNeed.NONE
    within_group: bool = False
    ordered_labels: bool = False
    """It has one argument more than the PostgreSQL aggregate: the labels of the enum that it orders."""
    any_of_equals: bool = False
    """PostgreSQL returns any of the rows that are equal in the order; here it is the one whose arguments sort first."""
    internal: bool = False
    """No query can call it."""
    text_form: Form | None = None
    """For numerics stored as text."""
    long_form: Form | None = None
    """For numerics stored as text whose scale is known and that fit into LIMBS, and where a sum may outgrow DECIMAL."""

    def form_of(self, args: tuple[Expr, ...]) -> Form:
        """Return how it is computed over arguments of these physical types."""
        if self.long_form is not None and outgrows_decimal(args[0]):
            return self.long_form
        as_text = any(arg.type.pg.name == "numeric" and arg.type.spark == "string" for arg in args)
        if not as_text or self.text_form is None:
            return self.form
        size = digits(args[0])
        return self.long_form if self.long_form is not None and size and size[0] <= LIMBS_DIGITS else self.text_form


def plain(*sums: Sum, result: str) -> Additive:
    """Return an additive form whose sums and result are the same for every call."""
    return Additive(lambda _: sums, lambda _: result)


def over_values(function: str, *more: str) -> OfList:
    """Return a form that calls a Java function over the list of arguments; the query need not give an order."""
    arguments = ", ".join(["transform({list}, x -> x.a0)", *more])
    return OfList(lambda _: f"{function}({arguments})", default_order=True)
