"""Computes ΔR of a recursion from the R that it derived before: as many rounds as the change is deep, each as small.

With UNION ALL a row counts as often as it is derived, and a step is linear, so changes pass through it like rows:

    X₀ = Δbase + Δstep(R),   Xₙ₊₁ = step'(Xₙ),   ΔR = Σ Xₙ

With UNION a row exists as long as one derivation of it is left; delete and rederive:

    O = rows of R that lost a derivation, and what step derived from those, and so on     (over-deleted)
    S = R − O
    N = what base' and step'(S) still derive of O, + what Δbase and Δstep(S) derive,
        + what step' derives from those, and so on, without S                            (derived again, or new)
    ΔR = N − O

A row of S has lost nothing anywhere in its derivation, so it stays; a cycle that only derives itself is in O as a
whole.

Intuitively: when a bridge is closed, first delete every place that was reached over it, then add back those that
another road still reaches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.operators.incrementalize import delta, snapshot, snapshot_where
from applier.operators.recursion import delta_recursion, step_over, step_over_change
from applier.operators.support.delta_plan import GivenRows
from applier.operators.support.frozen_inputs import FrozenInputs
from applier.operators.support.inputs import Inputs, Side
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.partitions import group_equal_rows
from applier.plan.expr import Col
from applier.plan.nodes import Recursion, fields
from applier.spark.collect import collect
from applier.spark.views import drop_view
from applier.state.fixpoint import FixpointState, weighted_rows
from applier.zset import WEIGHT, Row, ZSet, column_names, identity, net, plus

log = logging.getLogger(__name__)

MAX_REDERIVE_ROUNDS = 100
"""A deeper change is computed in whole: the rows that leave may contain a cycle, which has no end."""

MAX_CHANGED_ROWS = 20_000
"""So is a change that affects more rows than this."""

RowsByIdentity = dict[Row, Row]
"""Rows by their identity, a form that equals itself."""


class TooManyChanges(Exception):
    """The change is so large that it is cheaper to compute the whole recursion again."""


def recursion_delta(spark: SparkSession, held: FixpointState, inputs: Inputs) -> pa.Table | None:
    """Return ΔR of a recursion over an LSN range; None when nothing changes.

    Where delete and rederive is not possible, the recursion is computed again in whole.
    """
    try:
        return DeleteRederive(spark, held, inputs).change()
    except (TooManyChanges, PySparkException) as reason:
        # A step over rows that leave may derive rows that never existed, and fail on those. Any other error is raised
        # again below.
        problem = "too many rows change" if isinstance(reason, TooManyChanges) else "it fails on a row that leaves"
        extra = {"recursion": held.node.number, "rows": held.rows, "problem": problem}
        log.warning("a recursion is computed again [recursion_recomputed]", extra=extra)
    changed = delta_recursion(
        held.node, held.before(), snapshot(held.node, Side.AFTER, FrozenInputs(inputs, Side.AFTER, True))
    )
    rows = collect(spark.sql(changed.sql))
    return net(rows) if rows.num_rows else None


class DeleteRederive:
    """One recursion over one LSN range."""

    def __init__(self, spark: SparkSession, held: FixpointState, inputs: Inputs) -> None:
        self._spark = spark
        self._held = held
        self._node: Recursion = held.node
        self._inputs = inputs
        self._names = column_names(len(fields(held.node)))

    def change(self) -> pa.Table | None:
        """Return ΔR; None when nothing that the recursion reads changed it. Raises TooManyChanges."""
        step = delta(step_over(self._node, self._held.before()), self._inputs)
        base = delta(self._node.base, self._inputs)
        if base is None and step is None:
            return None
        changed = self._delta_union(base, step) if self._node.distinct else self._delta_union_all(plus(base, step))
        return changed if changed.num_rows else None

    def _delta_union_all(self, zset: ZSet | None) -> pa.Table:
        found = [changed := net(self._run(zset))]
        for _ in range(MAX_REDERIVE_ROUNDS):
            if not changed.num_rows:
                return net(pa.concat_tables(found))
            changed = net(self._apply_step(changed, Side.AFTER))
            found.append(changed)
        raise TooManyChanges

    def _delta_union(self, base: ZSet | None, step: ZSet | None) -> pa.Table:
        lost, gained = self._lost_and_gained(base, step)
        held = self._held
        over = self._close_over(
            {name: row for name, row in lost.items() if name in held}, Side.BEFORE, held.__contains__
        )
        if over:
            gained = self._rederive(over)
        new = {name: row for name, row in gained.items() if name not in held or name in over}
        new = self._close_over(new, Side.AFTER, lambda name: name not in held or name in over)
        leaving = [(row, -1) for name, row in over.items() if name not in new]
        return held.table([*leaving, *((row, 1) for name, row in new.items() if name not in over)])

    def _lost_and_gained(self, base: ZSet | None, step: ZSet | None) -> tuple[RowsByIdentity, RowsByIdentity]:
        """Return the rows that lost a derivation, even if they have another, and the rows that gained one."""
        changed = plus(base, step)
        if changed is None:
            return {}, {}
        sums = f"sum(if({WEIGHT} < 0, {WEIGHT}, 0L)) AS lost, sum({WEIGHT}) AS {WEIGHT}"
        rows = collect(self._spark.sql(group_equal_rows(fields(self._node), f"SELECT * FROM ({changed.sql})", sums)))
        if rows.num_rows > MAX_CHANGED_ROWS:
            raise TooManyChanges
        signs = list(zip(rows["lost"].to_pylist(), rows[WEIGHT].to_pylist(), strict=True))
        found = [row for row, _ in weighted_rows(rows.drop_columns("lost"))]
        return (
            _by_identity(row for row, (lost, _) in zip(found, signs, strict=True) if lost < 0),
            _by_identity(row for row, (_, more) in zip(found, signs, strict=True) if more > 0),
        )

    def _close_over(self, rows: RowsByIdentity, side: Side, accept: Callable[[Row], bool]) -> RowsByIdentity:
        """Return the rows and everything that is derived from them, as far as `accept` allows."""
        found, last = dict(rows), rows
        for _ in range(MAX_REDERIVE_ROUNDS):
            if not last:
                return found
            derived = _present_rows(self._apply_step(self._held.table((row, 1) for row in last.values()), side))
            last = {name: row for name, row in derived.items() if name not in found and accept(name)}
            found |= last
            if len(found) > MAX_CHANGED_ROWS:
                break
        raise TooManyChanges

    def _rederive(self, over: RowsByIdentity) -> RowsByIdentity:
        """Return the over-deleted rows that S and the base still derive, and the rows that are new."""
        node, columns = self._node, fields(self._node)
        with self._as_view(self._held.table((row, -1) for row in over.values())) as leaving:
            rest = step_over(node, self._held.before().plus(leaving))
            keys = [Col(i, column.type) for i, column in enumerate(columns)]
            key_filter = KeyFilter.of(keys, self._names, GivenRows(leaving), null_safe=True, broadcast=True)
            again = [snapshot_where(part, Side.AFTER, key_filter, self._inputs) for part in (node.base, rest)]
            gained = plus(delta(node.base, self._inputs), delta(rest, self._inputs))
            found = {name: row for name, row in _present_rows(self._run(plus(*again))).items() if name in over}
            return found | (_present_rows(self._run(gained)) if gained else {})

    def _apply_step(self, rows: pa.Table, side: Side) -> pa.Table:
        """Apply the step to these rows, with all other relations at one end of the LSN range."""
        with self._as_view(rows) as working:
            few = rows.num_rows <= MAX_CHANGED_ROWS
            return self._run(delta(step_over_change(self._node, working), FrozenInputs(self._inputs, side, few)))

    @contextmanager
    def _as_view(self, rows: pa.Table) -> Iterator[ZSet]:
        view = self._held.view(rows)
        try:
            yield ZSet.of_view(view, len(self._names))
        finally:
            drop_view(self._spark, view)

    def _run(self, zset: ZSet | None) -> pa.Table:
        if zset is None:
            return self._held.table([])
        rows = collect(self._spark.sql(zset.sql))
        return pa.Table.from_arrays(rows.columns, names=[*self._names, WEIGHT])


def _by_identity(rows: Iterable[Row]) -> RowsByIdentity:
    return {identity(row): row for row in rows}


def _present_rows(rows: pa.Table) -> RowsByIdentity:
    return _by_identity(row for row, weight in weighted_rows(net(rows)) if weight > 0)
