"""Window functions -> Window nodes, one per partition and order.

Below them a projection computes the partition keys, the sort keys, the arguments and the selected columns, and nothing
else: rows that are equal in all of these are the same row for the window.

A function that depends on a row's exact position is accepted only when the order has no ties. A function that has the
same result for all peers is always accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from applier.functions.aggregates.aggregate_entry import OfList
from applier.functions.aggregates.aggregates import form_of
from applier.functions.entry import UnsuitableArguments
from applier.operators.support.listed_frames import is_computable
from applier.plan.expr import Col, Const, Expr, ValueType, columns_read, renumber
from applier.plan.keys import identifies_rows
from applier.plan.nodes import Node, Window, fields
from applier.plan.sort import fixed_columns
from applier.plan.window import OF_FRAME_ROWS, OF_PEERS, OF_PLACES, Frame, FrameMode, WindowCall, WindowFunction
from applier.sql.bind.aggregates import plan_aggregate
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.frames import bind_frame
from applier.sql.bind.group_key import group_key
from applier.sql.bind.sort_key import sort_key
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope
from applier.sql.typing.unify import unify

_FUNCTIONS = {
    "row_number()": WindowFunction.ROW_NUMBER,
    "rank()": WindowFunction.RANK,
    "dense_rank()": WindowFunction.DENSE_RANK,
    "percent_rank()": WindowFunction.PERCENT_RANK,
    "cume_dist()": WindowFunction.CUME_DIST,
    "ntile(int4)": WindowFunction.NTILE,
    "lag(anyelement)": WindowFunction.LAG,
    "lag(anyelement,int4)": WindowFunction.LAG,
    "lag(anyelement,int4,anyelement)": WindowFunction.LAG,
    "lag(anycompatible,int4,anycompatible)": WindowFunction.LAG,
    "lead(anyelement)": WindowFunction.LEAD,
    "lead(anyelement,int4)": WindowFunction.LEAD,
    "lead(anyelement,int4,anyelement)": WindowFunction.LEAD,
    "lead(anycompatible,int4,anycompatible)": WindowFunction.LEAD,
    "first_value(anyelement)": WindowFunction.FIRST_VALUE,
    "last_value(anyelement)": WindowFunction.LAST_VALUE,
    "nth_value(anyelement,int4)": WindowFunction.NTH_VALUE,
}
_RESULT_TYPES = {
    WindowFunction.ROW_NUMBER: "bigint",
    WindowFunction.RANK: "bigint",
    WindowFunction.DENSE_RANK: "bigint",
    WindowFunction.PERCENT_RANK: "double",
    WindowFunction.CUME_DIST: "double",
    WindowFunction.NTILE: "int",
}
_LITERAL_ARGUMENT = {
    WindowFunction.NTILE: 0,
    WindowFunction.LAG: 1,
    WindowFunction.LEAD: 1,
    WindowFunction.NTH_VALUE: 1,
}
"""The index of the argument that is a count or an offset, and must be a literal."""


def window_inputs(query: query_tree.Query, targets: Sequence[tree.Expression]) -> Iterator[int]:
    """Yield the indexes of the targets that partition or order the windows which these targets use."""
    used = {call.window for target in targets for call in _window_calls(target)}
    for clause in (w for w in query.windows if w.number in used):
        for reference in (*(g.reference for g in clause.partition), *(s.reference for s in clause.order)):
            found = [i for i, t in enumerate(query.targets) if t.group_reference == reference]
            if len(found) != 1:
                raise unknown("a window that names no target")
            yield found[0]


def bind_windows(
    query: query_tree.Query,
    targets: Sequence[tree.Expression],
    below: tuple[Node, Scope],
    flatten: Callable[[tree.Expression], tree.Expression],
    catalog: CatalogSnapshot,
) -> BoundQuery:
    """Bind the targets over a node, with the Window nodes that they need in between."""
    node, scope = below
    compiler = ExpressionCompiler(catalog, scope)
    calls = list(dict.fromkeys(c for t in targets for c in _window_calls(t)))
    if not calls:
        return BoundQuery(node, tuple(compiler.compile(t) for t in targets))
    planner = _CallPlanner(query, compiler, flatten, catalog)
    planned = [planner.plan(call) for call in calls]
    width = len(fields(node))
    ordinals = {call: width + i for i, call in enumerate(calls)}

    def resolve(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.WindowFunc) and expression in ordinals:
            call = planned[ordinals[expression] - width]
            return Col(ordinals[expression], call.type, call.nullable)
        return scope(expression)

    selected = [ExpressionCompiler(catalog, resolve).compile(t) for t in targets]
    passed_through = dict.fromkeys(o for e in selected for o in columns_read(e) if o < width)
    inputs = list(
        dict.fromkeys(
            [*(bound_columns(node)[o] for o in passed_through), *(e for c in planned for e in _computed_inputs(c))]
        )
    )
    ordinal_of = {e: i for i, e in enumerate(inputs)}
    base = project_columns(node, tuple(inputs))
    rebased = [c.over(lambda e: e if isinstance(e, Const) else bound_columns(base)[ordinal_of[e]]) for c in planned]
    _check_deterministic(base, rebased, calls)
    result, outputs = _stack_windows(base, rebased)
    new_ordinals = {o: ordinal_of[bound_columns(node)[o]] for o in passed_through} | {
        width + i: o for i, o in outputs.items()
    }
    return BoundQuery(result, tuple(renumber(e, new_ordinals.__getitem__) for e in selected))


def _window_calls(expression: tree.Expression) -> Iterator[tree.WindowFunc]:
    if isinstance(expression, tree.WindowFunc):
        yield expression
        return
    for argument in walk.arguments(expression):
        yield from _window_calls(argument)


def _computed_inputs(call: WindowCall) -> Iterator[Expr]:
    """Yield every expression that the call needs from the node below; literals are not computed there."""
    return (expr for expr in call.inputs() if not isinstance(expr, Const))


def _stack_windows(node: Node, calls: Sequence[WindowCall]) -> tuple[Node, dict[int, int]]:
    """Stack as few Window nodes as possible without reading more rows; also return the ordinal of each call's result.

    A call without a partition reads every row, and then the other calls are computed with it. Otherwise calls with the
    same partition are computed together.
    """
    partitions = [frozenset(c.partition) for c in calls]
    together = not all(partitions)
    outputs: dict[int, int] = {}
    for partition in [frozenset[Expr]()] if together else list(dict.fromkeys(partitions)):
        members = [i for i, keys_of_call in enumerate(partitions) if together or keys_of_call == partition]
        outputs |= {i: len(fields(node)) + n for n, i in enumerate(members)}
        keys = () if together else calls[members[0]].partition
        node = Window(node, keys, tuple(calls[i] for i in members))
    return node, outputs


def _check_deterministic(node: Node, calls: Sequence[WindowCall], origins: Sequence[tree.WindowFunc]) -> None:
    """Refuse a call whose result is not deterministic because of ties.

    Each call is checked over the results of the calls before it: two different numberings of equal rows do not agree.
    """
    specs = dict.fromkeys((c.partition, c.order) for c in calls)
    for partition, order in specs:
        same_window = [
            (c, o) for c, o in zip(calls, origins, strict=True) if (c.partition, c.order) == (partition, order)
        ]
        for call, origin in same_window:
            if not _is_deterministic(node, call):
                construct = f"the window function {call.name} over an order that may have ties"
                hint = "add the primary key to the ORDER BY of the window"
                raise Refused(Reason.ORDER, construct, hint=hint, token=origin.at)
        node = Window(node, (), tuple(call for call, _ in same_window))


def _is_deterministic(node: Node, call: WindowCall) -> bool:
    order_columns = (*call.partition, *(key.expr for key in call.order))
    if call.function in OF_PEERS or identifies_rows(node, order_columns):
        return True
    by_peers = call.frame is not None and (call.frame.unbounded or call.frame.mode is not FrameMode.ROWS)
    args = call.args
    if call.aggregate is not None:
        args = call.aggregate.args
        form = form_of(call.aggregate)
        if not isinstance(form, OfList) or form.default_order:
            return by_peers
    if call.function in OF_FRAME_ROWS or call.aggregate is not None:
        return by_peers and {o for arg in args for o in columns_read(arg)} <= fixed_columns(order_columns)
    return by_peers and call.function not in OF_PLACES


class _CallPlanner:
    """Plans window function calls; `compiler` compiles over the node below."""

    def __init__(
        self,
        query: query_tree.Query,
        compiler: ExpressionCompiler,
        flatten: Callable[[tree.Expression], tree.Expression],
        catalog: CatalogSnapshot,
    ) -> None:
        self._query = query
        self._compiler = compiler
        self._flatten = flatten
        self._catalog = catalog

    def plan(self, call: tree.WindowFunc) -> WindowCall:
        """Plan one call over the columns of the node below."""
        clause = next((w for w in self._query.windows if w.number == call.window), None)
        if clause is None:
            raise unknown("a window function without a window")
        keys, order = [], []
        for group in clause.partition:
            expression = self._target(group.reference)
            keys.append(group_key(self._compiler.compile(expression), expression, group, self._catalog).by)
        for item in clause.order:
            expression = self._target(item.reference)
            order.append(sort_key(self._compiler.compile(expression), expression, item, self._catalog))
        planned = self._plan_call(call, lambda: bind_frame(clause, tuple(order), self._catalog))
        return replace(planned, partition=tuple(keys), order=tuple(order))

    def _target(self, reference: int) -> tree.Expression:
        (found,) = (t.expression for t in self._query.targets if t.group_reference == reference)
        return self._flatten(found)

    def _plan_call(self, call: tree.WindowFunc, make_frame: Callable[[], Frame]) -> WindowCall:
        info = self._catalog.function(call.function)
        function = _FUNCTIONS.get(info.signature)
        if function is None:
            return self._plan_aggregate(call, make_frame())
        args = [self._compiler.compile(arg) for arg in call.args]
        self._check_literal(function, args, call)
        try:
            physical_type = _physical_type(function, args)
        except UnsuitableArguments as error:
            construct = f"the window function {info.signature} on {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint, token=call.at) from error
        frame = None if function in OF_PEERS or function in OF_PLACES else make_frame()
        return WindowCall(
            function, tuple(args), ValueType(self._catalog.pg_type(call.type, -1), physical_type), frame=frame
        )

    def _plan_aggregate(self, call: tree.WindowFunc, frame: Frame) -> WindowCall:
        plain = tree.Aggref(
            call.function, call.type, call.collation, call.input_collation, call.args, (), (), (), call.filter, call.at
        )
        planned = plan_aggregate(plain, self._compiler, self._catalog, None)
        result = WindowCall(WindowFunction.AGGREGATE, (), planned.type, frame=frame, aggregate=planned)
        if not is_computable(result):
            construct = f"the aggregate {planned.signature} over a frame with EXCLUDE, or one that may be empty"
            raise Refused(Reason.FRAME, construct, hint="leave EXCLUDE out, or use min and max", token=call.at)
        return result

    def _check_literal(self, function: WindowFunction, args: list[Expr], call: tree.WindowFunc) -> None:
        index = _LITERAL_ARGUMENT.get(function)
        if index is None or index >= len(args):
            return
        match args[index]:
            case Const(value=int() as number) if number > 0 or function in (WindowFunction.LAG, WindowFunction.LEAD):
                return
            case _:
                hint = "write a literal number greater than 0"
                raise Refused(
                    Reason.CONSTRUCT, f"{function.value} of a number that is not a literal", hint=hint, token=call.at
                )


def _physical_type(function: WindowFunction, args: list[Expr]) -> str:
    if function in _RESULT_TYPES:
        return _RESULT_TYPES[function]
    if len(args) == 3:
        args[0], args[2] = unify((args[0], args[2]))
    return args[0].type.spark
