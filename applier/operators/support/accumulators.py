"""What the calls of an aggregate ask of each row, and what they answer for a group.

A row of the input contributes a *share* to its group: columns k0, k1 … (the group), `w` (its weight) and, depending on
the node's form, either what it adds to every sum of every call, or the values the calls look at. Shares of one group
may be added up at any time, in any order and any number of steps: the answer is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from applier.functions.aggregates.aggregate_entry import Additive, OfList, OfSet, Sum
from applier.functions.aggregates.aggregates import entry_of, form_of
from applier.functions.emit import spark_sql
from applier.plan.expr import AggregateCall, Const, Expr, SortKey
from applier.plan.nodes import Aggregate
from applier.zset import WEIGHT

COUNT = "w"
"""The weight of a share."""


def is_additive(node: Aggregate) -> bool:
    """Whether sums are all that its calls need; else it takes the multiset of the values they look at."""
    return all(isinstance(form_of(call), Additive) and not call.distinct for call in node.calls)


MIN_MAX_FORMS = {"min({0})": False, "max({0})": True}
"""The forms of aggregates that are one of their values, and whether it is the largest."""

_COMPARED = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string")


def min_max_calls(node: Aggregate) -> dict[int, bool] | None:
    """The calls that are the least or the largest of their values, and which of the two; None where others need values.

    Only of types that Python and Spark order alike, for it is on the driver that they are compared.
    """
    found = {}
    for number, call in enumerate(node.calls):
        form = form_of(call)
        if isinstance(form, Additive) and not call.distinct:
            continue
        if not isinstance(form, OfSet) or form.text not in MIN_MAX_FORMS or len(call.args) != 1:
            return None
        if call.type.spark not in _COMPARED and not call.type.spark.startswith("decimal"):
            return None
        found[number] = MIN_MAX_FORMS[form.text]
    return found or None


def key_names(node: Aggregate) -> list[str]:
    """The columns that tell groups apart."""
    return [f"k{i}" for i in range(len(node.keys))]


def value_names(node: Aggregate) -> list[str]:
    """The columns of a share that tell it from others of its group; none where shares are sums."""
    return [] if is_additive(node) else _Values.of(node).names()


def sum_types(node: Aggregate) -> dict[str, str]:
    """The columns of a share that are added up, with their Spark types."""
    types = {COUNT: "bigint"}
    if not is_additive(node):
        return types
    for i, call in enumerate(node.calls):
        types[f"s{i}_n"] = "bigint"
        types |= {f"s{i}_{j}": part.type for j, part in enumerate(_sums(call))}
    return types


def row_accumulators(node: Aggregate, zset: str) -> str:
    """One share per row of the Z-set."""
    values = _Values.of(node)
    columns = [f"{spark_sql(key)} AS {name}" for key, name in zip(node.keys, key_names(node), strict=True)]
    columns += [f"{spark_sql(expr)} AS {name}" for expr, name in zip(values.exprs, values.names(), strict=True)]
    rows = f"SELECT {', '.join([*columns, f'{WEIGHT} AS {COUNT}'])} FROM ({zset})"
    if not is_additive(node):
        return rows
    parts = [part for i, call in enumerate(node.calls) for part in _addends(call, i, values)]
    return f"SELECT {', '.join([*key_names(node), COUNT, *parts])} FROM ({rows})"


def sum_accumulators(node: Aggregate, rows: str) -> str:
    """One share for all that have the same group, and the same values where those count; zeros stay."""
    names = [*key_names(node), *value_names(node)]
    sums = [f"{sum_column(name, spark)} AS {name}" for name, spark in sum_types(node).items()]
    grouping = f" GROUP BY {', '.join(names)}" if names else ""
    return f"SELECT {', '.join([*names, *sums])} FROM ({rows}){grouping}"


def sum_column(name: str, spark: str) -> str:
    """Σ of a column of sums, in the type it has."""
    return f"CAST(coalesce(sum({name}), 0) AS {spark})"


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call at one end of a window: what is aggregated per group, by name, and the result over those names."""

    aggregated: dict[str, str]
    result: str


def call_result(node: Aggregate, number: int, side: str) -> CallResult:
    """Over shares whose sums have the prefix `side`, each set of values once."""
    call, values = node.calls[number], _Values.of(node)
    form, name = form_of(call), f"{side}_{number}"
    if is_additive(node):
        if not isinstance(form, Additive):
            raise AssertionError(f"{call.signature} is not a matter of sums")
        names = [f"{side}_s{number}_{j}" for j in range(len(_sums(call)))]
        return CallResult({}, form.result(call).format(*names, n=f"{side}_s{number}_n"))
    weight, counted = f"{side}_{COUNT}", _counted(call, values)
    match form:
        case Additive() if call.distinct:
            rows = _listed(call, values, weight, counted)
            return CallResult({name: rows}, sum_over_list(form, call, _once_each(call, name)))
        case Additive():
            return _summed(form, call, name, (values, f"if({counted}, {weight}, 0L)"))
        case OfSet():
            argument, *literals = (values.name(arg) for arg in call.args)
            value = f"if({weight} > 0 AND {counted}, {argument}, NULL)"
            return CallResult({name: form.text.format(value, *literals)}, name)
        case OfList():
            rows = _listed(call, values, weight, counted)
            if not call.distinct:
                rows = f"flatten(transform({rows}, x -> array_repeat(x, CAST(x.w AS int))))"
            text = form.result(call).format(list=_once_each(call, name))
            empty = form.on_empty or f"CAST(NULL AS {call.type.spark})"
            return CallResult({name: rows}, f"if(size({name}) = 0, {empty}, {text})")
        case _:
            assert_never(form)


@dataclass(frozen=True, slots=True)
class _Values:
    """What the calls of a node look at, each expression once, as columns v0, v1 …"""

    exprs: tuple[Expr, ...]

    @classmethod
    def of(cls, node: Aggregate) -> _Values:
        found = [expr for call in node.calls for expr in _looked_at(call)]
        return cls(tuple(dict.fromkeys(found)))

    def names(self) -> list[str]:
        return [f"v{i}" for i in range(len(self.exprs))]

    def name(self, expr: Expr) -> str:
        return spark_sql(expr) if isinstance(expr, Const) else f"v{self.exprs.index(expr)}"


def _looked_at(call: AggregateCall) -> list[Expr]:
    exprs = [*call.args, *call.distinct_by, *(o.expr for o in call.order)]
    exprs += () if call.filter is None else (call.filter,)
    return [expr for expr in exprs if not isinstance(expr, Const)]


def _counted(call: AggregateCall, values: _Values) -> str:
    """Whether a row counts for a call."""
    conditions = [] if call.filter is None else [f"coalesce({values.name(call.filter)}, false)"]
    if entry_of(call).skips_null:
        conditions += [f"{values.name(arg)} IS NOT NULL" for arg in call.args]
    return " AND ".join(conditions) or "true"


def _sums(call: AggregateCall) -> tuple[Sum, ...]:
    form = form_of(call)
    if not isinstance(form, Additive):
        raise AssertionError(f"{call.signature} is not a matter of sums")
    return form.sums(call)


def _addends(call: AggregateCall, number: int, values: _Values) -> list[str]:
    """What one row adds to the sums of a call."""
    times = f"if({_counted(call, values)}, {COUNT}, 0L)"
    args = [values.name(arg) for arg in call.args]
    added = [_addend(part, args, times) for part in _sums(call)]
    return [f"{times} AS s{number}_n", *(f"{text} AS s{number}_{j}" for j, text in enumerate(added))]


def _addend(part: Sum, args: Sequence[str], times: str) -> str:
    value = part.text.format(*args)
    if part.type == "bigint":
        added = f"CAST({value} AS bigint) * {times}"
    else:
        # Ten digits of weight: enough for any real multiplicity, and the product stays within 38 digits longer.
        added = f"CAST({value} * CAST({times} AS decimal(10,0)) AS {part.type})"
    return f"coalesce({added}, CAST(0 AS {part.type}))"


def _summed(form: Additive, call: AggregateCall, name: str, source: tuple[_Values, str]) -> CallResult:
    """A call of sums beside others that need the values."""
    values, times = source
    args = [values.name(arg) for arg in call.args]
    aggregated = {f"{name}_n": sum_column(times, "bigint")}
    for j, part in enumerate(_sums(call)):
        aggregated[f"{name}_{j}"] = sum_column(_addend(part, args, times), part.type)
    names = [key for key in aggregated if key != f"{name}_n"]
    return CallResult(aggregated, form.result(call).format(*names, n=f"{name}_n"))


def sum_over_list(form: Additive, call: AggregateCall, rows: str) -> str:
    """The same sums, over a list of rows that count."""
    sums = []
    for part in form.sums(call):
        value = part.text.format(*(f"x.a{i}" for i in range(len(call.args))))
        added = f"CAST(s + CAST({value} AS {part.type}) AS {part.type})"
        sums.append(f"aggregate({rows}, CAST(0 AS {part.type}), (s, x) -> {added})")
    return form.result(call).format(*sums, n=f"CAST(size({rows}) AS bigint)")


def _listed(call: AggregateCall, values: _Values, weight: str, counted: str) -> str:
    """The rows that count as a list of structs in the call's order; with DISTINCT equal arguments once.

    Where equal ones may look different it is sorted by what tells them apart, for `_once_each`.
    """
    fields = [f"{values.name(key)} AS d{i}" for i, key in enumerate(call.distinct_by)]
    fields += [f"{values.name(arg)} AS a{i}" for i, arg in enumerate(call.args)]
    fields += [f"{values.name(o.expr)} AS o{i}" for i, o in enumerate(call.order)]
    if not call.distinct:
        fields.append(f"{weight} AS w")
    collect = "collect_set" if call.distinct else "collect_list"
    rows = f"{collect}(if({weight} > 0 AND {counted}, struct({', '.join(fields)}), NULL))"
    if call.distinct_by:
        return f"array_sort({rows})"
    ties = len(call.args) if entry_of(call).any_of_equals else 0
    return f"array_sort({rows}{_comparator(call.order, ties)})"


def _once_each(call: AggregateCall, name: str) -> str:
    """The list of a call with the first of equal arguments only, in the call's order."""
    if not call.distinct_by:
        return name
    before = " AND ".join(f"get({name}, i - 1).d{k} <=> x.d{k}" for k in range(len(call.distinct_by)))
    once = f"filter({name}, (x, i) -> i = 0 OR NOT ({before}))"
    return f"array_sort({once}{_comparator(call.order)})" if call.order else once


def _comparator(order: Sequence[SortKey], ties: int = 0) -> str:
    """Nothing where all rows are compared by their arguments, ascending; `ties` arguments decide between equals."""
    if not order:
        return ""
    whens = []
    for i, key in enumerate(order):
        before, after = ("1", "-1") if key.descending else ("-1", "1")
        null_first, null_last = ("-1", "1") if key.nulls_first else ("1", "-1")
        whens += [
            f"WHEN l.o{i} IS NULL AND r.o{i} IS NOT NULL THEN {null_first}",
            f"WHEN l.o{i} IS NOT NULL AND r.o{i} IS NULL THEN {null_last}",
            f"WHEN l.o{i} < r.o{i} THEN {before}",
            f"WHEN l.o{i} > r.o{i} THEN {after}",
        ]
    for i in range(ties):
        whens += [f"WHEN l.a{i} < r.a{i} THEN -1", f"WHEN l.a{i} > r.a{i} THEN 1"]
    return f", (l, r) -> CASE {' '.join(whens)} ELSE 0 END"
