"""Which rows of a node are asked for: those whose keys have one of some values. A change asks for what it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.functions.emit import spark_sql
from applier.operators.support.inputs import INDEXED_TYPES, QueryKeys
from applier.plan.expr import Col, Expr, renumber, substituted


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """`keys` are over the node's output; `values` is a SELECT of what they may be, q0, q1 …

    With `null_safe` NULL is a value like any other, else nothing equals it. `small`: the values are few.
    """

    keys: tuple[Expr, ...]
    values: str
    null_safe: bool
    small: bool

    @classmethod
    def of(cls, keys: Sequence[Expr], asking: Sequence[str], rows: str, *, null_safe: bool, small: bool) -> KeyFilter:
        """The keys are to be what the texts `asking` are in these rows."""
        return cls.any_of(keys, [(asking, rows)], null_safe=null_safe, small=small)

    @classmethod
    def any_of(
        cls, keys: Sequence[Expr], askers: Sequence[tuple[Sequence[str], str]], *, null_safe: bool, small: bool
    ) -> KeyFilter:
        """The keys are to be what some texts are in some rows, of any of the askers."""
        values = [
            f"SELECT {', '.join(f'{text} AS q{i}' for i, text in enumerate(asking)) or '1'} FROM ({rows})"
            for asking, rows in askers
        ]
        return cls(tuple(keys), " UNION ALL ".join(values), null_safe, small)

    def apply(self, zset: str, texts: Sequence[str] | None = None) -> str:
        """The rows of a Z-set that are wanted; `texts` are the keys where the columns have other names."""
        if not self.keys:
            return zset
        sign = "<=>" if self.null_safe else "="
        names = [spark_sql(key) for key in self.keys] if texts is None else texts
        same = " AND ".join(f"{name} {sign} q{i}" for i, name in enumerate(names))
        hint = "/*+ BROADCAST(q) */ " if self.small else ""
        return f"SELECT {hint}b.* FROM ({zset}) b LEFT SEMI JOIN ({self.values}) q ON {same}"

    def through(self, exprs: Sequence[Expr]) -> KeyFilter:
        """The same rows asked of an input of which these expressions are computed."""
        return replace(self, keys=tuple(substituted(key, exprs) for key in self.keys))

    def some(self, places: Sequence[int], offset: int) -> KeyFilter:
        """Asked by some of the keys only, of an input whose columns begin at `offset`: at least the same rows."""
        values = ", ".join(f"q{place} AS q{i}" for i, place in enumerate(places))
        keys = tuple(renumber(self.keys[place], lambda ordinal: ordinal - offset) for place in places)
        return replace(self, keys=keys, values=f"SELECT {values} FROM ({self.values})")

    def asked(self) -> QueryKeys | None:
        """By which of the keys the rows are found by value; None for no way."""
        if self.small:
            for place, key in enumerate(self.keys):
                if isinstance(key, Col) and key.type.spark in INDEXED_TYPES:
                    return QueryKeys(key.ordinal, f"SELECT q{place} AS q0 FROM ({self.values})", self.null_safe)
        return None

    def ordinals(self) -> list[int] | None:
        """Of the keys, when all are plain columns."""
        plain = [key.ordinal for key in self.keys if isinstance(key, Col)]
        return plain if len(plain) == len(self.keys) else None
