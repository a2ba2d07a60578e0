"""Rows -> one row per group, with the results of the aggregate calls.

    Δ(γ_k,f(A)) = γ(A'_K) − γ(A_K),   where K = the groups that ΔA affects and A' = A + ΔA

Everything is computed from *accumulators* (see `support.accumulators`), which add up: σ(A') = σ(A) + σ(ΔA). So the old
half comes either from the rows of A in the groups K, or from σ(A), the state after the last LSN range, and the new half
needs only σ(ΔA):

    γ(g) = result(Σ accumulators of g);   emit −(g, γ) if n > 0, +(g, γ') if n' > 0, n = Σ w counts the group's rows

Without keys the one group always exists.

Intuitively: a changed row changes the result of its own group only, so the old result of that group leaves and the new
one comes.

    A: (x, 1) (x, 2) (y, 5)   γ: sum by first column     result (x, 3) (y, 5)
    ΔA: −(x, 2) −(y, 5) +(z, 7)  →  K = {x, y, z}  →  delta −(x, 3) +(x, 1) −(y, 5) +(z, 7)
"""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.operators.support.accumulators import (
    COUNT_COLUMN,
    call_result,
    grouped_columns,
    is_additive,
    key_names,
    row_accumulators,
    sum_accumulators,
    sum_column,
    sum_types,
    value_names,
)
from applier.operators.support.delta_plan import (
    AggregateDelta,
    AggregateMode,
    SelectedRows,
    StatePart,
    StateRows,
    StateSummary,
)
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.inputs import Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Aggregate
from applier.zset import WEIGHT, ZSet, column_name, column_names, sum_same_rows

OLD, NEW = ENDS = "o", "n"
"""The two ends of an LSN range; also the prefixes of the columns that belong to them."""


def group_accumulators(node: Aggregate, zset: ZSet) -> ZSet:
    """Return σ of a Z-set, the state: one accumulator per group, and per set of values where calls need those."""
    sums = " OR ".join(f"{name} <> 0" for name in sum_types(node))
    return sum_accumulators(node, row_accumulators(node, zset)).filter(sums)


def snapshot_aggregate(node: Aggregate, zset: ZSet) -> ZSet:
    """Return γ of a whole Z-set."""
    return aggregate_accumulators(node, row_accumulators(node, zset))


def aggregate_accumulators(node: Aggregate, accumulators: ZSet) -> ZSet:
    """Return γ of the Z-set whose accumulators these are."""
    groups = _evaluate_groups(node, _place_sums(node, accumulators, {NEW: True}), (NEW,))
    results = [f"{NEW}_r{i}" for i in range(len(node.calls))]
    return ZSet.select_from(f"({groups}) WHERE {NEW}_there", [*key_names(node), *results], "1L")


def plan_aggregate_delta(node: Aggregate, inputs: InputPlans) -> AggregateDelta | None:
    """Plan γ(A + ΔA) − γ(A) on the affected groups, from the state where there is one."""
    if (state := inputs.state_of(node)) is not None:
        return _plan_from_state(node, state, inputs)
    delta = inputs.delta_read_again(node.input)
    if delta is None:
        return None
    keys = [spark_sql(key) for key in node.keys]
    key_filter = KeyFilter.of(node.keys, keys, delta, null_safe=True, broadcast=inputs.small)
    before = inputs.snapshot_where(node.input, Side.BEFORE, key_filter)
    return AggregateDelta(node, AggregateMode.FROM_INPUT, before, delta)


def _plan_from_state(node: Aggregate, state: StateSummary, inputs: InputPlans) -> AggregateDelta | None:
    """Plan the same from the state: σ(A), or minima and maxima."""
    if not state.has_changed:
        return None
    if state.groups is not None:
        return AggregateDelta(node, state.groups, None, StateRows(node, StatePart.AFFECTED_GROUPS))
    before, delta = StateRows(node, StatePart.BEFORE), StateRows(node, StatePart.DELTA)
    names = tuple(key_names(node))
    key_filter = KeyFilter.of(node.keys, names, delta, null_safe=True, broadcast=inputs.small)
    affected = SelectedRows(before, key_filter, names) if names else before
    return AggregateDelta(node, AggregateMode.FROM_STATE, affected, delta)


def render_aggregate_delta(plan: AggregateDelta, before: ZSet | None, delta: ZSet) -> ZSet:
    """Return γ(A + ΔA) − γ(A) on the affected groups, from what the mode of the plan says."""
    node = plan.node
    match plan.mode, before:
        case AggregateMode.FROM_SUMS, _:
            return _emit_changes(node, _evaluate_results(node, delta.sql, (OLD, NEW)))
        case AggregateMode.FROM_SIGNED_SUMS, _:
            return _emit_signed_changes(node, _evaluate_results(node, delta.sql, (OLD, NEW), (WEIGHT,)))
        case AggregateMode.FROM_STATE, ZSet():
            return _diff_groups(node, before, delta)
        case AggregateMode.FROM_INPUT, ZSet():
            return _diff_groups(node, row_accumulators(node, before), row_accumulators(node, delta))
        case _:
            raise AssertionError(f"{plan.mode} without the rows before")


def group_rows(node: Aggregate, zset: ZSet) -> str:
    """Return for every group of a whole Z-set the columns n_… from which its results are computed."""
    return _sum_by_group(node, _place_sums(node, row_accumulators(node, zset), {NEW: True}), (NEW,))


def signed_group_rows(node: Aggregate, delta: ZSet) -> str:
    """Return the same columns n_… for the rows that come, and columns o_… for the rows that leave.

    For calls that need the values.
    """
    columns = ", ".join([*key_names(node), *value_names(node)])
    return _sum_by_group(
        node,
        f"SELECT {columns}, -{COUNT_COLUMN} AS {OLD}_{COUNT_COLUMN}, {COUNT_COLUMN} AS {NEW}_{COUNT_COLUMN}"
        f" FROM ({row_accumulators(node, delta).sql})",
        (OLD, NEW),
    )


def _place_sums(node: Aggregate, accumulators: ZSet, presence: dict[str, bool]) -> str:
    """Return accumulators with their sums at each end of the LSN range; zero at an end where they are not present."""
    sums = [
        f"{name if present else f'CAST(0 AS {spark})'} AS {side}_{name}"
        for side, present in presence.items()
        for name, spark in sum_types(node).items()
    ]
    return f"SELECT {', '.join([*key_names(node), *value_names(node), *sums])} FROM ({accumulators.sql})"


def _evaluate_groups(node: Aggregate, rows: str, sides: tuple[str, ...]) -> str:
    """Return one row per group: for each end of the LSN range whether the group exists, and every result."""
    return _evaluate_results(node, _sum_by_group(node, rows, sides), sides)


def _sum_by_group(node: Aggregate, rows: str, sides: tuple[str, ...]) -> str:
    """Return one row per group: for each end of the LSN range the columns from which every result is computed."""
    keys = key_names(node)
    sums = {f"{side}_{name}": spark for side in sides for name, spark in sum_types(node).items()}
    totals = [f"{sum_column(name, spark)} AS {name}" for name, spark in sums.items()]
    if not is_additive(node):
        rows = sum_same_rows(rows, grouped_columns(node), totals)
    call_results = {(side, i): call_result(node, i, side) for side in sides for i in range(len(node.calls))}
    totals += [f"{text} AS {name}" for part in call_results.values() for name, text in part.aggregated.items()]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *totals])} FROM ({rows}){grouping}"


def _evaluate_results(node: Aggregate, summed: str, sides: tuple[str, ...], also: tuple[str, ...] = ()) -> str:
    call_results = {(side, i): call_result(node, i, side) for side in sides for i in range(len(node.calls))}
    results = [f"{_exists_sql(node, side)} AS {side}_there" for side in sides]
    results += [f"{part.result} AS {side}_r{i}" for (side, i), part in call_results.items()]
    return f"SELECT {', '.join([*key_names(node), *results, *also])} FROM ({summed})"


def _exists_sql(node: Aggregate, side: str) -> str:
    return f"{side}_{COUNT_COLUMN} > 0" if node.keys else "true"


def _diff_groups(node: Aggregate, before: ZSet, delta: ZSet) -> ZSet:
    """Return the delta of the groups of these accumulators."""
    rows = (
        f"{_place_sums(node, before, {OLD: True, NEW: True})}"
        f" UNION ALL {_place_sums(node, delta, {OLD: False, NEW: True})}"
    )
    return _emit_changes(node, _evaluate_groups(node, rows, (OLD, NEW)))


def _emit_changes(node: Aggregate, groups: str) -> ZSet:
    """Return −old and +new for every group whose results differ; groups whose results stay the same are left out."""
    first, count = len(node.keys), len(node.calls)
    names = ["there", *(column_name(first + i) for i in range(count)), WEIGHT]
    signed = [
        ", ".join([*(f"{side}_{name}" for name in _result_names(node)), weight])
        for side, weight in ((OLD, "-1L"), (NEW, "1L"))
    ]
    # Two rows per group out of one: the groups are computed once.
    columns = [f"k{i} AS {column_name(i)}" for i in range(first)]
    columns.append(f"stack(2, {signed[0]}, {signed[1]}) AS ({', '.join(names)})")
    pairs = f"SELECT {', '.join(columns)} FROM ({groups}) WHERE {_has_changed_sql(node)}"
    return ZSet.select_from(f"({pairs}) WHERE there", column_names(first + count), WEIGHT)


def _emit_signed_changes(node: Aggregate, groups: str) -> ZSet:
    """Return the same for groups that are present twice: one row from one row, which Spark computes while it plans."""
    present, *results = (f"if({WEIGHT} < 0, {OLD}_{name}, {NEW}_{name})" for name in _result_names(node))
    source = f"({groups}) WHERE {_has_changed_sql(node)} AND {present}"
    return ZSet.select_from(source, [*key_names(node), *results], WEIGHT)


def _has_changed_sql(node: Aggregate) -> str:
    """Return the condition that the results at both ends of the LSN range differ."""
    return f"NOT ({' AND '.join(f'{OLD}_{name} <=> {NEW}_{name}' for name in _result_names(node))})"


def _result_names(node: Aggregate) -> list[str]:
    return ["there", *(f"r{i}" for i in range(len(node.calls)))]
