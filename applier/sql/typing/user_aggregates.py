"""A user's aggregate -> the fold it stands for. Does IO, inside the definition's rolled-back transaction.

PostgreSQL would call its functions row by row; each is taken where it is built in and listed, or a simple function
that is inlined. Strictness and the first state are PostgreSQL's: see CREATE AGGREGATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from applier.catalog.sources import DIGEST
from applier.functions.aggregates.folds import is_order_free
from applier.functions.entry import UnsuitableArguments
from applier.functions.output_text import input_physical_type
from applier.plan.expr import Case, Col, Expr, Fold, ValueType, Widen
from applier.sql.analyze.system_catalog import FIRST_USER_OID, SystemCatalog
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.casts import OTHER_TYPE
from applier.sql.typing.compile import ExpressionCompiler
from applier.sql.typing.lookup import check_unchanged
from applier.sql.typing.unify import unify

_HINT = "what its functions do is not known here; write it with built-in aggregates, or let FULL mode compute it"
_FIND: LiteralString = (
    "SELECT a.aggkind = 'n' AND p.provariadic = 0, a.aggtransfn::oid::int8, t.proisstrict, a.aggfinalfn::oid::int8, "
    "a.aggfinalextra, coalesce(f.proisstrict, true), a.aggtranstype::int8, a.agginitval, a.aggmtransfn::oid <> 0, "
    + DIGEST
    + " FROM pg_aggregate a JOIN pg_proc p ON p.oid = a.aggfnoid JOIN pg_proc t ON t.oid = a.aggtransfn "
    "LEFT JOIN pg_proc f ON f.oid = a.aggfinalfn WHERE a.aggfnoid = %s::int8::oid"
)


@dataclass(frozen=True, slots=True)
class _Own:
    """A row of pg_aggregate; `final` is 0 where the last state is the result."""

    plain: bool
    step: int
    strict: bool
    final: int
    final_takes_all: bool
    final_strict: bool
    state: int
    initial: str | None
    moves: bool
    digest: str


def argument_texts(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """The arguments as a fold takes them: a numeric as text, so that its state has one physical type; Unfit for
    floats."""
    for arg in args:
        # Rows are netted before they are listed, and -0 is 0 there.
        if arg.type.spark in ("double", "float"):
            raise UnsuitableArguments(f"values of type {arg.type.pg.display}", hint="cast the value to numeric")
    return tuple(Widen(a, ValueType(a.type.pg, "string")) if a.type.spark.startswith("decimal(") else a for a in args)


def fold_of(call: tree.Aggref, args: Sequence[Expr], catalog: SystemCatalog, *, window: bool) -> Fold:
    """The aggregate over arguments in these physical types; Refused where one of its functions is not known."""
    info = catalog.function(call.function)
    own = _read(catalog.connection(), call.function)
    if not own.plain or call.direct or not args or (window and own.moves):
        raise Refused(Reason.FUNCTION, f"the user-defined aggregate {info.signature}", hint=_HINT, token=call.at)
    check_unchanged(info, f"the aggregate {info.signature}", own.digest, call.at, catalog)
    try:
        return _fold(own, call, args, catalog)
    except Refused as refused:
        construct = f"the user-defined aggregate {info.signature} with {refused.construct}"
        full = refused.full_in_postgres
        raise Refused(refused.reason, construct, hint=refused.hint, token=call.at, full_in_postgres=full) from refused
    except UnsuitableArguments as error:
        construct = f"the user-defined aggregate {info.signature} on {error.problem}"
        raise Refused(Reason.TYPE, construct, hint=error.hint or OTHER_TYPE, token=call.at) from error


def _fold(own: _Own, call: tree.Aggref, args: Sequence[Expr], catalog: SystemCatalog) -> Fold:
    state = _state(own, call, catalog)
    columns = [state, *(arg.type for arg in args)]
    compiler = ExpressionCompiler(catalog, lambda e: _column(e, columns))
    given = tuple(tree.Var(tree.ARGUMENT, i + 1, c.pg.oid, -1, 0, 0, None) for i, c in enumerate(columns))

    def applied(function: int, result: int, arguments: tuple[tree.Expression, ...]) -> Expr:
        plain = tree.FuncExpr(function, 0, result, call.input_collation, call.input_collation, arguments, None)
        return compiler.compile(plain)

    step = _held(applied(own.step, state.pg.oid, given), state)
    seeded = own.strict and own.initial is None
    if seeded and args[0].type.spark != state.spark:
        raise UnsuitableArguments(f"values held as {args[0].type.spark} whose first is a state held as {state.spark}")
    final: Expr = Col(0, state)
    if own.final:
        rest = tuple(tree.Constant(a.type.pg.oid, -1, 0, 0, False, None, None) for a in args)
        final = applied(own.final, call.type, (given[0], *(rest if own.final_takes_all else ())))
    bare = step.default if own.strict and own.step >= FIRST_USER_OID and isinstance(step, Case) else step
    return Fold(
        state=state,
        initial=None if own.initial is None else _first_text(catalog.connection(), own.initial, state),
        seeded=seeded,
        strict=own.strict,
        any_order=is_order_free(bare, seeded=seeded),
        step=step,
        final=final,
        null_of_none=own.initial is None and (not own.final or own.final_strict),
    )


def _state(own: _Own, call: tree.Aggref, catalog: SystemCatalog) -> ValueType:
    """The type of the state; where it follows from the arguments, it is that of the result."""
    oid = own.state
    if catalog.type(oid).name.startswith("any") and not own.final:
        oid = call.type
    info = catalog.type(oid)
    unknown = info.is_enum or info.is_row or info.base != oid or oid >= FIRST_USER_OID
    if unknown or info.name.startswith(("any", "internal")):
        raise UnsuitableArguments(f"a state of type {info.display}", hint=_HINT)
    return ValueType(catalog.pg_type(oid, -1), input_physical_type(info.name))


def _column(expression: tree.Expression, columns: Sequence[ValueType]) -> Expr | None:
    if isinstance(expression, tree.Var) and expression.entry == tree.ARGUMENT:
        return Col(expression.number - 1, columns[expression.number - 1])
    return None


def _held(step: Expr, state: ValueType) -> Expr:
    if step.type.spark == state.spark:
        return step
    _, held = unify((Col(0, state), step))
    if held.type.spark != state.spark:
        raise UnsuitableArguments(f"a state held as {step.type.spark}")
    return held


def _read(connection: psycopg.Connection[Any], oid: int) -> _Own:
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(_FIND, [oid]).fetchone()
    if found is None:
        raise KeyError(oid)
    return _Own(*found)


def _first_text(connection: psycopg.Connection[Any], written: str, state: ValueType) -> str:
    """What the output function of the state's type prints for the first state."""
    query = sql.SQL("SELECT concat({}::{})").format(sql.Literal(written), sql.SQL(state.pg.display))
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(query).fetchone()
    if found is None:
        raise AssertionError("a value is one row")
    return str(found[0])
