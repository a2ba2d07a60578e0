"""A query -> the relations that it reads, with the queries of its views. Refuses what cannot be captured. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from applier.sql.catalog_snapshot import CatalogSnapshot, RelationInfo
from applier.sql.pg_tree import query_tree
from applier.sql.pg_tree.read_query import read_query
from applier.sql.refusal import Reason, Refused, inside_view

SYSTEM_SCHEMAS = frozenset({"pg_catalog", "information_schema", "pg_toast"})
_KINDS = {
    "m": ("the materialized view", "its changes cannot be captured; read the tables of its query"),
    "f": ("the foreign table", "its changes cannot be captured; copy its rows into an ordinary table"),
    "S": ("the sequence", "read a table"),
    "c": ("the composite type", "read a table"),
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Every relation by object id, and the query of each view."""

    relations: dict[int, RelationInfo]
    views: dict[int, query_tree.Query]


def read_sources(query: query_tree.Query, catalog: CatalogSnapshot) -> Sources:
    """Return the relations of a query, then those of its views, and so on."""
    relations: dict[int, RelationInfo] = {}
    views: dict[int, query_tree.Query] = {}
    unread = set(_relations(query))
    while unread:
        found = {oid: catalog.relations[oid] for oid in sorted(unread)}
        relations |= found
        unread = set()
        for oid, relation in found.items():
            if relation.rule is not None and relation.table.schema not in SYSTEM_SCHEMAS:
                with inside_view(relation.table):
                    views[oid] = read_query(relation.rule, catalog.major)
                    unread |= set(_relations(views[oid]))
        unread -= relations.keys()
    return Sources(relations, views)


def from_entries(items: tuple[query_tree.FromItem, ...]) -> Iterator[int]:
    """Yield the range-table entries in FROM, in the order of the text."""
    for item in items:
        match item:
            case query_tree.RangeTblRef():
                yield item.entry
            case query_tree.InnerJoinExpr() | query_tree.OuterJoinExpr():
                yield from from_entries((item.left, item.right))


def source_entries(query: query_tree.Query) -> Iterator[int]:
    """Yield the range-table entries whose rows make the result: those in FROM, or the branches of a set operation."""
    yield from from_entries(query.items)
    if query.union is not None:
        yield from query.union.entries()


def _relations(query: query_tree.Query) -> Iterator[int]:
    for number in source_entries(query):
        match query.entries[number - 1]:
            case query_tree.TableEntry(relation=oid):
                yield oid
            case _:
                continue
    for inner in query_tree.inner_queries(query):
        yield from _relations(inner)


def check_source(relation: RelationInfo, with_children: bool) -> None:
    """Refuse a relation whose changes are not captured, or are captured under another name."""
    if relation.table.schema in SYSTEM_SCHEMAS:
        raise _refused(
            f"the system catalog {relation.table}", "its changes cannot be captured; read a table of your own"
        )
    if relation.security_barrier:
        raise _refused(f"the security_barrier view {relation.table}", "read the tables of the view directly")
    if relation.kind == "v":
        return
    if relation.kind in _KINDS:
        what, hint = _KINDS[relation.kind]
        raise _refused(f"{what} {relation.table}", hint)
    if relation.kind not in ("r", "p"):
        raise _refused(f"the relation {relation.table} of kind {relation.kind!r}", "read a table")
    if relation.persistence != "p":
        what = "temporary" if relation.persistence == "t" else "unlogged"
        raise _refused(
            f"the {what} table {relation.table}", "its changes are not in the write-ahead log; use an ordinary table"
        )
    if relation.row_security:
        hint = "its rows depend on the role that reads; use a table without policies"
        raise _refused_in_full(f"row-level security on {relation.table}", hint)
    if relation.is_partition:
        hint = "its changes are captured as those of the partitioned table; read that table and filter"
        raise _refused_in_full(f"the single partition {relation.table}", hint)
    if relation.kind == "p" and not with_children:
        raise _refused(f"ONLY {relation.table}", "a partitioned table has no rows of its own; remove ONLY")
    if relation.uncaptured_partition is not None:
        construct = f"the partition {relation.uncaptured_partition} of {relation.table}"
        raise _refused_in_full(construct, "its changes are not in the write-ahead log; make it an ordinary table")
    if relation.kind == "r" and relation.has_children and with_children:
        hint = "write ONLY to leave the child tables out, or use a partitioned table"
        raise _refused_in_full(f"the child tables of {relation.table} (inheritance)", hint)


def _refused_in_full(construct: str, hint: str) -> Refused:
    """Refuse FULL mode too: nothing says when PostgreSQL should run the query again, or for which role."""
    return Refused(Reason.SOURCE, construct, hint=hint, full_in_postgres=False)


def _refused(construct: str, hint: str) -> Refused:
    return Refused(Reason.SOURCE, construct, hint=hint)
