"""What the allow-list says about one PostgreSQL aggregate: how it is computed from the rows of a group.

Three forms. *Additive*: sums of something per row, so the weight of a row multiplies and nothing needs to be netted.
*OfSet*: a function of which values there are, however often. *OfList*: a function of all values in an order. The last
two need the multiset itself, so weights are netted per value first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from applier.functions.entry import CollationNeed, FuzzArg
from applier.functions.numeric.physical_types import digits
from applier.plan.expr import AggregateCall, Expr

LIMBS = 4
"""A long numeric is added up in so many parts of 15 digits, each of which a sum of 38 digits holds."""

LIMBS_DIGITS = LIMBS * 15


@dataclass(frozen=True, slots=True)
class Sum:
    """Σ of one text per row over {0}, {1} … (the arguments); `type` is the Spark type it is added up in."""

    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Additive:
    """`result` is over {n}, the number of rows that count, and {0}, {1} …, the sums; it must stand an empty group."""

    sums: Callable[[AggregateCall], tuple[Sum, ...]]
    result: Callable[[AggregateCall], str]


@dataclass(frozen=True, slots=True)
class OfSet:
    """A Spark aggregate over {0}, the argument; it is NULL where the row does not count, and skips that.

    {1} … are further arguments, which are literals.
    """

    text: str


@dataclass(frozen=True, slots=True)
class OfList:
    """A Spark expression over {list}: the rows that count, in order, as structs a0, a1 …; there is at least one.

    `default_order`: PostgreSQL leaves the order of the rows open and so makes several answers right; without ORDER BY
    the answer is the one for ascending arguments. Else an ORDER BY is needed.
    """

    result: Callable[[AggregateCall], str]
    default_order: bool = False
    on_empty: str = ""
    """What it is where no row counts, if not NULL."""


Form = Additive | OfSet | OfList


@dataclass(frozen=True, slots=True)
class AggregateEntry:
    """One aggregate.

    `physical_type` takes the arguments to the Spark type of the result and raises Unfit for physical types that are
    not proven. `skips_null`: a row with a NULL argument does not count. `takes_distinct`: DISTINCT is proven too.
    `within_group`: it is called with its direct arguments, and WITHIN GROUP orders the only other one.
    `fuzz` are the argument lists the tests call it with.
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
    """Takes one argument more than the aggregate: the labels of the enum it orders."""
    any_of_equals: bool = False
    """Of rows that are equal in the order PostgreSQL shows any; here the one whose arguments sort first."""
    internal: bool = False
    """No query can ask for it."""
    text_form: Form | None = None
    """For numerics held as text."""
    long_form: Form | None = None
    """For those of them whose number of decimals is known and that have a place in LIMBS."""

    def form_of(self, args: tuple[Expr, ...]) -> Form:
        """How it is computed over arguments in these physical types."""
        as_text = any(arg.type.pg.name == "numeric" and arg.type.spark == "string" for arg in args)
        if not as_text or self.text_form is None:
            return self.form
        size = digits(args[0])
        return self.long_form if self.long_form is not None and size and size[0] <= LIMBS_DIGITS else self.text_form


def plain(*sums: Sum, result: str) -> Additive:
    """Sums and a result that are the same for every call."""
    return Additive(lambda _: sums, lambda _: result)


def over_values(function: str, *more: str) -> OfList:
    """One of our functions over the list of the arguments; it does not ask for their order."""
    arguments = ", ".join(["transform({list}, x -> x.a0)", *more])
    return OfList(lambda _: f"{function}({arguments})", default_order=True)
