"""One key of ORDER BY, wherever it stands: compared alike by Spark and PostgreSQL, or refused. Pure."""

from __future__ import annotations

from applier.definition import query_tree, tree
from applier.definition.catalog import Catalog
from applier.definition.refusal import Reason, Refused
from applier.expressions.allow_list import ENTRIES
from applier.expressions.entry import CollationNeed, Unfit, ordered_by_carrier
from applier.plan.expr import Expr
from applier.plan.order import SortKey

_DIRECTIONS = {"<": False, ">": True}
_SORTED_CARRIERS = (
    "boolean", "smallint", "int", "bigint", "decimal", "float", "double", "date", "timestamp", "timestamp_ntz",
    "string", "binary",
)  # fmt: skip


def sort_key(compiled: Expr, expression: tree.Expression, item: query_tree.SortItem, catalog: Catalog) -> SortKey:
    """One key of an order that Spark shares with PostgreSQL."""
    operator = catalog.operator(item.operator)
    signature = catalog.function(operator.function).signature
    entry = ENTRIES.get(signature)
    at = expression.at if isinstance(expression, tree.Var | tree.Apply) else None
    hint = "order by integers, numeric(p,s), text, dates or booleans"
    try:
        if entry is None or operator.name not in _DIRECTIONS:
            raise Unfit(f"values of type {compiled.type.pg.display}")
        entry.carrier((compiled, compiled))
        if compiled.type.spark.partition("(")[0] not in _SORTED_CARRIERS or not ordered_by_carrier(compiled.type):
            raise Unfit(f"values held as {compiled.type.spark}")
    except Unfit as error:
        raise Refused(Reason.ORDER, f"ORDER BY of {error.problem}", hint=hint, token=at) from error
    if entry.collation is not CollationNeed.NONE:
        collation = catalog.collation(tree.collation(expression))
        if not collation.byte_order:
            construct = f"text order under the collation {collation.name}"
            hint = 'declare the column COLLATE "C", or order by another column'
            raise Refused(Reason.COLLATION, construct, hint=hint, token=at)
    return SortKey(compiled, _DIRECTIONS[operator.name], item.nulls_first)
