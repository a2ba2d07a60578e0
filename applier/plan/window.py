"""Window functions of a plan, with their partitions, orders and frames. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum

from applier.plan.expr import AggregateCall, Const, Expr, SortKey, ValueType


class WindowFunction(Enum):
    """The window functions that Spark computes exactly as PostgreSQL does."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"
    NTILE = "ntile"
    LAG = "lag"
    LEAD = "lead"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    NTH_VALUE = "nth_value"
    AGGREGATE = "aggregate"


OF_PEERS = frozenset(
    {WindowFunction.RANK, WindowFunction.DENSE_RANK, WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST}
)
"""Functions with the same value for all rows that are equal in the order."""
OF_PLACES = frozenset({WindowFunction.ROW_NUMBER, WindowFunction.NTILE, WindowFunction.LAG, WindowFunction.LEAD})
"""Functions that depend on the exact place of a row. The frame does not matter to them, nor to those of peers."""
OF_FRAME_ROWS = frozenset({WindowFunction.FIRST_VALUE, WindowFunction.LAST_VALUE, WindowFunction.NTH_VALUE})
"""Functions that return a value of one row of the frame."""
_NEVER_NULL = OF_PEERS | {WindowFunction.ROW_NUMBER, WindowFunction.NTILE}


class FrameMode(Enum):
    """What an offset counts: rows, values of the one sort key, or groups of peers."""

    ROWS = "ROWS"
    RANGE = "RANGE"
    GROUPS = "GROUPS"


class BoundKind(Enum):
    """Where a frame begins or ends, in the order from the first row to the last."""

    FIRST = "UNBOUNDED PRECEDING"
    PRECEDING = "PRECEDING"
    CURRENT = "CURRENT ROW"
    FOLLOWING = "FOLLOWING"
    LAST = "UNBOUNDED FOLLOWING"


class Exclude(Enum):
    """Which rows are left out of the frame of a row."""

    NOTHING = "nothing"
    CURRENT = "the current row"
    GROUP = "the current row and its peers"
    TIES = "the peers of the current row"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a frame; `offset` for PRECEDING and FOLLOWING only."""

    kind: BoundKind
    offset: Const | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows from `start` to `end`, relative to the current row, without those that `exclude` leaves out."""

    mode: FrameMode
    start: Bound
    end: Bound
    exclude: Exclude = Exclude.NOTHING

    @property
    def whole(self) -> bool:
        """Whether every row of the partition is in the frame of every row."""
        return self.unbounded and self.exclude is Exclude.NOTHING

    @property
    def unbounded(self) -> bool:
        """Whether the frame reaches from the first row of the partition to the last."""
        return self.start.kind is BoundKind.FIRST and self.end.kind is BoundKind.LAST

    @property
    def empty(self) -> bool:
        """Whether the frame ends before it begins, so that no row can be in it."""
        start, end = self.start, self.end
        if start.offset is None or end.offset is None or start.kind is not end.kind or self.by_calendar:
            return False
        first, last = (Decimal(str(offset.value)) for offset in (start.offset, end.offset))
        return first > last if start.kind is BoundKind.FOLLOWING else last > first

    @property
    def by_calendar(self) -> bool:
        """Whether the offsets are intervals whose length depends on the month."""
        return any(b.offset is not None and b.offset.type.pg.name == "interval" for b in (self.start, self.end))


@dataclass(frozen=True, slots=True)
class WindowCall:
    """One window function over the rows with equal values of `partition`, in this order.

    `frame` is None where it does not matter. The arguments of an aggregate are in `aggregate`, and only there.
    """

    function: WindowFunction
    args: tuple[Expr, ...]
    type: ValueType
    partition: tuple[Expr, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Frame | None = None
    aggregate: AggregateCall | None = None

    def over(self, change: Callable[[Expr], Expr]) -> WindowCall:
        """Return the same call with every expression replaced by `change` of it."""
        return replace(
            self,
            args=tuple(change(arg) for arg in self.args),
            partition=tuple(change(key) for key in self.partition),
            order=tuple(replace(key, expr=change(key.expr)) for key in self.order),
            aggregate=None if self.aggregate is None else _map_aggregate(self.aggregate, change),
        )

    def inputs(self) -> Iterator[Expr]:
        """Yield every expression that the call reads."""
        yield from (*self.args, *self.partition, *(key.expr for key in self.order))
        if self.aggregate is not None:
            yield from self.aggregate.args
            if self.aggregate.filter is not None:
                yield self.aggregate.filter

    @property
    def name(self) -> str:
        """The name under which users know the function."""
        return self.function.value if self.aggregate is None else self.aggregate.signature.partition("(")[0]

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.function not in _NEVER_NULL if self.aggregate is None else self.aggregate.nullable


def _map_aggregate(call: AggregateCall, change: Callable[[Expr], Expr]) -> AggregateCall:
    new_filter = None if call.filter is None else change(call.filter)
    return replace(call, args=tuple(change(arg) for arg in call.args), filter=new_filter)
