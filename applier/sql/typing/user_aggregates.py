"""A user-defined aggregate -> a Fold of the plan. Pure.

PostgreSQL calls the functions of the aggregate row by row. Each of them is accepted when it is built in and in the
allow-list, or when it is a simple function that can be inlined. Strictness and the initial state follow PostgreSQL: see
CREATE AGGREGATE.
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.aggregates.folds import is_order_free
from applier.functions.entry import UnsuitableArguments
from applier.functions.output_text import input_physical_type
from applier.plan.expr import Case, Col, Expr, Fold, ValueType, Widen
from applier.sql.catalog_snapshot import AggregateInfo, CatalogSnapshot
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.casts import OTHER_TYPE
from applier.sql.typing.compile import compile_expression
from applier.sql.typing.lookup import check_unchanged
from applier.sql.typing.unify import unify
from shared_schema.pg_types import FIRST_USER_OID

_HINT = "its functions are not known to be equal in Spark; use built-in aggregates, or FULL mode"


def convert_fold_arguments(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """Convert arguments for a fold: a numeric becomes text, so that the state has one physical type.

    Raises UnsuitableArguments for floats.
    """
    for arg in args:
        # Rows are netted before they are listed, and netting does not distinguish -0 from 0.
        if arg.type.spark in ("double", "float"):
            raise UnsuitableArguments(f"values of type {arg.type.pg.display}", hint="cast the value to numeric")
    return tuple(Widen(a, ValueType(a.type.pg, "string")) if a.type.spark.startswith("decimal(") else a for a in args)


def plan_fold(call: tree.Aggref, args: Sequence[Expr], catalog: CatalogSnapshot, *, window: bool) -> Fold:
    """Plan the aggregate over arguments in these physical types; raises Refused if a function is not proven."""
    info = catalog.function(call.function)
    aggregate = catalog.aggregates[call.function]
    if not aggregate.plain or call.direct or not args or (window and aggregate.moves):
        raise Refused(Reason.FUNCTION, f"the user-defined aggregate {info.signature}", hint=_HINT, token=call.at)
    check_unchanged(info, f"the aggregate {info.signature}", aggregate.digest, call.at, catalog)
    try:
        return _build_fold(aggregate, call, args, catalog)
    except Refused as refused:
        construct = f"the user-defined aggregate {info.signature} with {refused.construct}"
        full = refused.full_in_postgres
        raise Refused(refused.reason, construct, hint=refused.hint, token=call.at, full_in_postgres=full) from refused
    except UnsuitableArguments as error:
        construct = f"the user-defined aggregate {info.signature} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=call.at) from error


def _build_fold(aggregate: AggregateInfo, call: tree.Aggref, args: Sequence[Expr], catalog: CatalogSnapshot) -> Fold:
    state = _state_type(aggregate, call, catalog)
    columns = [state, *(arg.type for arg in args)]
    variables = tuple(tree.Var(tree.ARGUMENT, i + 1, c.pg.oid, -1, 0, 0, None) for i, c in enumerate(columns))

    def apply(function: int, result: int, arguments: tuple[tree.Expression, ...]) -> Expr:
        plain = tree.FuncExpr(function, 0, result, call.input_collation, call.input_collation, arguments, None)
        resolved = {id(v): Col(v.number - 1, columns[v.number - 1]) for v in variables}
        return compile_expression(plain, resolved, catalog)

    step = _convert_to_state_type(apply(aggregate.step, state.pg.oid, variables), state)
    seeded = aggregate.strict and not aggregate.has_initial
    if seeded and args[0].type.spark != state.spark:
        raise UnsuitableArguments(
            f"values stored as {args[0].type.spark}, the first of which is a state stored as {state.spark}"
        )
    final: Expr = Col(0, state)
    if aggregate.final:
        nulls = tuple(tree.Constant(a.type.pg.oid, -1, 0, 0, False, None, None) for a in args)
        final = apply(aggregate.final, call.type, (variables[0], *(nulls if aggregate.final_takes_all else ())))
    unguarded = (
        step.default if aggregate.strict and aggregate.step >= FIRST_USER_OID and isinstance(step, Case) else step
    )
    return Fold(
        state=state,
        initial=aggregate.initial[state.pg.oid] if aggregate.has_initial else None,
        seeded=seeded,
        strict=aggregate.strict,
        any_order=is_order_free(unguarded, seeded=seeded),
        step=step,
        final=final,
        null_of_none=not aggregate.has_initial and (not aggregate.final or aggregate.final_strict),
    )


def _state_type(aggregate: AggregateInfo, call: tree.Aggref, catalog: CatalogSnapshot) -> ValueType:
    """Return the type of the state; a polymorphic state has the type of the result."""
    oid = aggregate.state
    if catalog.type(oid).name.startswith("any") and not aggregate.final:
        oid = call.type
    info = catalog.type(oid)
    unknown = info.is_enum or info.is_row or info.base != oid or oid >= FIRST_USER_OID
    if unknown or info.name.startswith(("any", "internal")):
        raise UnsuitableArguments(f"a state of type {info.display}", hint=_HINT)
    return ValueType(catalog.pg_type(oid, -1), input_physical_type(info.name))


def _convert_to_state_type(step: Expr, state: ValueType) -> Expr:
    if step.type.spark == state.spark:
        return step
    _, converted = unify((Col(0, state), step))
    if converted.type.spark != state.spark:
        raise UnsuitableArguments(f"a state stored as {step.type.spark}")
    return converted
