"""Values that are the same, NULL among them, as pairs of a join. Pure."""

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
"""Any value will do: whether there is one is compared beside it."""


def null_safe_pairs(sides: Iterable[tuple[Expr, Expr]]) -> Pairs:
    """What must be equal for each of these to be the same or both NULL."""
    return tuple(pair for ours, theirs in sides for pair in _same(ours, theirs))


def _same(ours: Expr, theirs: Expr) -> list[tuple[Expr, Expr]]:
    if not nullable(ours):
        return [(ours, theirs)]
    filler = Const(_filler(ours.type.spark), ours.type)
    flags = IsNull(ours, False, BOOL), IsNull(theirs, False, BOOL)
    return [flags, (Coalesce((ours, filler), ours.type), Coalesce((theirs, filler), ours.type))]


def _filler(physical_type: str) -> Value:
    kind = physical_type.partition("(")[0]
    if kind not in _FILLERS:
        hint = "join the subquery in FROM"
        raise Refused(Reason.TYPE, f"a subquery asked with values held as {physical_type}", hint=hint)
    return _FILLERS[kind]
