"""The text of a query -> its plan, result columns, sources and canonical text: the passes in their order."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import psycopg

from applier.plan.nodes import StreamPlan, scans
from applier.sql.analyze.analyze import AnalyzedQuery, analysis_transaction, analyze, place_of_byte, tree_with_positions
from applier.sql.analyze.function_bodies import declared_digests
from applier.sql.analyze.lexical import find_word, refuse_special_times
from applier.sql.analyze.sources import gather_sources
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bind import bind
from applier.sql.decorrelate.decorrelate import decorrelate
from applier.sql.pg_tree.read_query import read_query
from applier.sql.refusal import Place, Refused
from shared_schema.pg_types import PgType
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """What a stream table consists of: its plan, result columns, source tables and canonical query text."""

    plan: StreamPlan
    columns: tuple[tuple[str, PgType], ...]
    sources: frozenset[TableId]
    canonical: str


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
    with analysis_transaction(connection, search_path) as catalog:
        catalog.expected_digests = None if original is None else declared_digests(query) or {}
        try:
            analysed = analyze(connection, catalog, query)
        except Refused as refused:
            raise refused.with_place(find_word(query, refused.construct)) from refused.__cause__
        try:
            return _plan_analyzed(analysed, catalog, original or StoredQuery(analysed.query, analysed.analysed_at))
        except Refused as refused:
            place = refused.place or analysed.place(refused.token)
            if place is None and not refused.in_view:
                place = _find_place_by_replanning(connection, catalog, refused, query, search_path)
            raise refused.with_place(place or find_word(query, refused.construct)) from refused.__cause__


def _plan_analyzed(analysed: AnalyzedQuery, catalog: SystemCatalog, original: StoredQuery) -> PlannedQuery:
    tree = read_query(analysed.tree, analysed.major)
    refuse_special_times(original.text, tree, original.at)
    bound = bind(tree, catalog, gather_sources(tree, catalog))
    root = decorrelate(bound)
    return PlannedQuery(
        plan=StreamPlan(root, tuple(c.name for c in analysed.columns)),
        columns=tuple((c.name, c.type) for c in analysed.columns),
        sources=frozenset(scan.table for scan in scans(root)),
        canonical=analysed.canonical,
    )


def _find_place_by_replanning(
    connection: psycopg.Connection[Any], catalog: SystemCatalog, refused: Refused, query: str, search_path: str
) -> Place | None:
    """Plan the query again from a tree with positions, and return the place of the same refusal there."""
    text = tree_with_positions(connection, query, search_path)
    if text is None:
        return None
    try:
        tree = read_query(text, catalog.major)
        decorrelate(bind(tree, catalog, gather_sources(tree, catalog)))
    except Refused as again:
        if again.construct == refused.construct and again.token is not None:
            return place_of_byte(query, again.token)
    return None
