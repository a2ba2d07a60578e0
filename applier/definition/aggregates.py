"""One aggregate: looked up in the allow-list, its arguments, FILTER, DISTINCT and ORDER BY checked. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from applier.definition import query_tree, tree
from applier.definition.catalog import Catalog
from applier.definition.compile import Compiler
from applier.definition.group_key import default_equality
from applier.definition.joins import total
from applier.definition.refusal import Reason, Refused
from applier.definition.sort_key import sort_key
from applier.expressions.aggregate_entry import AggregateEntry, OfList, OfSet
from applier.expressions.aggregates import AGGREGATES
from applier.expressions.allow_list import ENTRIES
from applier.expressions.entry import CollationNeed, Unfit
from applier.expressions.keys import joined_labels
from applier.expressions.rows import ROW_OF, fields_of
from applier.plan.expr import AggregateCall, Call, Case, Const, Expr, SortKey, ValueType
from applier.plan.nodes import Node, tells_apart

_ORDER_HINT = "order by columns that tell all rows apart (add the primary key), or by the argument itself"


def plan_aggregate(call: tree.AggregateOf, below: Compiler, catalog: Catalog, node: Node) -> AggregateCall:
    """The call over the node below, which `below` compiles for."""
    info = catalog.function(call.function)
    entry = AGGREGATES.get(info.signature)
    if entry is None:
        hint = "it is not yet proven equal in Spark; count, sum, avg, min and max are"
        raise Refused(Reason.FUNCTION, f"the aggregate {info.signature}", hint=hint, token=call.at)
    condition = None if call.filter is None else below.compile(call.filter)
    args = tuple(_guarded(below.compile(arg), condition) for arg in call.args)
    if entry.ordered_labels:
        args = (*args, joined_labels(tuple(catalog.labels(args[0].type.pg.oid).values())))
    direct = tuple(below.compile(arg) for arg in call.direct)
    form = entry.form_of(args)
    try:
        carrier = entry.carrier((*direct, *args))
    except Unfit as error:
        construct = f"the aggregate {info.signature} on {error.problem}"
        raise Refused(
            Reason.CARRIER, construct, hint=error.hint or "cast or store the values in another type", token=call.at
        ) from error
    _check_collation(entry, call.input_collation, call, catalog)
    # However often a value comes makes no difference to a function of the set.
    distinct = bool(call.distinct) and not isinstance(form, OfSet)
    if distinct:
        _check_distinct(entry, call, args, catalog)
    order: tuple[SortKey, ...] = ()
    if isinstance(form, OfList):
        order = tuple(
            sort_key(
                _guarded(below.compile(key.expression), condition),
                key.expression,
                query_tree.SortItem(0, key.operator, key.nulls_first),
                catalog,
            )
            for key in call.order
        )
        if not (form.default_order and not order) and not _decided(order, args, node):
            construct = f"{info.name} over rows in no fixed order"
            raise Refused(Reason.ORDER, construct, hint=_ORDER_HINT, token=call.at)
    return AggregateCall(
        info.signature,
        args,
        ValueType(catalog.pg_type(call.type, -1), carrier),
        nullable=not entry.never_null,
        distinct=distinct,
        filter=condition,
        order=order,
        direct=direct,
    )


def _guarded(arg: Expr, condition: Expr | None) -> Expr:
    """An argument that may raise is not evaluated where FILTER leaves the row out."""
    if condition is None or total(arg):
        return arg
    return Case(((condition, arg),), Const(None, arg.type), arg.type)


def _check_collation(entry: AggregateEntry, collation_id: int, call: tree.AggregateOf, catalog: Catalog) -> None:
    if entry.collation is not CollationNeed.ORDER:
        return
    collation = catalog.collation(collation_id)
    if not collation.byte_order:
        raise _text_order(collation.name, call)


def _text_order(collation: str, call: tree.AggregateOf) -> Refused:
    hint = 'declare the column COLLATE "C"'
    return Refused(Reason.COLLATION, f"text order under the collation {collation}", hint=hint, token=call.at)


def _check_distinct(entry: AggregateEntry, call: tree.AggregateOf, args: Sequence[Expr], catalog: Catalog) -> None:
    hint = "group in a subquery first"
    if not entry.takes_distinct:
        construct = f"DISTINCT in the aggregate {entry.signature}"
        raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=call.at)
    for operator, arg, written in zip(call.distinct, args, call.args, strict=False):
        equality = ENTRIES.get(catalog.function(catalog.operator(operator).function).signature)
        if _is_plain_row(arg):
            continue
        try:
            # Of what is held as text, equal values may have different texts.
            if equality is None or (arg.type.spark == "string" and not equality.hashes((arg,))):
                raise Unfit(f"values of type {arg.type.pg.display}")
            equality.carrier((arg, arg))
        except Unfit as error:
            raise Refused(
                Reason.GROUPING, f"DISTINCT in an aggregate on {error.problem}", hint=hint, token=call.at
            ) from error
        if equality.collation is not CollationNeed.NONE:
            collation = catalog.collation(tree.collation(written))
            if not collation.deterministic:
                construct = f"DISTINCT under the nondeterministic collation {collation.name}"
                raise Refused(Reason.COLLATION, construct, hint='declare the column COLLATE "C"', token=call.at)


def _is_plain_row(arg: Expr) -> bool:
    """Whether it is a row whose text is the same for equal rows only, because that holds for each of its fields."""
    if not isinstance(arg, Call) or arg.signature != ROW_OF:
        return False
    return all(default_equality(part) is not None for part in fields_of(arg)[1])


def _decided(order: Sequence[SortKey], args: Sequence[Expr], node: Node) -> bool:
    """Rows that the order does not tell apart must have the same arguments, or there is no one right answer."""
    keys = tuple(key.expr for key in order)
    return bool(order) and (tells_apart(node, keys) or all(isinstance(arg, Const) or arg in keys for arg in args))
