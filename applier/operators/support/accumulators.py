"""Input rows of an aggregate -> accumulators -> the results of its calls.

Each row of the input gives its group an *accumulator*: columns k0, k1 … (the group), `w` (its weight) and, depending on
the node's form, either what the row adds to every sum of every call, or the values that the calls read. Accumulators of
one group may be added up at any time, in any order and in any number of steps: the result is the same.
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
from applier.zset import WEIGHT, ZSet, sum_same_rows

COUNT_COLUMN = "w"
"""The weight of an accumulator."""


def is_additive(node: Aggregate) -> bool:
    """Whether all calls need only sums; otherwise they need the multiset of the values that they read."""
    return all(isinstance(form_of(call), Additive) and not call.distinct for call in node.calls)


MIN_MAX_FORMS = {"min({0})": False, "max({0})": True}
"""The forms of min and max; True for max."""

_COMPARABLE = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string")


def min_max_calls(node: Aggregate) -> dict[int, bool] | None:
    """Return the numbers of the min and max calls, True for max; None where other calls need values too.

    Only for types that Python and Spark order alike, because the driver compares them.
    """
    found = {}
    for number, call in enumerate(node.calls):
        form = form_of(call)
        if isinstance(form, Additive) and not call.distinct:
            continue
        if not isinstance(form, OfSet) or form.text not in MIN_MAX_FORMS or len(call.args) != 1:
            return None
        if call.type.spark not in _COMPARABLE and not call.type.spark.startswith("decimal"):
            return None
        found[number] = MIN_MAX_FORMS[form.text]
    return found or None


def key_names(node: Aggregate) -> list[str]:
    """Return the names of the key columns, which identify a group."""
    return [f"k{i}" for i in range(len(node.keys))]


def value_names(node: Aggregate) -> list[str]:
    """Return the names of the value columns, which distinguish accumulators of one group; none where all are sums."""
    return [] if is_additive(node) else _Values.of(node).names()


def accumulator_columns(node: Aggregate) -> list[str]:
    """Return the columns of an accumulator that are not added up: the keys and the values."""
    return [*key_names(node), *value_names(node)]


def sum_types(node: Aggregate) -> dict[str, str]:
    """Return the columns of an accumulator that are added up, with their Spark types."""
    types = {COUNT_COLUMN: "bigint"}
    if not is_additive(node):
        return types
    for i, call in enumerate(node.calls):
        types[f"s{i}_n"] = "bigint"
        types |= {f"s{i}_{j}": part.type for j, part in enumerate(_sums(call))}
    return types


def row_accumulators(node: Aggregate, zset: ZSet) -> ZSet:
    """Return one accumulator per row of the Z-set."""
    values = _Values.of(node)
    columns = [f"{spark_sql(key)} AS {name}" for key, name in zip(node.keys, key_names(node), strict=True)]
    columns += [f"{spark_sql(expr)} AS {name}" for expr, name in zip(values.exprs, values.names(), strict=True)]
    rows = f"SELECT {', '.join([*columns, f'{WEIGHT} AS {COUNT_COLUMN}'])} FROM ({zset.sql})"
    columns_of = tuple(accumulator_columns(node))
    if not is_additive(node):
        return ZSet(rows, columns_of)
    parts = [part for i, call in enumerate(node.calls) for part in _addend_columns(call, i, values)]
    return ZSet(f"SELECT {', '.join([*key_names(node), COUNT_COLUMN, *parts])} FROM ({rows})", columns_of)


def sum_accumulators(node: Aggregate, accumulators: ZSet) -> ZSet:
    """Add up the accumulators of each group, and of each set of values where calls need those; zeros stay."""
    sums = [f"{sum_column(name, spark)} AS {name}" for name, spark in sum_types(node).items()]
    return ZSet(sum_same_rows(accumulators.sql, grouped_columns(node), sums), tuple(accumulator_columns(node)))


def grouped_columns(node: Aggregate) -> list[tuple[str, str]]:
    """Return the columns of an accumulator that are not added up, with the Spark types of the values.

    A key needs none: equal keys look the same.
    """
    values = () if is_additive(node) else _Values.of(node).exprs
    return [
        *((name, "") for name in key_names(node)),
        *((name, value.type.spark) for name, value in zip(value_names(node), values, strict=True)),
    ]


def sum_column(name: str, spark: str) -> str:
    """Return Σ of a column of sums, in its own type."""
    return f"CAST(coalesce(sum({name}), 0) AS {spark})"


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call at one end of the LSN range: what is aggregated per group, by name, and the result over those names."""

    aggregated: dict[str, str]
    result: str


def call_result(node: Aggregate, number: int, side: str) -> CallResult:
    """Return the result of a call over accumulators whose sums have the prefix `side`, each set of values once."""
    call, values = node.calls[number], _Values.of(node)
    form, name = form_of(call), f"{side}_{number}"
    if is_additive(node):
        if not isinstance(form, Additive):
            raise AssertionError(f"{call.signature} is not computed from sums")
        names = [f"{side}_s{number}_{j}" for j in range(len(_sums(call)))]
        return CallResult({}, form.result(call).format(*names, n=f"{side}_s{number}_n"))
    weight, is_counted = f"{side}_{COUNT_COLUMN}", _is_counted_sql(call, values)
    match form:
        case Additive() if call.distinct:
            rows = _list_rows(call, values, weight, is_counted)
            return CallResult({name: rows}, sum_over_list(form, call, _drop_duplicates(call, name)))
        case Additive():
            return _sum_values(form, call, name, (values, f"if({is_counted}, {weight}, 0L)"))
        case OfSet():
            argument, *literals = (values.name(arg) for arg in call.args)
            value = f"if({weight} > 0 AND {is_counted}, {argument}, NULL)"
            return CallResult({name: form.text.format(value, *literals)}, name)
        case OfList():
            rows = _list_rows(call, values, weight, is_counted)
            if not call.distinct:
                rows = f"flatten(transform({rows}, x -> array_repeat(x, CAST(x.w AS int))))"
            text = form.result(call).format(list=_drop_duplicates(call, name))
            empty = form.on_empty or f"CAST(NULL AS {call.type.spark})"
            return CallResult({name: rows}, f"if(size({name}) = 0, {empty}, {text})")
        case _:
            assert_never(form)


@dataclass(frozen=True, slots=True)
class _Values:
    """The expressions that the calls of a node read, each once, as columns v0, v1 …"""

    exprs: tuple[Expr, ...]

    @classmethod
    def of(cls, node: Aggregate) -> _Values:
        found = [expr for call in node.calls for expr in _exprs_read(call)]
        return cls(tuple(dict.fromkeys(found)))

    def names(self) -> list[str]:
        return [f"v{i}" for i in range(len(self.exprs))]

    def name(self, expr: Expr) -> str:
        return spark_sql(expr) if isinstance(expr, Const) else f"v{self.exprs.index(expr)}"


def _exprs_read(call: AggregateCall) -> list[Expr]:
    exprs = [*call.args, *call.distinct_by, *(o.expr for o in call.order)]
    exprs += () if call.filter is None else (call.filter,)
    return [expr for expr in exprs if not isinstance(expr, Const)]


def _is_counted_sql(call: AggregateCall, values: _Values) -> str:
    """Return the condition that a row counts for a call."""
    conditions = [] if call.filter is None else [f"coalesce({values.name(call.filter)}, false)"]
    if entry_of(call).skips_null:
        conditions += [f"{values.name(arg)} IS NOT NULL" for arg in call.args]
    return " AND ".join(conditions) or "true"


def _sums(call: AggregateCall) -> tuple[Sum, ...]:
    form = form_of(call)
    if not isinstance(form, Additive):
        raise AssertionError(f"{call.signature} is not computed from sums")
    return form.sums(call)


def _addend_columns(call: AggregateCall, number: int, values: _Values) -> list[str]:
    """Return the columns that one row adds to the sums of a call."""
    times = f"if({_is_counted_sql(call, values)}, {COUNT_COLUMN}, 0L)"
    args = [values.name(arg) for arg in call.args]
    added = [_addend_sql(part, args, times) for part in _sums(call)]
    return [f"{times} AS s{number}_n", *(f"{text} AS s{number}_{j}" for j, text in enumerate(added))]


def _addend_sql(part: Sum, args: Sequence[str], times: str) -> str:
    value = part.text.format(*args)
    if part.type == "bigint":
        added = f"CAST({value} AS bigint) * {times}"
    else:
        # Ten digits of weight are enough for any real multiplicity, and leave more of the 38 digits to the product.
        added = f"CAST({value} * CAST({times} AS decimal(10,0)) AS {part.type})"
    return f"coalesce({added}, CAST(0 AS {part.type}))"


def _sum_values(form: Additive, call: AggregateCall, name: str, source: tuple[_Values, str]) -> CallResult:
    """Return a call that needs sums, in a node where other calls need the values."""
    values, times = source
    args = [values.name(arg) for arg in call.args]
    aggregated = {f"{name}_n": sum_column(times, "bigint")}
    for j, part in enumerate(_sums(call)):
        aggregated[f"{name}_{j}"] = sum_column(_addend_sql(part, args, times), part.type)
    names = [key for key in aggregated if key != f"{name}_n"]
    return CallResult(aggregated, form.result(call).format(*names, n=f"{name}_n"))


def sum_over_list(form: Additive, call: AggregateCall, rows: str) -> str:
    """Return the result of the same sums over a list of the rows that count."""
    sums = []
    for part in form.sums(call):
        value = part.text.format(*(f"x.a{i}" for i in range(len(call.args))))
        added = f"CAST(s + CAST({value} AS {part.type}) AS {part.type})"
        sums.append(f"aggregate({rows}, CAST(0 AS {part.type}), (s, x) -> {added})")
    return form.result(call).format(*sums, n=f"CAST(size({rows}) AS bigint)")


def _list_rows(call: AggregateCall, values: _Values, weight: str, is_counted: str) -> str:
    """Return the rows that count as a list of structs in the call's order; with DISTINCT equal arguments once.

    Where equal arguments may look different, the list is sorted by the expressions that compare them, for
    `_drop_duplicates`.
    """
    fields = [f"{values.name(key)} AS d{i}" for i, key in enumerate(call.distinct_by)]
    fields += [f"{values.name(arg)} AS a{i}" for i, arg in enumerate(call.args)]
    fields += [f"{values.name(o.expr)} AS o{i}" for i, o in enumerate(call.order)]
    if not call.distinct:
        fields.append(f"{weight} AS w")
    collect = "collect_set" if call.distinct else "collect_list"
    rows = f"{collect}(if({weight} > 0 AND {is_counted}, struct({', '.join(fields)}), NULL))"
    if call.distinct_by:
        return f"array_sort({rows})"
    ties = len(call.args) if entry_of(call).any_of_equals else 0
    return f"array_sort({rows}{_comparator(call.order, ties)})"


def _drop_duplicates(call: AggregateCall, name: str) -> str:
    """Return the list of a call with only the first of equal arguments, in the call's order."""
    if not call.distinct_by:
        return name
    before = " AND ".join(f"get({name}, i - 1).d{k} <=> x.d{k}" for k in range(len(call.distinct_by)))
    once = f"filter({name}, (x, i) -> i = 0 OR NOT ({before}))"
    return f"array_sort({once}{_comparator(call.order)})" if call.order else once


def _comparator(order: Sequence[SortKey], ties: int = 0) -> str:
    """Return the comparator of an ORDER BY; empty without one. The first `ties` arguments decide between equal rows."""
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
