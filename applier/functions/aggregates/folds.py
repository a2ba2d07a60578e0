"""Turns a user-defined aggregate into an entry: its steps run over the list of the rows that count."""

from __future__ import annotations

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList
from applier.functions.emit import spark_sql
from applier.functions.literals import quote_text
from applier.functions.output_text import parse_output
from applier.plan.expr import AggregateCall, Call, Col, Expr, Fold, children

_STATE, _ROW = "fold_state", "fold_row"
"""No Spark SQL of an entry uses these names for the arguments of its own lambdas."""

_ABELIAN = frozenset(
    f"{function}({name},{name})"
    for name, functions in {
        **dict.fromkeys(("int2", "int4", "int8"), ("{0}pl", "{0}mul", "{0}and", "{0}or", "{0}xor")),
        "numeric": ("numeric_add", "numeric_mul"),
        "interval": ("interval_pl",),
    }.items()
    for function in (function.format(name) for function in functions)
)
"""a ∘ b = b ∘ a and (a ∘ b) ∘ c = a ∘ (b ∘ c); NULL if any operand is NULL."""


def is_order_free(step: Expr, *, seeded: bool) -> bool:
    """Return whether rows may come in any order: the step is such a function of the state and a value of the row."""
    match step:
        case Call(signature=signature, args=(first, second)):
            known = signature in _ABELIAN or signature.startswith(("greatest_of(", "least_of("))
            combined = _combined_value(first, second) or _combined_value(second, first)
            # The first row becomes the state unchanged, so the other rows must be combined unchanged, too.
            return known and combined is not None and (not seeded or isinstance(combined, Col))
        case _:
            return False


def _combined_value(state: Expr, value: Expr) -> Expr | None:
    """Return `value` if `state` is the state and `value` does not read it; else None."""
    return value if isinstance(state, Col) and state.ordinal == 0 and not _reads_state(value) else None


def _reads_state(expr: Expr) -> bool:
    return (isinstance(expr, Col) and expr.ordinal == 0) or any(_reads_state(c) for c in children(expr))


def entry_of_fold(signature: str, fold: Fold) -> AggregateEntry:
    """Return the entry of a user-defined aggregate, in the form of AGGREGATES."""
    return AggregateEntry(
        signature=signature,
        physical_type=lambda args: fold.final.type.spark,
        form=OfList(
            _write_fold, default_order=fold.any_order, on_empty=_write_final_value(fold, _write_initial_state(fold))
        ),
        fuzz=(),
        skips_null=fold.strict,
    )


def _write_fold(call: AggregateCall) -> str:
    fold = call.fold
    if fold is None:
        raise AssertionError(f"{call.signature} is no aggregate of a user")
    spark = fold.state.spark
    rows, first = (
        ("slice({list}, 2, size({list}))", "get({list}, 0).a0")
        if fold.seeded
        else ("{list}", _write_initial_state(fold))
    )
    step = spark_sql(fold.step, lambda i: _STATE if i == 0 else f"{_ROW}.a{i - 1}")
    if fold.strict:
        step = f"if({_STATE} IS NULL, CAST(NULL AS {spark}), {step})"
    merge = f"({_STATE}, {_ROW}) -> CAST({step} AS {spark})"
    return f"aggregate({rows}, CAST({first} AS {spark}), {merge}, {_STATE} -> {_write_final_value(fold, _STATE)})"


def _write_initial_state(fold: Fold) -> str:
    if fold.initial is None:
        return f"CAST(NULL AS {fold.state.spark})"
    return f"CAST({parse_output(fold.state.pg.name, quote_text(fold.initial))} AS {fold.state.spark})"


def _write_final_value(fold: Fold, state: str) -> str:
    return f"CAST({spark_sql(fold.final, lambda _: state)} AS {fold.final.type.spark})"
