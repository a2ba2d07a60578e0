"""`ARRAY(SELECT x … ORDER BY y)` -> `(SELECT array_agg(x ORDER BY y) …)`."""

from __future__ import annotations

from dataclasses import replace

from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.rewriting import select_all_from
from applier.sql.refusal import Reason, Refused


def rewrite_to_array_agg(subquery: tree.SubLink, catalog: CatalogSnapshot) -> tree.SubLink:
    """Rewrite ARRAY(SELECT …) to a scalar subquery with array_agg; without rows it is NULL, not an empty array."""
    query = subquery.query
    if not query.is_row_wise:
        query = select_all_from(query)
    (target,) = (t for t in query.targets if not t.hidden)
    by_reference = {t.group_reference: t.expression for t in query.targets}
    element = walk.type_of(target.expression)
    array = catalog.array_type(element) if element else 0
    if not array:
        hint = "aggregate with array_agg in a subquery in FROM"
        raise Refused(
            Reason.CONSTRUCT, "ARRAY of a subquery whose values have no array type", hint=hint, token=subquery.at
        )
    call = tree.Aggref(
        function=catalog.built_in("array_agg(anyarray)" if array == element else "array_agg(anynonarray)"),
        type=array,
        collation=0,
        input_collation=walk.collation(target.expression),
        args=(target.expression,),
        direct=(),
        order=tuple(tree.AggregateSort(by_reference[i.reference], i.operator, i.nulls_first) for i in query.order),
        distinct=(),
        filter=None,
        at=subquery.at,
    )
    aggregated = replace(query, targets=(replace(target, expression=call),), order=(), has_aggregates=True)
    return query_tree.replace_subquery(replace(subquery, kind=tree.SubLinkType.VALUE), aggregated, None)
