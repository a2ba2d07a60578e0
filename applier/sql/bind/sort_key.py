"""One ORDER BY expression -> a SortKey that Spark sorts as PostgreSQL does, or a refusal."""

from __future__ import annotations

from applier.functions.allow_list import ENTRIES
from applier.functions.comparison_keys import sort_position
from applier.functions.entry import CollationNeed, UnsuitableArguments, is_ordered_by_physical_type
from applier.plan.expr import Expr
from applier.plan.sort import SortKey
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.collations import collation_of

_DIRECTIONS = {"<": False, ">": True}
_SORTABLE_PHYSICAL_TYPES = (
    "boolean", "smallint", "int", "bigint", "decimal", "float", "double", "date", "timestamp", "timestamp_ntz",
    "string", "binary",
)  # fmt: skip


def sort_key(
    compiled: Expr, expression: tree.Expression, item: query_tree.SortItem, catalog: CatalogSnapshot
) -> SortKey:
    """Build the sort key of a compiled expression; refuse an order that Spark does not have."""
    operator = catalog.operator(item.operator)
    signature = catalog.function(operator.function).signature
    entry = ENTRIES.get(signature)
    at = expression.at if isinstance(expression, tree.Var | tree.FuncExpr) else None
    hint = "order by integers, numeric(p,s), text, dates or booleans"
    try:
        if entry is None or operator.name not in _DIRECTIONS:
            raise UnsuitableArguments(f"values of type {compiled.type.pg.display}")
        entry.physical_type((compiled, compiled))
        sorted_by = _sortable_value(compiled, catalog)
    except UnsuitableArguments as error:
        raise Refused(Reason.ORDER, f"ORDER BY on {error.problem}", hint=hint, token=at) from error
    if entry.collation is not CollationNeed.NONE:
        collation = collation_of(expression, compiled, catalog)
        if collation is not None and not collation.byte_order:
            construct = f"text order under the collation {collation.name}"
            hint = 'declare the column COLLATE "C", or order by another column'
            raise Refused(Reason.COLLATION, construct, hint=hint, token=at)
    return SortKey(sorted_by, _DIRECTIONS[operator.name], item.nulls_first)


def _sortable_value(value: Expr, catalog: CatalogSnapshot) -> Expr:
    """Return the value itself, or an expression that sorts as PostgreSQL sorts the value."""
    if value.type.spark.partition("(")[0] in _SORTABLE_PHYSICAL_TYPES and is_ordered_by_physical_type(value.type):
        return value
    oid = catalog.type(value.type.pg.oid).base
    position = sort_position(value, tuple(catalog.labels(oid).values()) if catalog.type(oid).is_enum else None)
    if position is None:
        raise UnsuitableArguments(f"values of type {value.type.pg.display}")
    return position
