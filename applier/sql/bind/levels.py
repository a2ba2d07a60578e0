"""The query that is bound and its outer queries; what the parts of the binder ask of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from applier.plan.expr import Expr
from applier.plan.nodes import Field
from applier.sql.bound.columns import OuterCol
from applier.sql.bound.nodes import BoundQuery
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.sources import Sources


class OuterSelect(Protocol):
    """A SELECT that is being bound, as the queries inside it see it."""

    def flatten(self, expression: tree.Expression) -> tree.Expression:
        """Return an expression of this query over columns of its FROM items alone."""
        ...

    def read_outer(self, var: tree.Var) -> tuple[OuterCol, Expr]:
        """Return the column for a query inside this one, and its value over the columns of this query."""
        ...


@dataclass(frozen=True, slots=True)
class Level:
    """A query with its WITH clause; `select` is None for a set operation, which has no columns that others read."""

    query: query_tree.Query
    select: OuterSelect | None


Levels = tuple[Level, ...]
"""A query and its outer queries, the outermost first."""


@dataclass(frozen=True, slots=True)
class BoundWorkTable:
    """The rows of the last round of a recursion that is being bound."""

    recursion: int
    fields: tuple[Field, ...]


class Binder(Protocol):
    """Binds queries; one object for a whole query."""

    catalog: CatalogSnapshot
    sources: Sources
    work_tables: dict[tuple[int, str], BoundWorkTable]
    """The work tables of the recursions around this place, by the identity of the holding query and the name."""

    def bind_query(
        self, query: query_tree.Query, needed: Sequence[int], outer: Levels, also_read: Sequence[int] = ()
    ) -> BoundQuery:
        """Bind one query; `needed` are the visible targets that are read.

        The columns of the targets `also_read` are read from its FROM items, but the targets are not computed.
        """
        ...

    def bind_branch(self, branch: int | query_tree.SetOperation, needed: Sequence[int], levels: Levels) -> BoundQuery:
        """Bind a branch of a set operation."""
        ...

    def next_number(self) -> int:
        """Return an unused number for a Select or a recursion."""
        ...

    def count_item(self) -> None:
        """Count one more FROM item; refuse the query when there are too many."""
        ...
