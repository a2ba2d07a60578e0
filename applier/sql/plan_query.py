"""The text of a query -> its plan, result columns and sources: the passes in their order.

analyze → read the tree → bind, which decorrelates and types. Only `analyze` does IO; every later pass is a function of
the one before it and of the catalog snapshot.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import psycopg

from applier.plan.nodes import Node, StreamPlan, scans
from applier.sql.analyze.analyze import AnalyzedQuery, analyze, place_of_byte, tree_with_positions
from applier.sql.bind.bind import bind
from applier.sql.decorrelate.decorrelate import decorrelate
from applier.sql.lexical import declared_digests, find_word, refuse_special_times
from applier.sql.pg_tree.read_query import read_query
from applier.sql.refusal import Place, Refused
from applier.sql.sources import read_sources
from shared_schema.pg_types import PgType
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """What a stream table consists of: its plan, result columns and source tables."""

    plan: StreamPlan
    columns: tuple[tuple[str, PgType], ...]
    sources: frozenset[TableId]


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """The text that the user wrote, and when PostgreSQL analysed it. Only this text still shows a 'today'."""

    text: str
    at: datetime.datetime


def plan_query(
    connection: psycopg.Connection[Any], query: str, search_path: str, original: StoredQuery | None = None
) -> PlannedQuery:
    """Analyse the query on the server and plan it. Leaves nothing behind on the server.

    Where `query` is the canonical text of a stored query, `original` is what the user wrote.

    Raises DefinitionError when PostgreSQL does not accept the query, Refused when it cannot be maintained exactly.
    """
    return plan_analyzed(connection, analyze_query(connection, query, search_path, original), original)


def analyze_query(
    connection: psycopg.Connection[Any], query: str, search_path: str, original: StoredQuery | None = None
) -> AnalyzedQuery:
    """Run the first pass; of a stored query, the functions must be those that it was created with."""
    try:
        digests = None if original is None else declared_digests(query) or {}
        return analyze(connection, query, search_path, digests)
    except Refused as refused:
        raise refused.with_place(find_word(query, refused.construct)) from refused.__cause__


def plan_analyzed(
    connection: psycopg.Connection[Any], analyzed: AnalyzedQuery, original: StoredQuery | None = None
) -> PlannedQuery:
    """Run the other passes. The connection is used only to find the place of a refusal in the text."""
    written = original or StoredQuery(analyzed.query, analyzed.analysed_at)
    try:
        root = _plan_tree(analyzed.tree, analyzed, written)
    except Refused as refused:
        place = refused.place or analyzed.place(refused.token)
        if place is None and not refused.in_view:
            place = _find_place_by_replanning(connection, analyzed, refused, written)
        raise refused.with_place(place or find_word(analyzed.query, refused.construct)) from refused.__cause__
    return PlannedQuery(
        plan=StreamPlan(root, tuple(column.name for column in analyzed.columns)),
        columns=tuple((column.name, column.type) for column in analyzed.columns),
        sources=frozenset(scan.table for scan in scans(root)),
    )


def _plan_tree(tree_text: str, analyzed: AnalyzedQuery, written: StoredQuery) -> Node:
    tree = read_query(tree_text, analyzed.catalog.major)
    refuse_special_times(written.text, tree, written.at)
    bound = bind(tree, analyzed.catalog, read_sources(tree, analyzed.catalog))
    return decorrelate(bound)


def _find_place_by_replanning(
    connection: psycopg.Connection[Any], analyzed: AnalyzedQuery, refused: Refused, written: StoredQuery
) -> Place | None:
    """Plan the query again from a tree with positions, and return the place of the same refusal there."""
    text = tree_with_positions(connection, analyzed.query, analyzed.search_path)
    if text is None:
        return None
    try:
        _plan_tree(text, analyzed, written)
    except Refused as again:
        if again.construct == refused.construct and again.token is not None:
            return place_of_byte(analyzed.query, again.token)
    return None
