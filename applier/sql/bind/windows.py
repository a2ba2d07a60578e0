"""Window functions of the analysed tree -> bound window functions: function, arguments, partition, order and frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from applier.functions.entry import UnsuitableArguments
from applier.operators.support.listed_frames import is_computable
from applier.plan.expr import Const, Expr, ValueType
from applier.plan.window import OF_PEERS, OF_PLACES, Frame, WindowCall, WindowFunction
from applier.sql.bind.aggregates import bind_aggregate
from applier.sql.bind.expressions import ExpressionBinder
from applier.sql.bind.frames import bind_frame
from applier.sql.bind.group_key import group_key
from applier.sql.bind.levels import Binder
from applier.sql.bind.sort_key import sort_key
from applier.sql.bound.nodes import BoundWindow
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
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
    used = {call.window for target in targets for call in window_calls(target)}
    for clause in (w for w in query.windows if w.number in used):
        for reference in (*(g.reference for g in clause.partition), *(s.reference for s in clause.order)):
            found = [i for i, t in enumerate(query.targets) if t.group_reference == reference]
            if len(found) != 1:
                raise unknown("a window that names no target")
            yield found[0]


def window_calls(expression: tree.Expression) -> Iterator[tree.WindowFunc]:
    """Yield every window function of the expression, in the order of the text."""
    if isinstance(expression, tree.WindowFunc):
        yield expression
        return
    for argument in walk.arguments(expression):
        yield from window_calls(argument)


class WindowBinder:
    """Binds the window functions of one query; `expressions` binds what they read."""

    def __init__(
        self,
        query: query_tree.Query,
        expressions: ExpressionBinder,
        flatten: Callable[[tree.Expression], tree.Expression],
        binder: Binder,
    ) -> None:
        self._query = query
        self._expressions = expressions
        self._flatten = flatten
        self._catalog = binder.catalog

    def bind(self, call: tree.WindowFunc) -> BoundWindow:
        """Bind one call over the columns of the query."""
        clause = next((w for w in self._query.windows if w.number == call.window), None)
        if clause is None:
            raise unknown("a window function without a window")
        keys, order = [], []
        for group in clause.partition:
            expression = self._target(group.reference)
            keys.append(group_key(self._expressions.bind(expression), expression, group, self._catalog).by)
        for item in clause.order:
            expression = self._target(item.reference)
            order.append(sort_key(self._expressions.bind(expression), expression, item, self._catalog))
        planned = self._plan_call(call, lambda: bind_frame(clause, tuple(order), self._catalog))
        construct = f"the window function {planned.name} over an order that may have ties"
        hint = "add the primary key to the ORDER BY of the window"
        refusal = Refused(Reason.ORDER, construct, hint=hint, token=call.at)
        return BoundWindow(replace(planned, partition=tuple(keys), order=tuple(order)), refusal)

    def _target(self, reference: int) -> tree.Expression:
        (found,) = (t.expression for t in self._query.targets if t.group_reference == reference)
        return self._flatten(found)

    def _plan_call(self, call: tree.WindowFunc, make_frame: Callable[[], Frame]) -> WindowCall:
        info = self._catalog.function(call.function)
        function = _FUNCTIONS.get(info.signature)
        if function is None:
            return self._plan_aggregate(call, make_frame())
        args = [self._expressions.bind(arg) for arg in call.args]
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
        planned = bind_aggregate(plain, self._expressions, self._catalog, window=True).call
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
