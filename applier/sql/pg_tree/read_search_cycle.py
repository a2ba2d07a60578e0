"""The node of a recursive CTE -> its SEARCH and CYCLE clauses, strictly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.node_text import TextNode

Read = Callable[[TextNode], tree.Expression]


def read_search_cycle(cte: Fields, major: int, read: Read) -> query_tree.SearchCycle | None:
    """Read the SEARCH and CYCLE clauses of a CTE; None where it has neither."""
    names = cte.texts("ctecolnames")
    search, cycle = cte.optional("search_clause"), cte.optional("cycle_clause")
    if search is None and cycle is None:
        return None
    return query_tree.SearchCycle(
        None if search is None else _search(Fields(search, major), names),
        None if cycle is None else _cycle(Fields(cycle, major), names, read),
    )


def _places(listed: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    if not set(listed) <= set(names):
        raise unknown("a column of SEARCH or CYCLE that the CTE does not have")
    return tuple(names.index(name) for name in listed)


def _search(fields: Fields, names: Sequence[str]) -> query_tree.Search:
    found = query_tree.Search(_places(fields.texts("search_col_list"), names), fields.flag("search_breadth_first"))
    fields.finish()
    return found


def _cycle(fields: Fields, names: Sequence[str], read: Read) -> query_tree.Cycle:
    found = query_tree.Cycle(
        places=_places(fields.texts("cycle_col_list"), names),
        mark=read(fields.node("cycle_mark_value")),
        default=read(fields.node("cycle_mark_default")),
        type=fields.integer("cycle_mark_type"),
        typmod=fields.integer("cycle_mark_typmod"),
        collation=fields.integer("cycle_mark_collation"),
        not_equal=fields.integer("cycle_mark_neop"),
    )
    fields.finish()
    return found
