"""Z-sets as Spark SQL text: rows c0..cn-1 with an integer weight. The few words every operator is written with.

A table is the Z-set whose weights count its rows; a delta has negative weights for what leaves. An operator maps SELECT
texts to a SELECT text, so a whole plan is parsed and analysed by Spark once, however deep it is.
"""

from __future__ import annotations

WEIGHT = "__w"


def column_name(ordinal: int) -> str:
    """The name of a node's output column."""
    return f"c{ordinal}"


def column_names(width: int) -> list[str]:
    """c0..c(width-1)."""
    return [column_name(i) for i in range(width)]


def select(columns: list[str], weight: str, source: str) -> str:
    """SELECT with the columns under their positional names, then the weight; `source` is what follows FROM."""
    named = [f"{text} AS {column_name(i)}" for i, text in enumerate(columns)]
    return f"SELECT {', '.join([*named, f'{weight} AS {WEIGHT}'])} FROM {source}"


def plus(*terms: str | None) -> str | None:
    """A + B + …; a term that is None is proven empty, and so is a sum of such terms."""
    given = [term for term in terms if term is not None]
    return " UNION ALL ".join(given) if given else None
