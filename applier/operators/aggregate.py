"""Δ(γ_k,f(A)) = γ(A'_K) − γ(A_K), where K = the groups ΔA touches and A' = A + ΔA.

One pass over A_K + ΔA computes both: each row carries its weight before the window (0 for rows of ΔA) and after it.

    acc(g) = Σ w·f(row)          for additive aggregates, straight from these rows
    net(g, values) = Σ w         first, where the multiset itself is asked for (min, string_agg, DISTINCT …)

    emit −(g, result) if n > 0, +(g, result') if n' > 0, where n = Σ w counts the group's rows

Without keys the one group always exists. Reads the input's trace before the window, restricted to K; keeps no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from applier.expressions.aggregate_entry import Additive, Form, OfList, OfSet
from applier.expressions.aggregates import AGGREGATES
from applier.expressions.emit import spark_sql
from applier.plan.expr import AggregateCall, Const, Expr, SortKey
from applier.plan.nodes import Aggregate
from applier.zset import WEIGHT, column_name, column_names, select

OLD, NEW = "o", "n"
"""Names of a window's ends, and prefixes of what belongs to them."""


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
    exprs = [*call.args, *(o.expr for o in call.order), *(() if call.filter is None else (call.filter,))]
    return [expr for expr in exprs if not isinstance(expr, Const)]


def _form(call: AggregateCall) -> Form:
    return AGGREGATES[call.signature].form_of(call.args)


def _netted(node: Aggregate) -> bool:
    return any(call.distinct or not isinstance(_form(call), Additive) for call in node.calls)


def _rows(node: Aggregate, source: str, weights: dict[str, str]) -> str:
    """Each input row's group, the values asked for, and its weight at each end of the window."""
    values = _Values.of(node)
    columns = [f"{spark_sql(key)} AS k{i}" for i, key in enumerate(node.keys)]
    columns += [f"{spark_sql(expr)} AS {name}" for expr, name in zip(values.exprs, values.names(), strict=True)]
    columns += [f"{weight} AS {side}_w" for side, weight in weights.items()]
    return f"SELECT {', '.join(columns)} FROM {source}"


def _counted(call: AggregateCall, values: _Values) -> str:
    """Whether a row counts for a call."""
    conditions = [] if call.filter is None else [f"coalesce({values.name(call.filter)}, false)"]
    if AGGREGATES[call.signature].skips_null:
        conditions += [f"{values.name(arg)} IS NOT NULL" for arg in call.args]
    return " AND ".join(conditions) or "true"


@dataclass(frozen=True, slots=True)
class _Parts:
    """A call at one end of the window: what is aggregated per group, by name, and the result over those names."""

    aggregated: dict[str, str]
    result: str


def _parts(call: AggregateCall, number: int, values: _Values, side: str) -> _Parts:
    form = _form(call)
    name, weight, counted = f"{side}_{number}", f"{side}_w", _counted(call, values)
    args = [values.name(arg) for arg in call.args]
    match form:
        case Additive() if not call.distinct:
            return _additive(form, call, name, [f"if({counted}, {weight}, 0L)", *args])
        case OfSet():
            value = f"if({weight} > 0 AND {counted}, {args[0]}, NULL)"
            return _Parts({name: form.text.format(value)}, name)
        case Additive():
            return _distinct(form, call, name, _listed(call, values, weight, counted))
        case OfList():
            rows = _listed(call, values, weight, counted)
            if not call.distinct:
                rows = f"flatten(transform({rows}, x -> array_repeat(x, CAST(x.w AS int))))"
            text = form.result(call).format(list=name)
            return _Parts({name: rows}, f"if(size({name}) = 0, CAST(NULL AS {call.type.spark}), {text})")
        case _:
            assert_never(form)


def _additive(form: Additive, call: AggregateCall, name: str, texts: Sequence[str]) -> _Parts:
    times, *args = texts
    aggregated = {f"{name}_n": f"CAST(coalesce(sum({times}), 0L) AS bigint)"}
    names = []
    for i, part in enumerate(form.sums(call)):
        value = part.text.format(*args)
        if part.type == "bigint":
            added = f"CAST({value} AS bigint) * {times}"
        else:
            # Ten digits of weight: enough for any real multiplicity, and the product stays within 38 digits longer.
            added = f"CAST({value} * CAST({times} AS decimal(10,0)) AS {part.type})"
        zero = f"CAST(0 AS {part.type})"
        aggregated[f"{name}_{i}"] = f"CAST(coalesce(sum(coalesce({added}, {zero})), {zero}) AS {part.type})"
        names.append(f"{name}_{i}")
    return _Parts(aggregated, form.result(call).format(*names, n=f"{name}_n"))


def _distinct(form: Additive, call: AggregateCall, name: str, rows: str) -> _Parts:
    """The same sums, over the list of distinct arguments."""
    sums = []
    for part in form.sums(call):
        value = part.text.format(*(f"x.a{i}" for i in range(len(call.args))))
        added = f"CAST(s + CAST({value} AS {part.type}) AS {part.type})"
        sums.append(f"aggregate({name}, CAST(0 AS {part.type}), (s, x) -> {added})")
    return _Parts({name: rows}, form.result(call).format(*sums, n=f"CAST(size({name}) AS bigint)"))


def _listed(call: AggregateCall, values: _Values, weight: str, counted: str) -> str:
    """The rows that count as a list of structs in the call's order; with DISTINCT equal arguments once."""
    fields = [f"{values.name(arg)} AS a{i}" for i, arg in enumerate(call.args)]
    fields += [f"{values.name(o.expr)} AS o{i}" for i, o in enumerate(call.order)]
    if not call.distinct:
        fields.append(f"{weight} AS w")
    collect = "collect_set" if call.distinct else "collect_list"
    rows = f"{collect}(if({weight} > 0 AND {counted}, struct({', '.join(fields)}), NULL))"
    return f"array_sort({rows}{_comparator(call.order)})"


def _comparator(order: Sequence[SortKey]) -> str:
    """Nothing where all rows are compared by their arguments, ascending."""
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
    return f", (l, r) -> CASE {' '.join(whens)} ELSE 0 END"


def _groups(node: Aggregate, rows: str, sides: tuple[str, ...]) -> str:
    """One row per group: for each end of the window whether the group is there, and every result."""
    values, keys = _Values.of(node), [f"k{i}" for i in range(len(node.keys))]
    if _netted(node):
        columns = [*keys, *values.names()]
        sums = [f"sum({side}_w) AS {side}_w" for side in sides]
        grouping = f" GROUP BY {', '.join(columns)}" if columns else ""
        rows = f"SELECT {', '.join([*columns, *sums])} FROM ({rows}){grouping}"
    parts = {(side, i): _parts(call, i, values, side) for side in sides for i, call in enumerate(node.calls)}
    aggregated = [f"coalesce(sum({side}_w), 0L) AS {side}_rows" for side in sides]
    aggregated += [f"{text} AS {name}" for part in parts.values() for name, text in part.aggregated.items()]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    summed = f"SELECT {', '.join([*keys, *aggregated])} FROM ({rows}){grouping}"
    results = [f"{_exists(node, side)} AS {side}_there" for side in sides]
    results += [f"{part.result} AS {side}_r{i}" for (side, i), part in parts.items()]
    return f"SELECT {', '.join([*keys, *results])} FROM ({summed})"


def _exists(node: Aggregate, side: str) -> str:
    return f"{side}_rows > 0" if node.keys else "true"


def snapshot_aggregate(node: Aggregate, zset: str) -> str:
    """γ of a whole Z-set."""
    groups = _groups(node, _rows(node, f"({zset})", {NEW: WEIGHT}), (NEW,))
    keys = [f"k{i}" for i in range(len(node.keys))]
    results = [f"{NEW}_r{i}" for i in range(len(node.calls))]
    return select([*keys, *results], "1L", f"({groups}) WHERE {NEW}_there")


def _touched(node: Aggregate, before: str, delta: str, *, small: bool) -> str:
    """FROM clause: rows of A in the groups ΔA touches. NULL is a group like any other, so comparison is null-safe."""
    if not node.keys:
        return f"({before})"
    names = [f"q{i}" for i in range(len(node.keys))]
    wanted = ", ".join(f"{spark_sql(key)} AS {name}" for key, name in zip(node.keys, names, strict=True))
    same = " AND ".join(f"{spark_sql(key)} <=> {name}" for key, name in zip(node.keys, names, strict=True))
    hint = "/*+ BROADCAST(q) */ " if small else ""
    return f"(SELECT {hint}b.* FROM ({before}) b LEFT SEMI JOIN (SELECT {wanted} FROM ({delta})) q ON {same})"


def delta_aggregate(node: Aggregate, before: str, delta: str, *, small: bool) -> str:
    """γ(A + ΔA) − γ(A) on the groups ΔA touches; what stays the same is left out."""
    touched = _touched(node, before, delta, small=small)
    rows = " UNION ALL ".join(
        (
            _rows(node, touched, {OLD: WEIGHT, NEW: WEIGHT}),
            _rows(node, f"({delta})", {OLD: "0L", NEW: WEIGHT}),
        )
    )
    groups = _groups(node, rows, (OLD, NEW))
    first, count = len(node.keys), len(node.calls)
    results = {side: [f"{side}_r{i}" for i in range(count)] for side in (OLD, NEW)}
    same = " AND ".join(f"{old} <=> {new}" for old, new in zip(results[OLD], results[NEW], strict=True)) or "true"
    names = ["there", *(column_name(first + i) for i in range(count)), WEIGHT]
    signed = [", ".join([f"{side}_there", *results[side], weight]) for side, weight in ((OLD, "-1L"), (NEW, "1L"))]
    # Two rows per group out of one: the groups are computed once.
    columns = [f"k{i} AS {column_name(i)}" for i in range(first)]
    columns.append(f"stack(2, {signed[0]}, {signed[1]}) AS ({', '.join(names)})")
    changed = f"NOT ({OLD}_there <=> {NEW}_there AND {same})"
    pairs = f"SELECT {', '.join(columns)} FROM ({groups}) WHERE {changed}"
    return select(column_names(first + count), WEIGHT, f"({pairs}) WHERE there")
