"""Keys of a change -> a filter that selects the rows of a node with those keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from applier.functions.emit import spark_sql
from applier.operators.support.inputs import INDEXED_TYPES
from applier.plan.expr import Col, Expr, renumber, substitute
from applier.zset import ZSet

if TYPE_CHECKING:
    from applier.operators.support.delta_plan import RowsPlan

KeySource = tuple[tuple[str, ...], "RowsPlan"]
"""Key expressions, and the rows over which they are evaluated."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyFilter:
    """`keys` are over the node's output; the `sources` give the values that they may have, as columns q0, q1 …

    With `null_safe` NULL equals NULL, otherwise it equals nothing. `broadcast`: the values are few.
    """

    keys: tuple[Expr, ...]
    sources: tuple[KeySource, ...]
    null_safe: bool
    broadcast: bool
    picks: tuple[tuple[int, ...], ...] = ()
    """Which of the values are used, one choice after the other."""

    @classmethod
    def of(
        cls, keys: Sequence[Expr], key_texts: Sequence[str], rows: RowsPlan, *, null_safe: bool, broadcast: bool
    ) -> KeyFilter:
        """Select rows whose keys are equal to the expressions `key_texts` in one of these rows."""
        return cls(tuple(keys), ((tuple(key_texts), rows),), null_safe, broadcast)

    def push_through(self, exprs: Sequence[Expr]) -> KeyFilter:
        """Return the same filter over the input from which these expressions are computed."""
        return replace(self, keys=tuple(substitute(key, exprs) for key in self.keys))

    def restrict_to(self, places: Sequence[int], offset: int) -> KeyFilter:
        """Return a filter by some of the keys only, over an input whose columns begin at `offset`.

        It selects at least the same rows.
        """
        keys = tuple(renumber(self.keys[place], lambda ordinal: ordinal - offset) for place in places)
        return replace(self, keys=keys, picks=(*self.picks, tuple(places)))

    def index_lookup(self) -> KeyLookup | None:
        """Return the lookup by the first key that an index supports; None when there is none."""
        if self.broadcast:
            for place, key in enumerate(self.keys):
                if isinstance(key, Col) and key.type.spark in INDEXED_TYPES:
                    return KeyLookup(key.ordinal, place, self)
        return None

    def column_ordinals(self) -> list[int] | None:
        """Return the ordinals of the keys when all are plain columns, otherwise None."""
        plain = [key.ordinal for key in self.keys if isinstance(key, Col)]
        return plain if len(plain) == len(self.keys) else None

    def values_sql(self, sources: Sequence[ZSet]) -> str:
        """Return a SELECT of the values of the keys, from the rows of the sources."""
        selects = [
            f"SELECT {', '.join(f'{text} AS q{i}' for i, text in enumerate(texts)) or '1'} FROM ({zset.sql})"
            for (texts, _), zset in zip(self.sources, sources, strict=True)
        ]
        values = " UNION ALL ".join(selects)
        for places in self.picks:
            values = f"SELECT {', '.join(f'q{place} AS q{i}' for i, place in enumerate(places))} FROM ({values})"
        return values

    def apply(self, zset: ZSet, values: str, names: Sequence[str] | None = None) -> ZSet:
        """Return the rows of a Z-set that the filter selects; `names` are the keys, where columns have other names."""
        sign = "<=>" if self.null_safe else "="
        keys = [spark_sql(key) for key in self.keys] if names is None else names
        same = " AND ".join(f"{name} {sign} q{i}" for i, name in enumerate(keys))
        hint = "/*+ BROADCAST(q) */ " if self.broadcast else ""
        return ZSet(f"SELECT {hint}b.* FROM ({zset.sql}) b LEFT SEMI JOIN ({values}) q ON {same}", zset.columns)


@dataclass(frozen=True, slots=True, eq=False)
class KeyLookup:
    """The rows of a relation whose `column` is one of the values at `place` of a key filter."""

    column: int
    place: int
    key_filter: KeyFilter

    def values_sql(self, values: str) -> str:
        """Return a SELECT of the values, as column q0, from those of the key filter."""
        return f"SELECT q{self.place} AS q0 FROM ({values})"
