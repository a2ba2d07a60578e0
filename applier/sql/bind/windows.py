"""Window functions -> Window nodes, one per partition and order.

Below them a projection computes the partition keys, the sort keys, the arguments and the columns that the query shows,
and nothing else: rows that are equal in all of these are the same row to the window.

What depends on a row's exact place is taken only when the order tells all rows apart; what is the same for all peers is
always taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from applier.functions.aggregates.aggregate_entry import OfList
from applier.functions.aggregates.aggregates import form_of
from applier.functions.entry import UnsuitableArguments
from applier.operators.support.listed_frames import is_computable
from applier.plan.expr import Col, Const, Expr, ValueType, columns_read, renumber
from applier.plan.nodes import Node, Window, fields, identifies_rows
from applier.plan.sort import fixed_columns
from applier.plan.window import OF_FRAME_ROWS, OF_PEERS, OF_PLACES, Frame, FrameMode, WindowCall, WindowFunction
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.aggregates import plan_aggregate
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.frames import bind_frame
from applier.sql.bind.group_key import group_key
from applier.sql.bind.sort_key import sort_key
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
_COUNTED = {
    WindowFunction.ROW_NUMBER: "bigint",
    WindowFunction.RANK: "bigint",
    WindowFunction.DENSE_RANK: "bigint",
    WindowFunction.PERCENT_RANK: "double",
    WindowFunction.CUME_DIST: "double",
    WindowFunction.NTILE: "int",
}
_LITERAL = {
    WindowFunction.NTILE: 0,
    WindowFunction.LAG: 1,
    WindowFunction.LEAD: 1,
    WindowFunction.NTH_VALUE: 1,
}
"""Which argument says how many, and has to be written out."""


def window_inputs(query: query_tree.Query, targets: Sequence[tree.Expression]) -> Iterator[int]:
    """The targets that partition or order the windows that these targets ask for."""
    asked = {call.window for target in targets for call in _calls(target)}
    for clause in (w for w in query.windows if w.number in asked):
        for reference in (*(g.reference for g in clause.partition), *(s.reference for s in clause.order)):
            found = [i for i, t in enumerate(query.targets) if t.group_reference == reference]
            if len(found) != 1:
                raise unknown("a window that names no target")
            yield found[0]


def bind_windows(
    query: query_tree.Query,
    targets: Sequence[tree.Expression],
    below: tuple[Node, Scope],
    flat: Callable[[tree.Expression], tree.Expression],
    catalog: SystemCatalog,
) -> BoundQuery:
    """The targets over a node, with whatever windows they ask for in between."""
    node, scope = below
    compiler = ExpressionCompiler(catalog, scope)
    calls = list(dict.fromkeys(c for t in targets for c in _calls(t)))
    if not calls:
        return BoundQuery(node, tuple(compiler.compile(t) for t in targets))
    planner = _Planner(query, compiler, flat, catalog)
    planned = [planner.plan(call) for call in calls]
    width = len(fields(node))
    place = {call: width + i for i, call in enumerate(calls)}

    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.WindowFunc) and expression in place:
            call = planned[place[expression] - width]
            return Col(place[expression], call.type, call.nullable)
        return scope(expression)

    shown = [ExpressionCompiler(catalog, find).compile(t) for t in targets]
    passed = dict.fromkeys(o for e in shown for o in columns_read(e) if o < width)
    inputs = list(
        dict.fromkeys([*(bound_columns(node)[o] for o in passed), *(e for c in planned for e in _computed(c))])
    )
    at = {e: i for i, e in enumerate(inputs)}
    base = project_columns(node, tuple(inputs))
    moved = [c.over(lambda e: e if isinstance(e, Const) else bound_columns(base)[at[e]]) for c in planned]
    _check_decided(base, moved, calls)
    result, outputs = _stacked(base, moved)
    to = {o: at[bound_columns(node)[o]] for o in passed} | {width + i: o for i, o in outputs.items()}
    return BoundQuery(result, tuple(renumber(e, to.__getitem__) for e in shown))


def _calls(expression: tree.Expression) -> Iterator[tree.WindowFunc]:
    if isinstance(expression, tree.WindowFunc):
        yield expression
        return
    for argument in walk.arguments(expression):
        yield from _calls(argument)


def _computed(call: WindowCall) -> Iterator[Expr]:
    """Every expression the call needs from below; literals stay where they are."""
    return (expr for expr in call.inputs() if not isinstance(expr, Const))


def _stacked(node: Node, calls: Sequence[WindowCall]) -> tuple[Node, dict[int, int]]:
    """As few Windows as look at no more rows than they must; where the result of each call is.

    A call without a partition looks at every row; then the others can do so too. Otherwise calls that partition alike
    are computed together.
    """
    partitions = [frozenset(c.partition) for c in calls]
    together = not all(partitions)
    outputs: dict[int, int] = {}
    for partition in [frozenset[Expr]()] if together else list(dict.fromkeys(partitions)):
        members = [i for i, own in enumerate(partitions) if together or own == partition]
        outputs |= {i: len(fields(node)) + n for n, i in enumerate(members)}
        keys = () if together else calls[members[0]].partition
        node = Window(node, keys, tuple(calls[i] for i in members))
    return node, outputs


def _check_decided(node: Node, calls: Sequence[WindowCall], origins: Sequence[tree.WindowFunc]) -> None:
    """Each call in turn, over the results of those before it: two that number equal rows differently do not agree."""
    specs = dict.fromkeys((c.partition, c.order) for c in calls)
    for partition, order in specs:
        own = [(c, o) for c, o in zip(calls, origins, strict=True) if (c.partition, c.order) == (partition, order)]
        for call, origin in own:
            if not _decided(node, call):
                construct = f"the window function {call.name} over an order that leaves the place of some rows open"
                hint = "add the primary key to ORDER BY of the window"
                raise Refused(Reason.ORDER, construct, hint=hint, token=origin.at)
        node = Window(node, (), tuple(call for call, _ in own))


def _decided(node: Node, call: WindowCall) -> bool:
    told = (*call.partition, *(key.expr for key in call.order))
    if call.function in OF_PEERS or identifies_rows(node, told):
        return True
    by_peers = call.frame is not None and (call.frame.unbounded or call.frame.mode is not FrameMode.ROWS)
    args = call.args
    if call.aggregate is not None:
        args = call.aggregate.args
        form = form_of(call.aggregate)
        if not isinstance(form, OfList) or form.default_order:
            return by_peers
    if call.function in OF_FRAME_ROWS or call.aggregate is not None:
        return by_peers and {o for arg in args for o in columns_read(arg)} <= fixed_columns(told)
    return by_peers and call.function not in OF_PLACES


class _Planner:
    """Plans calls over the scope below."""

    def __init__(
        self,
        query: query_tree.Query,
        compiler: ExpressionCompiler,
        flat: Callable[[tree.Expression], tree.Expression],
        catalog: SystemCatalog,
    ) -> None:
        self._query = query
        self._compiler = compiler
        self._flat = flat
        self._catalog = catalog

    def plan(self, call: tree.WindowFunc) -> WindowCall:
        """The call over the columns below."""
        clause = next((w for w in self._query.windows if w.number == call.window), None)
        if clause is None:
            raise unknown("a window function of no window")
        keys, order = [], []
        for group in clause.partition:
            expression = self._target(group.reference)
            keys.append(group_key(self._compiler.compile(expression), expression, group, self._catalog).by)
        for item in clause.order:
            expression = self._target(item.reference)
            order.append(sort_key(self._compiler.compile(expression), expression, item, self._catalog))
        planned = self._call(call, lambda: bind_frame(clause, tuple(order), self._catalog))
        return replace(planned, partition=tuple(keys), order=tuple(order))

    def _target(self, reference: int) -> tree.Expression:
        (found,) = (t.expression for t in self._query.targets if t.group_reference == reference)
        return self._flat(found)

    def _call(self, call: tree.WindowFunc, own_frame: Callable[[], Frame]) -> WindowCall:
        info = self._catalog.function(call.function)
        function = _FUNCTIONS.get(info.signature)
        if function is None:
            return self._aggregate(call, own_frame())
        args = [self._compiler.compile(arg) for arg in call.args]
        self._check_literal(function, args, call)
        try:
            physical_type = _physical_type(function, args)
        except UnsuitableArguments as error:
            construct = f"the window function {info.signature} on {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint, token=call.at) from error
        own = None if function in OF_PEERS or function in OF_PLACES else own_frame()
        return WindowCall(
            function, tuple(args), ValueType(self._catalog.pg_type(call.type, -1), physical_type), frame=own
        )

    def _aggregate(self, call: tree.WindowFunc, own: Frame) -> WindowCall:
        plain = tree.Aggref(
            call.function, call.type, call.collation, call.input_collation, call.args, (), (), (), call.filter, call.at
        )
        planned = plan_aggregate(plain, self._compiler, self._catalog, None)
        result = WindowCall(WindowFunction.AGGREGATE, (), planned.type, frame=own, aggregate=planned)
        if not is_computable(result):
            construct = f"the aggregate {planned.signature} over a frame with EXCLUDE or without rows"
            raise Refused(Reason.FRAME, construct, hint="leave EXCLUDE out, or use min and max", token=call.at)
        return result

    def _check_literal(self, function: WindowFunction, args: list[Expr], call: tree.WindowFunc) -> None:
        index = _LITERAL.get(function)
        if index is None or index >= len(args):
            return
        match args[index]:
            case Const(value=int() as number) if number > 0 or function in (WindowFunction.LAG, WindowFunction.LEAD):
                return
            case _:
                hint = "write the number itself, larger than 0"
                raise Refused(Reason.CONSTRUCT, f"{function.value} of a computed number", hint=hint, token=call.at)


def _physical_type(function: WindowFunction, args: list[Expr]) -> str:
    if function in _COUNTED:
        return _COUNTED[function]
    if len(args) == 3:
        args[0], args[2] = unify((args[0], args[2]))
    return args[0].type.spark
