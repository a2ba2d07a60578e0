"""Generates random plans and multisets, and evaluates plans in a few lines of plain Python: the reference result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, assert_never

from hypothesis import strategies as st

from applier.plan.expr import (
    AggregateCall,
    BoolOp,
    Call,
    Col,
    Const,
    Expr,
    IsNull,
    Logic,
    ValueType,
)
from applier.plan.nodes import (
    Aggregate,
    Field,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    SetReturningFunction,
    TableFunction,
    TopK,
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    fields,
)
from applier.plan.sort import SortKey
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode, WindowCall, WindowFunction
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, TableId

Row = tuple[Any, ...]
Bag = Counter[Row]

INT = ValueType.of_column(PgType(23, -1, "int4", "integer"))
BIG = ValueType.of_column(PgType(20, -1, "int8", "bigint"))
TEXT = ValueType.of_column(PgType(25, -1, "text", "text"))
BOOL = ValueType.of_column(PgType(16, -1, "bool", "boolean"))

TABLES = ("a", "b")
COLUMNS = tuple(Column(name, INT.pg) for name in ("x", "y"))

values = st.one_of(st.none(), st.integers(0, 3))
rows = st.tuples(values, values)
bags = st.lists(rows, max_size=8).map(Counter)


def scan(table: str) -> Scan:
    return Scan(TableId("public", table), TABLES.index(table) + 1, ("x", "y"), (Field(INT, True),) * 2, None)


def less(left: Expr, right: Expr) -> Expr:
    return Call("int4lt(int4,int4)", (left, right), BOOL)


def _columns(node: Node, of: ValueType) -> list[Col]:
    return [Col(i, f.type, f.nullable) for i, f in enumerate(fields(node)) if f.type == of]


@st.composite
def predicates(draw: st.DrawFn, node: Node) -> Expr:
    columns = _columns(node, INT)
    if not columns:
        return IsNull(Col(0, fields(node)[0].type), draw(st.booleans()), BOOL)
    column = draw(st.sampled_from(columns))
    others: list[Expr] = [*columns, Const(draw(st.integers(0, 3)), INT)]
    simple = less(column, draw(st.sampled_from(others)))
    match draw(st.integers(0, 3)):
        case 0:
            return simple
        case 1:
            return BoolOp(Logic.NOT, (simple,), BOOL)
        case 2:
            return BoolOp(Logic.OR, (simple, IsNull(column, False, BOOL)), BOOL)
        case _:
            return IsNull(column, draw(st.booleans()), BOOL)


@st.composite
def aggregates(draw: st.DrawFn, child: Node) -> Node:
    columns = _columns(child, INT)
    keys = tuple(draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))) if columns else ()
    calls = [AggregateCall("count()", (), BIG, nullable=False)]
    if columns:
        argument, other = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
        condition = draw(st.one_of(st.none(), predicates(child)))
        order = (SortKey(argument, draw(st.booleans()), draw(st.booleans())),)
        known = [
            AggregateCall("count(any)", (argument,), BIG, False, draw(st.booleans()), condition),
            AggregateCall("sum(int4)", (argument,), BIG, True, draw(st.booleans()), condition),
            AggregateCall("min(int4)", (other,), INT, filter=condition),
            AggregateCall("max(int4)", (argument,), INT),
            AggregateCall("array_agg(anynonarray)", (argument,), TEXT, True, draw(st.booleans()), condition, order),
        ]
        calls += draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
    return Aggregate(child, keys, tuple(calls))


@st.composite
def unions(draw: st.DrawFn, one: Node, other: Node) -> Node:
    """Draw a union of both sides, reduced to one integer column each, or whole when their columns are alike."""
    if [f.type for f in fields(one)] == [f.type for f in fields(other)]:
        return UnionAll((one, other))
    left, right = _columns(one, INT), _columns(other, INT)
    if not left or not right:
        return one
    return UnionAll((Project(one, (draw(st.sampled_from(left)),)), Project(other, (draw(st.sampled_from(right)),))))


@st.composite
def top_rows(draw: st.DrawFn, child: Node) -> Node:
    """Draw an order over some columns and then all others: ties are between equal rows only."""
    columns = [Col(i, f.type, f.nullable) for i, f in enumerate(fields(child))]
    keys = draw(st.lists(st.sampled_from(columns), max_size=1))
    ties = draw(st.booleans())
    order = draw(st.permutations([c for c in columns if c not in keys]))
    if ties:
        order = order[:1]
    sorts = tuple(SortKey(c, draw(st.booleans()), draw(st.booleans())) for c in order)
    offset = 0 if ties else draw(st.integers(0, 2))
    return TopK(child, tuple(keys), sorts, draw(st.one_of(st.none(), st.integers(0, 3))), offset, ties)


@st.composite
def windows(draw: st.DrawFn, child: Node) -> Node:
    """Draw functions of peers and of positions over an order of all columns: ties are between equal rows only."""
    every = [Col(i, f.type, f.nullable) for i, f in enumerate(fields(child))]
    keys = tuple(draw(st.lists(st.sampled_from(every), max_size=1)))
    order = draw(st.permutations([c for c in every if c not in keys]))
    sorts = tuple(SortKey(c, draw(st.booleans()), draw(st.booleans())) for c in order)
    ends = [Bound(BoundKind.CURRENT), Bound(BoundKind.LAST), Bound(BoundKind.FOLLOWING, Const(1, BIG))]
    start = Bound(BoundKind.PRECEDING, Const(draw(st.integers(0, 2)), BIG))
    frame = Frame(draw(st.sampled_from([FrameMode.ROWS, FrameMode.GROUPS])), start, draw(st.sampled_from(ends)))
    argument = draw(st.sampled_from(every))
    calls = [
        WindowCall(WindowFunction.RANK, (), BIG, keys, sorts),
        WindowCall(
            WindowFunction.AGGREGATE, (), BIG, keys, sorts, frame, AggregateCall("count(any)", (argument,), BIG)
        ),
        WindowCall(WindowFunction.LAG, (argument, Const(1, INT)), argument.type, keys, sorts),
        WindowCall(WindowFunction.RANK, (), BIG, (), sorts[:1]),
    ]
    drawn = tuple(draw(st.lists(st.sampled_from(calls), min_size=1, unique=True)))
    return Window(child, keys if calls[-1] not in drawn else (), drawn)


@st.composite
def plans(draw: st.DrawFn, depth: int = 3) -> Node:
    if depth == 0:
        return scan(draw(st.sampled_from(TABLES)))
    kind = draw(
        st.sampled_from(
            ["scan", "filter", "project", "join", "outer", "semi", "aggregate", "repeat", "union", "top", "window"]
        )
    )
    child = draw(plans(depth=depth - 1))
    match kind:
        case "filter":
            return Filter(child, draw(predicates(child)))
        case "project":
            width = len(fields(child))
            picked = draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=3))
            return Project(child, tuple(Col(i, fields(child)[i].type, fields(child)[i].nullable) for i in picked))
        case "join" | "outer" | "semi":
            other = draw(plans(depth=0))
            left, right = _columns(child, INT), _columns(other, INT)
            pairs = [(draw(st.sampled_from(left)), draw(st.sampled_from(right)))] if left and right else []
            residual = draw(st.one_of(st.none(), predicates(Join(child, other, (), None))))
            if kind == "join":
                return Join(child, other, tuple(pairs), residual)
            one, two = (child, other) if draw(st.booleans()) else (other, child)
            if one is other:
                pairs = [(right, left) for left, right in pairs]
                residual = draw(st.one_of(st.none(), predicates(Join(one, two, (), None))))
            node = OuterJoin if kind == "outer" else SemiJoin
            return node(one, two, tuple(pairs), residual, draw(st.booleans()))
        case "aggregate":
            return draw(aggregates(child))
        case "repeat":
            counted = Aggregate(child, tuple(_columns(child, INT)[:2]), (AggregateCall("count()", (), BIG, False),))
            return Repeat(counted, Col(len(fields(counted)) - 1, BIG, False))
        case "window":
            return draw(windows(child))
        case "top":
            return draw(top_rows(child))
        case "union":
            return draw(unions(child, draw(plans(depth=depth - 1))))
        case _:
            return child


def evaluate(node: Node, tables: dict[str, Bag]) -> Bag:
    """Return the node's result over multisets, as SQL defines it."""
    match node:
        case Scan():
            return Counter(tables[node.table.name])
        case WorkTable():
            return Counter(tables[f"working {node.number}"])
        case Recursion():
            return _recursion(node, tables)
        case Values():
            return Counter(tuple(value(e, ()) for e in row) for row in node.rows)
        case Unnest():
            return _unfold(node, evaluate(node.input, tables))
        case Filter():
            return Counter({r: n for r, n in evaluate(node.input, tables).items() if value(node.predicate, r) is True})
        case Repeat():
            repeated = ((r, n * value(node.times, r)) for r, n in evaluate(node.input, tables).items())
            return Counter({r: n for r, n in repeated if n})
        case Project():
            return _map(evaluate(node.input, tables), lambda r: tuple(value(e, r) for e in node.exprs))
        case Join():
            return _join(node, evaluate(node.left, tables), evaluate(node.right, tables))
        case OuterJoin():
            return _outer_join(node, evaluate(node.left, tables), evaluate(node.right, tables))
        case SemiJoin():
            left, right = evaluate(node.left, tables), evaluate(node.right, tables)
            return Counter({a: n for a, n in left.items() if any(_is_match(node, a, b) for b in right) != node.anti})
        case Aggregate():
            return _aggregate(node, evaluate(node.input, tables))
        case Window():
            return over_windows(node, evaluate(node.input, tables))
        case TopK():
            return _top_k(node, evaluate(node.input, tables))
        case UnionAll():
            out: Bag = Counter()
            for branch in node.branches:
                out += evaluate(branch, tables)
            return out
        case _:
            assert_never(node)


def _recursion(node: Recursion, tables: dict[str, Bag]) -> Bag:
    working = evaluate(node.base, tables)
    working = Counter(set(working)) if node.distinct else working
    found = Counter(working)
    while True:
        produced = evaluate(node.step, tables | {f"working {node.number}": working})
        working = Counter(set(produced) - set(found)) if node.distinct else produced
        found += working
        if not working:
            return found


def _unfold(node: Unnest, bag: Bag) -> Bag:
    out: Bag = Counter()
    for row, n in bag.items():
        found = list(zip_longest(*(_members(made, row) for made in node.sets)))
        members: list[Row] = [(*m, i + 1) if node.ordinality else m for i, m in enumerate(found)]
        nothing = (None,) * (len(node.sets) + node.ordinality)
        for member in members or ([nothing] if node.outer else []):
            out[row + member] += n
    return out


def _members(made: TableFunction, row: Row) -> list[Any]:
    args = [value(arg, row) for arg in made.args]
    if made.function is not SetReturningFunction.SERIES:
        return args
    first, last, step = [*args, 1][:3]
    return list(range(first, last + (1 if step > 0 else -1), step)) if None not in (first, last, step) else []


def _map(bag: Bag, function: Callable[[Row], Row]) -> Bag:
    out: Bag = Counter()
    for row, n in bag.items():
        out[function(row)] += n
    return out


def _is_match(node: Join | OuterJoin | SemiJoin, a: Row, b: Row) -> bool:
    equal = all((x := value(le, a)) is not None and x == value(re, b) for le, re in node.equi)
    return equal and (node.residual is None or value(node.residual, a + b) is True)


def _outer_join(node: OuterJoin, left: Bag, right: Bag) -> Bag:
    out = _join(node, left, right)
    no_left, no_right = (None,) * len(fields(node.left)), (None,) * len(fields(node.right))
    for a, n in left.items():
        if not any(_is_match(node, a, b) for b in right):
            out[a + no_right] += n
    for b, m in right.items() if node.full else ():
        if not any(_is_match(node, a, b) for a in left):
            out[no_left + b] += m
    return out


def _join(node: Join | OuterJoin, left: Bag, right: Bag) -> Bag:
    out: Bag = Counter()
    for a, n in left.items():
        for b, m in right.items():
            if _is_match(node, a, b):
                out[a + b] += n * m
    return out


def partitions(keys: tuple[Expr, ...], bag: Bag) -> list[list[Row]]:
    found: dict[Row, list[Row]] = {}
    for row in bag.elements():
        found.setdefault(tuple(value(k, row) for k in keys), []).append(row)
    return list(found.values())


def sort_value(order: tuple[SortKey, ...], row: Row) -> tuple[Any, ...]:
    """Return a value that compares by the order: NULLs first or last, then the value, negated if descending."""
    found = []
    for key in order:
        v = value(key.expr, row)
        null = (v is None) != key.nulls_first
        found.append((null, 0 if v is None else _falling(v) if key.descending else v))
    return tuple(found)


def _falling(v: Any) -> Any:
    return (*(-ord(c) for c in v), 1) if isinstance(v, str) else -v


def _top_k(node: TopK, bag: Bag) -> Bag:
    out: Bag = Counter()
    for members in partitions(node.keys, bag):
        members.sort(key=lambda row: sort_value(node.order, row))
        last = len(members) if node.limit is None else node.offset + node.limit
        selected = members[node.offset : last]
        if node.ties and selected:
            selected += [r for r in members[last:] if sort_value(node.order, r) == sort_value(node.order, selected[-1])]
        out.update(selected)
    return out


def over_windows(node: Window, bag: Bag) -> Bag:
    every = sorted(bag.elements(), key=repr)
    values: list[Row] = [()] * len(every)
    for call in node.calls:
        found: dict[Row, list[int]] = {}
        for i, row in enumerate(every):
            found.setdefault(tuple(value(k, row) for k in call.partition), []).append(i)
        for partition in found.values():
            partition.sort(key=lambda i: sort_value(call.order, every[i]))
            members = [every[i] for i in partition]
            places = [sort_value(call.order, row) for row in members]
            for place, i in enumerate(partition):
                values[i] += (_window_value(call, members, places, place),)
    return Counter(row + own for row, own in zip(every, values, strict=True))


def _window_value(call: WindowCall, members: list[Row], places: list[tuple[Any, ...]], i: int) -> Any:
    match call.function:
        case WindowFunction.ROW_NUMBER:
            return i + 1
        case WindowFunction.RANK:
            return places.index(places[i]) + 1
        case WindowFunction.LAG:
            return value(call.args[0], members[i - 1]) if i else None
    assert call.aggregate is not None
    return _call(call.aggregate, [members[j] for j in _in_frame(call, places, i)])


def _in_frame(call: WindowCall, places: list[tuple[Any, ...]], i: int) -> list[int]:
    """Return the rows in the frame of row i, counted from it by rows or by groups of peers."""
    frame = call.frame
    assert frame is not None
    groups = sorted(set(places))
    at = list(range(len(places))) if frame.mode is FrameMode.ROWS else [groups.index(p) for p in places]
    low, high = (_reach(bound, len(places)) for bound in (frame.start, frame.end))
    inside = [j for j in range(len(places)) if low <= at[j] - at[i] <= high]
    return [j for j in inside if j != i or frame.exclude is not Exclude.CURRENT]


def _reach(bound: Bound, far: int) -> int:
    size = bound.offset.value if bound.offset is not None else 0
    assert isinstance(size, int)
    match bound.kind:
        case BoundKind.FIRST:
            return -far
        case BoundKind.PRECEDING:
            return -size
        case BoundKind.LAST:
            return far
        case _:
            return size


def _aggregate(node: Aggregate, bag: Bag) -> Bag:
    groups: dict[Row, list[Row]] = {} if node.keys else {(): []}
    for row in bag.elements():
        groups.setdefault(tuple(value(k, row) for k in node.keys), []).append(row)
    return Counter(key + tuple(_call(c, members) for c in node.calls) for key, members in groups.items())


def _call(call: AggregateCall, members: list[Row]) -> Any:
    counted = [row for row in members if call.filter is None or value(call.filter, row) is True]
    if not call.args:
        return len(counted)
    for order in reversed(call.order):
        counted.sort(key=lambda row: _place(order, value(order.expr, row)))
    given = [value(call.args[0], row) for row in counted]
    if call.distinct:
        given = list(dict.fromkeys(given))
    present = [v for v in given if v is not None]
    match call.signature.partition("(")[0]:
        case "count":
            return len(present)
        case "sum":
            return sum(present) if present else None
        case "min" | "max" as function:
            return (min if function == "min" else max)(present, default=None)
        case "array_agg":
            return "{" + ",".join("NULL" if v is None else str(v) for v in given) + "}" if given else None
        case function:
            raise AssertionError(f"the reference does not know {function}")


def _place(order: SortKey, key: Any) -> tuple[bool, int]:
    if key is None:
        return not order.nulls_first, 0
    return order.nulls_first, -key if order.descending else key


def value(expr: Expr, row: Row) -> Any:
    match expr:
        case Col():
            return row[expr.ordinal]
        case Const():
            return expr.value
        case Call(signature="int4lt(int4,int4)"):
            a, b = (value(arg, row) for arg in expr.args)
            return None if a is None or b is None else a < b
        case IsNull():
            return (value(expr.arg, row) is None) != expr.negated
        case BoolOp(logic=Logic.NOT):
            inner = value(expr.args[0], row)
            return None if inner is None else not inner
        case BoolOp():
            truths = [value(arg, row) for arg in expr.args]
            decisive = expr.logic is Logic.OR
            return decisive if decisive in truths else None if None in truths else not decisive
        case _:
            raise AssertionError(f"the reference does not know {expr}")
