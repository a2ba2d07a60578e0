"""An aggregate of the analysed tree -> an AggregateCall of the plan, or a refusal.

Looks the aggregate up in the allow-list and checks its arguments, FILTER, DISTINCT and ORDER BY.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList, OfSet
from applier.functions.aggregates.aggregates import AGGREGATES
from applier.functions.aggregates.folds import entry_of_fold
from applier.functions.allow_list import ENTRIES
from applier.functions.arrays.composites import ROW_OF, fields_of
from applier.functions.comparison_keys import comparison_key, joined_labels
from applier.functions.entry import CollationNeed, Entry, UnsuitableArguments
from applier.plan.expr import AggregateCall, Call, Case, Const, Expr, Fold, SortKey, ValueType, columns_read
from applier.sql.bind.expressions import ExpressionBinder
from applier.sql.bind.group_key import default_equality
from applier.sql.bind.sort_key import sort_key
from applier.sql.bound.conditions import is_total
from applier.sql.bound.nodes import BoundCall, OrderCheck
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.collations import collation_of
from applier.sql.typing.numeric_scales import split_by_scale
from applier.sql.typing.user_aggregates import convert_fold_arguments, plan_fold
from shared_schema.pg_types import FIRST_USER_OID

_OTHER_HINTS = {
    "xmlagg": "it depends on XML declarations, which the log does not contain; use string_agg of the values as text",
}
_DISTINCT_HINT = "remove the duplicates in a subquery first"
_ORDER_HINT = "order by columns that identify each row (add the primary key), or by the argument itself"


def bind_aggregate(
    call: tree.Aggref,
    below: ExpressionBinder,
    catalog: CatalogSnapshot,
    *,
    window: bool = False,
    raising: Set[int] = frozenset(),
) -> BoundCall:
    """Bind an aggregate; `below` binds its arguments. A `window` function takes its order from the window.

    Reading one of the columns `raising` may be an error.
    """
    info = catalog.function(call.function)
    entry = AGGREGATES.get(info.signature)
    if entry is None and call.function < FIRST_USER_OID:
        hint = _OTHER_HINTS.get(
            info.name, "it is not yet proven to be equal in Spark; count, sum, avg, min and max are"
        )
        raise Refused(Reason.FUNCTION, f"the aggregate {info.signature}", hint=hint, token=call.at)
    condition = None if call.filter is None else below.bind(call.filter)
    args = tuple(_guard_by_filter(below.bind(arg), condition, raising) for arg in call.args)
    fold: Fold | None = None
    if entry is None:
        try:
            args = convert_fold_arguments(args)
        except UnsuitableArguments as error:
            construct = f"the user-defined aggregate {info.signature} on {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint, token=call.at) from error
        fold = plan_fold(call, args, catalog, window=window)
        entry = entry_of_fold(info.signature, fold)
    if entry.ordered_labels:
        args = (*args, joined_labels(tuple(catalog.labels(args[0].type.pg.oid).values())))
    direct = tuple(below.bind(arg) for arg in call.direct)
    form = entry.form_of(args)
    try:
        physical_type = entry.physical_type((*direct, *args))
    except UnsuitableArguments as error:
        construct = f"the aggregate {info.signature} on {error.problem}"
        raise Refused(
            Reason.TYPE, construct, hint=error.hint or "cast or store the values in another type", token=call.at
        ) from error
    _check_collation(entry, call.input_collation, call, catalog)
    # A function of the set of values does not depend on how often a value occurs.
    distinct = bool(call.distinct) and not isinstance(form, OfSet)
    distinct_by = _distinct_by(entry, call, args, catalog) if distinct else ()
    if distinct_by and entry.signature == "count(any)":
        args, distinct_by = distinct_by, ()
    order: tuple[SortKey, ...] = ()
    check: OrderCheck | None = None
    if isinstance(form, OfList):
        order = tuple(
            sort_key(
                _guard_by_filter(below.bind(key.expression), condition, raising),
                key.expression,
                query_tree.SortItem(0, key.operator, key.nulls_first),
                catalog,
            )
            for key in call.order
        )
        any_of_equals = entry.any_of_equals or bool(distinct_by)
        ordered_by_itself = form.default_order and not order
        if not window and not ordered_by_itself:
            construct = f"{info.name} over rows in no fixed order"
            refusal = Refused(Reason.ORDER, construct, hint=_ORDER_HINT, token=call.at)
            check = OrderCheck(order, args, any_of_equals, refusal)
    planned = AggregateCall(
        info.signature,
        args,
        ValueType(catalog.pg_type(call.type, -1), physical_type),
        nullable=not entry.never_null,
        distinct=distinct,
        filter=condition,
        order=order,
        direct=direct,
        distinct_by=distinct_by,
        fold=fold,
    )
    return BoundCall(split_by_scale(planned), check)


def _guard_by_filter(arg: Expr, condition: Expr | None, raising: Set[int]) -> Expr:
    """Wrap an argument that may raise an error, so that it is evaluated only for rows that FILTER accepts."""
    if condition is None or (is_total(arg) and raising.isdisjoint(columns_read(arg))):
        return arg
    return Case(((condition, arg),), Const(None, arg.type), arg.type)


def _check_collation(entry: AggregateEntry, collation_id: int, call: tree.Aggref, catalog: CatalogSnapshot) -> None:
    if entry.collation is not CollationNeed.ORDER or not collation_id:
        return
    collation = catalog.collation(collation_id)
    if not collation.byte_order:
        raise _refuse_text_order(collation.name, call)


def _refuse_text_order(collation: str, call: tree.Aggref) -> Refused:
    hint = 'declare the column COLLATE "C"'
    return Refused(Reason.COLLATION, f"text order under the collation {collation}", hint=hint, token=call.at)


def _distinct_by(
    entry: AggregateEntry, call: tree.Aggref, args: Sequence[Expr], catalog: CatalogSnapshot
) -> tuple[Expr, ...]:
    """Return the expressions that DISTINCT compares, one per argument; empty when they are the arguments themselves."""
    if not entry.takes_distinct:
        construct = f"DISTINCT in the aggregate {entry.signature}"
        raise Refused(Reason.CONSTRUCT, construct, hint=_DISTINCT_HINT, token=call.at)
    found = []
    # Arguments after those of DISTINCT are the same for all rows, such as the separator of a list.
    for operator, arg, written in zip(call.distinct, args, call.args, strict=False):
        equality = ENTRIES.get(catalog.function(catalog.operator(operator).function).signature)
        found.append(_distinct_key(arg, equality, call))
        if equality is not None and equality.collation is not CollationNeed.NONE:
            collation = collation_of(written, arg, catalog)
            if collation is not None and not collation.deterministic:
                construct = f"DISTINCT under the nondeterministic collation {collation.name}"
                raise Refused(Reason.COLLATION, construct, hint='declare the column COLLATE "C"', token=call.at)
    return () if all(by == arg for by, arg in zip(found, args, strict=False)) else tuple(found)


def _distinct_key(arg: Expr, equality: Entry | None, call: tree.Aggref) -> Expr:
    """Return the argument itself, or a key that is the same for all equal values."""
    try:
        if isinstance(arg, Call) and arg.signature == ROW_OF:
            return _row_key(arg)
        if equality is None:
            raise UnsuitableArguments(f"values of type {arg.type.pg.display}")
        equality.physical_type((arg, arg))
        # Equal values of a type stored as text may have different texts. Rows of other types are netted by value.
        plain = arg.type.spark != "string" or equality.hashes((arg,))
        return arg if plain else _comparison_key(arg)
    except UnsuitableArguments as error:
        construct = f"DISTINCT in an aggregate on {error.problem}"
        raise Refused(Reason.GROUPING, construct, hint=_DISTINCT_HINT, token=call.at) from error


def _row_key(row: Call) -> Expr:
    """Replace each field by its comparison key; return the row itself when its text is enough to compare rows."""
    _, values = fields_of(row)
    keys = tuple(value if default_equality(value) is not None else _comparison_key(value) for value in values)
    return row if keys == values else replace(row, args=(row.args[0], *keys))


def _comparison_key(value: Expr) -> Expr:
    key = comparison_key(value)
    if key is None:
        raise UnsuitableArguments(f"values of type {value.type.pg.display}")
    return key
