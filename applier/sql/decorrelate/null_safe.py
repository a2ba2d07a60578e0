"""Pairs of expressions -> join keys for null-safe equality (IS NOT DISTINCT FROM). Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal

from applier.plan.expr import BOOL, Coalesce, Const, Expr, IsNull, nullable
from applier.sql.refusal import Reason, Refused
from shared_schema.change_row import Value

Pairs = tuple[tuple[Expr, Expr], ...]

_FILLERS: dict[str, Value] = {
    "boolean": False,
    "smallint": 0,
    "int": 0,
    "bigint": 0,
    "decimal": Decimal(0),
    "double": 0.0,
    "float": 0.0,
    "string": "",
    "binary": b"",
    "date": datetime.date(2000, 1, 1),
    "timestamp_ntz": datetime.datetime(2000, 1, 1),
    "timestamp": datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
}
"""Replacements of NULL. Any value will do, because the IS NULL flags are compared too."""


def null_safe_pairs(pairs: Iterable[tuple[Expr, Expr]]) -> Pairs:
    """Return the join keys that are equal exactly where each pair is equal or both NULL."""
    return tuple(key for ours, theirs in pairs for key in _null_safe_keys(ours, theirs))


def _null_safe_keys(ours: Expr, theirs: Expr) -> list[tuple[Expr, Expr]]:
    if not nullable(ours):
        return [(ours, theirs)]
    filler = Const(_filler(ours.type.spark), ours.type)
    flags = IsNull(ours, False, BOOL), IsNull(theirs, False, BOOL)
    return [flags, (Coalesce((ours, filler), ours.type), Coalesce((theirs, filler), ours.type))]


def _filler(physical_type: str) -> Value:
    kind = physical_type.partition("(")[0]
    if kind not in _FILLERS:
        hint = "join the subquery in FROM"
        raise Refused(Reason.TYPE, f"a subquery correlated by values stored as {physical_type}", hint=hint)
    return _FILLERS[kind]
