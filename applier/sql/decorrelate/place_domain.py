"""The domain -> one more item of FROM: first, or on the preserved side of an outer join that reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from applier.plan.expr import Expr
from applier.sql.bound.nodes import (
    FromTree,
    FunctionItem,
    InnerJoinTree,
    ItemRef,
    OuterJoinKind,
    OuterJoinTree,
    QueryItem,
    Select,
    ValuesItem,
)
from applier.sql.decorrelate.scope import DOMAIN_ITEM, Domain, items_read
from applier.sql.refusal import Reason, Refused


def place_domain(select: Select, domain: Domain | None) -> tuple[FromTree, ...]:
    """Return FROM with the domain in it; the same FROM where there is none."""
    if domain is None:
        return select.tables
    reading = [item for item in _outer_joins(select.tables) if _reads_domain(item, select)]
    if not reading:
        return (ItemRef(DOMAIN_ITEM), *select.tables)
    found = [_add_domain(item, reading[0], select) for item in select.tables]
    tables = tuple(item for item in found if item is not None)
    if len(reading) > 1 or len(tables) < len(found):
        construct = "a subquery that reads its outer query inside more than one outer join, or inside a full join"
        raise Refused(Reason.CONSTRUCT, construct, hint="join the subquery in FROM", token=domain.at)
    return tables


def _outer_joins(tables: Sequence[FromTree]) -> Iterator[OuterJoinTree]:
    """Yield the outer joins that are not inside another outer join."""
    for item in tables:
        if isinstance(item, OuterJoinTree):
            yield item
        elif isinstance(item, InnerJoinTree):
            yield from _outer_joins((item.left, item.right))


def _reads_domain(item: FromTree, select: Select) -> bool:
    if isinstance(item, ItemRef):
        return _item_reads_domain(item, select)
    conditions = _read_domain(select, item.on)
    return conditions or any(_reads_domain(side, select) for side in (item.left, item.right))


def _item_reads_domain(item: ItemRef, select: Select) -> bool:
    match select.items[item.item]:
        case QueryItem(correlation=correlation):
            return any(read.select != select.number for read in correlation.reads)
        case FunctionItem(functions=functions):
            return _read_domain(select, [arg for f in functions for arg in f.args])
        case ValuesItem(rows=rows):
            return _read_domain(select, [value for row in rows for value in row])
        case _:
            return False


def _read_domain(select: Select, exprs: Sequence[Expr]) -> bool:
    return any(DOMAIN_ITEM in items_read(select, expr) for expr in exprs)


def _add_domain(item: FromTree, reading: OuterJoinTree, select: Select) -> FromTree | None:
    if item is reading:
        return _add_to_preserved_side(reading, select)
    if not isinstance(item, InnerJoinTree):
        return item
    left, right = (_add_domain(side, reading, select) for side in (item.left, item.right))
    return None if left is None or right is None else replace(item, left=left, right=right)


def _add_to_preserved_side(item: FromTree, select: Select) -> FromTree | None:
    """Add the domain to the preserved side of the item, where none of its rows is lost; None if that is impossible."""
    if not isinstance(item, OuterJoinTree):
        return InnerJoinTree(ItemRef(DOMAIN_ITEM), item, ())
    preserved, other = (item.left, item.right) if item.kind is OuterJoinKind.LEFT else (item.right, item.left)
    # A single LATERAL item can read the domain. Items that are joined with each other first cannot.
    if item.kind is OuterJoinKind.FULL or (not isinstance(other, ItemRef) and _reads_domain(other, select)):
        return None
    with_domain = _add_to_preserved_side(preserved, select)
    if with_domain is None:
        return None
    return replace(item, left=with_domain) if item.kind is OuterJoinKind.LEFT else replace(item, right=with_domain)
