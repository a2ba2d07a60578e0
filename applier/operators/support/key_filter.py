"""Keys of a change -> a filter that selects the rows of a node with those keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.functions.emit import spark_sql
from applier.operators.support.inputs import INDEXED_TYPES, QueryKeys
from applier.plan.expr import Col, Expr, renumber, substitute
from applier.zset import ZSet


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """`keys` are over the node's output; `values` is a SELECT of the values that they may have, q0, q1 …

    With `null_safe` NULL equals NULL, otherwise it equals nothing. `small`: the values are few.
    """

    keys: tuple[Expr, ...]
    values: str
    null_safe: bool
    small: bool

    @classmethod
    def of(
        cls, keys: Sequence[Expr], key_texts: Sequence[str], rows: ZSet, *, null_safe: bool, small: bool
    ) -> KeyFilter:
        """Select rows whose keys are equal to the expressions `key_texts` in one of these rows."""
        return cls.any_of(keys, [(key_texts, rows)], null_safe=null_safe, small=small)

    @classmethod
    def any_of(
        cls, keys: Sequence[Expr], sources: Sequence[tuple[Sequence[str], ZSet]], *, null_safe: bool, small: bool
    ) -> KeyFilter:
        """The same for several sources; each is its key expressions and its rows."""
        values = [
            f"SELECT {', '.join(f'{text} AS q{i}' for i, text in enumerate(key_texts)) or '1'} FROM ({rows.sql})"
            for key_texts, rows in sources
        ]
        return cls(tuple(keys), " UNION ALL ".join(values), null_safe, small)

    def apply(self, zset: ZSet, texts: Sequence[str] | None = None) -> ZSet:
        """Return the rows of a Z-set that the filter selects; `texts` are the keys, where columns have other names."""
        if not self.keys:
            return zset
        sign = "<=>" if self.null_safe else "="
        names = [spark_sql(key) for key in self.keys] if texts is None else texts
        same = " AND ".join(f"{name} {sign} q{i}" for i, name in enumerate(names))
        hint = "/*+ BROADCAST(q) */ " if self.small else ""
        return ZSet(f"SELECT {hint}b.* FROM ({zset.sql}) b LEFT SEMI JOIN ({self.values}) q ON {same}", zset.columns)

    def push_through(self, exprs: Sequence[Expr]) -> KeyFilter:
        """Return the same filter over the input from which these expressions are computed."""
        return replace(self, keys=tuple(substitute(key, exprs) for key in self.keys))

    def restrict_to(self, places: Sequence[int], offset: int) -> KeyFilter:
        """Return a filter by some of the keys only, over an input whose columns begin at `offset`.

        It selects at least the same rows.
        """
        values = ", ".join(f"q{place} AS q{i}" for i, place in enumerate(places))
        keys = tuple(renumber(self.keys[place], lambda ordinal: ordinal - offset) for place in places)
        return replace(self, keys=keys, values=f"SELECT {values} FROM ({self.values})")

    def index_lookup(self) -> QueryKeys | None:
        """Return the lookup by the first key that an index supports; None when there is none."""
        if self.small:
            for place, key in enumerate(self.keys):
                if isinstance(key, Col) and key.type.spark in INDEXED_TYPES:
                    return QueryKeys(key.ordinal, f"SELECT q{place} AS q0 FROM ({self.values})", self.null_safe)
        return None

    def column_ordinals(self) -> list[int] | None:
        """Return the ordinals of the keys when all are plain columns, otherwise None."""
        plain = [key.ordinal for key in self.keys if isinstance(key, Col)]
        return plain if len(plain) == len(self.keys) else None
