"""An expression -> the collation under which its values are compared."""

from __future__ import annotations

from applier.plan.expr import Expr
from applier.sql.catalog_snapshot import CatalogSnapshot, CollationInfo
from applier.sql.pg_tree import tree, walk
from applier.sql.pg_tree.fields import unknown

_COLLATED = frozenset({"text", "varchar", "bpchar", "name"})


def collation_of(written: tree.Expression, value: Expr, catalog: CatalogSnapshot) -> CollationInfo | None:
    """Return the collation of an expression; None for arrays of values without a collation."""
    oid, name = walk.collation(written), value.type.pg.name
    if oid:
        return catalog.collation(oid)
    if name.startswith("_") and name[1:] not in _COLLATED:
        return None
    raise unknown("a text without a known collation")
