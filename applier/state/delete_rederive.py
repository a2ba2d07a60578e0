"""ΔR of a recursion, from the R it derived before: as many rounds as the change goes deep, each as small as it.

With UNION ALL a row counts as often as it is derived, and a step is linear, so changes pass through it like rows:

    X₀ = Δbase + Δstep(R),   Xₙ₊₁ = step'(Xₙ),   ΔR = Σ Xₙ

With UNION a row is there as long as one derivation of it is left; delete and derive again:

    O = rows of R that lost a derivation, and what step derived from those, and so on     (over-deleted)
    S = R − O
    N = what base' and step'(S) still derive of O, + what Δbase and Δstep(S) derive,
        + what step' derives from those, and so on, without S                            (derived again, or new)
    ΔR = N − O

A row of S has lost nothing anywhere in its derivation, so it stays; a cycle that only derives itself is
in O as a whole.
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
from applier.operators.support.frozen_inputs import FrozenInputs
from applier.operators.support.inputs import Inputs, Side
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.partitions import group_equal_rows
from applier.plan.expr import Col
from applier.plan.nodes import Recursion, fields
from applier.spark.collect import collect
from applier.spark.views import drop_view
from applier.state.fixpoint import FixpointState, weighted_rows
from applier.zset import WEIGHT, Row, column_names, identity, net, plus

log = logging.getLogger(__name__)

MAX_ROUNDS = 100
"""A change that goes deeper is not followed: among rows that leave there may be a cycle, which has no end."""

MAX_CHANGED_ROWS = 20_000
"""Nor is one that touches more rows than this."""

RowsByIdentity = dict[Row, Row]
"""By what tells them apart."""


class TooManyChanges(Exception):
    """It is cheaper to derive everything anew."""


def recursion_delta(spark: SparkSession, held: FixpointState, inputs: Inputs) -> pa.Table | None:
    """ΔR of a recursion over a window; None when nothing changes. Derived anew where that cannot be followed."""
    try:
        return DeleteRederive(spark, held, inputs).change()
    except (TooManyChanges, PySparkException) as reason:
        # Of rows that leave, something may be derived that never was; if it is not that, it fails again here.
        problem = "too many rows change" if isinstance(reason, TooManyChanges) else "it fails on a row that leaves"
        extra = {"recursion": held.node.number, "rows": held.rows, "problem": problem}
        log.warning("a recursion is derived anew [recursion_recomputed]", extra=extra)
    text = delta_recursion(
        held.node, held.before(), snapshot(held.node, Side.AFTER, FrozenInputs(inputs, Side.AFTER, True))
    )
    rows = collect(spark.sql(text))
    return net(rows) if rows.num_rows else None


class DeleteRederive:
    """One recursion through one window."""

    def __init__(self, spark: SparkSession, held: FixpointState, inputs: Inputs) -> None:
        self._spark = spark
        self._held = held
        self._node: Recursion = held.node
        self._inputs = inputs
        self._names = column_names(len(fields(held.node)))

    def change(self) -> pa.Table | None:
        """ΔR; None when nothing the recursion reads changed it. Raises TooMuchChanges."""
        step = delta(step_over(self._node, self._held.before()), self._inputs)
        base = delta(self._node.base, self._inputs)
        if base is None and step is None:
            return None
        changed = self._of_rows(base, step) if self._node.distinct else self._of_all(plus(base, step))
        return changed if changed.num_rows else None

    def _of_all(self, text: str | None) -> pa.Table:
        found = [changed := net(self._run(text))]
        for _ in range(MAX_ROUNDS):
            if not changed.num_rows:
                return net(pa.concat_tables(found))
            changed = net(self._stepped(changed, Side.AFTER))
            found.append(changed)
        raise TooManyChanges

    def _of_rows(self, base: str | None, step: str | None) -> pa.Table:
        lost, gained = self._signed(base, step)
        held = self._held
        over = self._closed({name: row for name, row in lost.items() if name in held}, Side.BEFORE, held.__contains__)
        if over:
            gained = self._derived_from_the_rest(over)
        new = {name: row for name, row in gained.items() if name not in held or name in over}
        new = self._closed(new, Side.AFTER, lambda name: name not in held or name in over)
        leaving = [(row, -1) for name, row in over.items() if name not in new]
        return held.table([*leaving, *((row, 1) for name, row in new.items() if name not in over)])

    def _signed(self, base: str | None, step: str | None) -> tuple[RowsByIdentity, RowsByIdentity]:
        """The rows that lost a derivation, though they may have another, and those that have one more than before."""
        text = plus(base, step)
        sums = f"sum(if({WEIGHT} < 0, {WEIGHT}, 0L)) AS lost, sum({WEIGHT}) AS {WEIGHT}"
        rows = collect(self._spark.sql(group_equal_rows(fields(self._node), f"SELECT * FROM ({text})", sums)))
        if rows.num_rows > MAX_CHANGED_ROWS:
            raise TooManyChanges
        signs = list(zip(rows["lost"].to_pylist(), rows[WEIGHT].to_pylist(), strict=True))
        found = [row for row, _ in weighted_rows(rows.drop_columns("lost"))]
        return (
            _named(row for row, (lost, _) in zip(found, signs, strict=True) if lost < 0),
            _named(row for row, (_, more) in zip(found, signs, strict=True) if more > 0),
        )

    def _closed(self, rows: RowsByIdentity, side: Side, taken: Callable[[Row], bool]) -> RowsByIdentity:
        """The rows and all that is derived from them, as far as it is taken."""
        found, last = dict(rows), rows
        for _ in range(MAX_ROUNDS):
            if not last:
                return found
            derived = _positive(self._stepped(self._held.table((row, 1) for row in last.values()), side))
            last = {name: row for name, row in derived.items() if name not in found and taken(name)}
            found |= last
            if len(found) > MAX_CHANGED_ROWS:
                break
        raise TooManyChanges

    def _derived_from_the_rest(self, over: RowsByIdentity) -> RowsByIdentity:
        """What is derived by S and the base of the rows taken out, and what is new."""
        node, columns = self._node, fields(self._node)
        with self._viewed(self._held.table((row, -1) for row in over.values())) as leaving:
            rest = step_over(node, f"{self._held.before()} UNION ALL {leaving}")
            keys = [Col(i, column.type) for i, column in enumerate(columns)]
            key_filter = KeyFilter.of(keys, self._names, leaving, null_safe=True, small=True)
            again = [snapshot_where(part, Side.AFTER, key_filter, self._inputs) for part in (node.base, rest)]
            gained = plus(delta(node.base, self._inputs), delta(rest, self._inputs))
            found = {name: row for name, row in _positive(self._run(plus(*again))).items() if name in over}
            return found | (_positive(self._run(gained)) if gained else {})

    def _stepped(self, rows: pa.Table, side: Side) -> pa.Table:
        """What the step makes of these rows, other relations as they are at one end."""
        with self._viewed(rows) as working:
            few = rows.num_rows <= MAX_CHANGED_ROWS
            return self._run(delta(step_over_change(self._node, working), FrozenInputs(self._inputs, side, few)))

    @contextmanager
    def _viewed(self, rows: pa.Table) -> Iterator[str]:
        view = self._held.view(rows)
        try:
            yield f"SELECT * FROM {view}"
        finally:
            drop_view(self._spark, view)

    def _run(self, text: str | None) -> pa.Table:
        if text is None:
            return self._held.table([])
        rows = collect(self._spark.sql(text))
        return pa.Table.from_arrays(rows.columns, names=[*self._names, WEIGHT])


def _named(rows: Iterable[Row]) -> RowsByIdentity:
    return {identity(row): row for row in rows}


def _positive(rows: pa.Table) -> RowsByIdentity:
    return _named(row for row, weight in weighted_rows(net(rows)) if weight > 0)
