"""The front end's one entry point: query text -> definition of a stream table."""

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
from applier.sql.pg_tree.read_query import read_query
from applier.sql.refusal import Place, Refused
from shared_schema.pg_types import PgType
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """What a stream table is: the plan that keeps it, its columns, what it reads and its canonical text."""

    plan: StreamPlan
    columns: tuple[tuple[str, PgType], ...]
    sources: frozenset[TableId]
    canonical: str


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """What the user wrote, and when PostgreSQL analysed it: 'today' is only to be seen there."""

    text: str
    at: datetime.datetime


def plan_query(
    connection: psycopg.Connection[Any], query: str, search_path: str, written: StoredQuery | None = None
) -> PlannedQuery:
    """Analyse the query on the server and plan it; nothing stays behind on the server.

    `written` is the original of a query that is a canonical text by now.

    Raises DefinitionError when PostgreSQL does not accept the query, Refused when it cannot be kept exact.
    """
    with analysis_transaction(connection, search_path) as catalog:
        catalog.expected_digests = None if written is None else declared_digests(query) or {}
        try:
            analysed = analyze(connection, catalog, query)
        except Refused as refused:
            raise refused.with_place(find_word(query, refused.construct)) from refused.__cause__
        try:
            return _define(analysed, catalog, written or StoredQuery(analysed.query, analysed.analysed_at))
        except Refused as refused:
            place = refused.place or analysed.place(refused.token)
            if place is None and not refused.in_view:
                place = _asked_again(connection, catalog, refused, query, search_path)
            raise refused.with_place(place or find_word(query, refused.construct)) from refused.__cause__


def _define(analysed: AnalyzedQuery, catalog: SystemCatalog, written: StoredQuery) -> PlannedQuery:
    tree = read_query(analysed.tree, analysed.major)
    refuse_special_times(written.text, tree, written.at)
    root = bind(tree, catalog, gather_sources(tree, catalog))
    return PlannedQuery(
        plan=StreamPlan(root, tuple(c.name for c in analysed.columns)),
        columns=tuple((c.name, c.type) for c in analysed.columns),
        sources=frozenset(scan.table for scan in scans(root)),
        canonical=analysed.canonical,
    )


def _asked_again(
    connection: psycopg.Connection[Any], catalog: SystemCatalog, refused: Refused, query: str, search_path: str
) -> Place | None:
    """Where the same refusal is met in the tree that knows positions."""
    text = tree_with_positions(connection, query, search_path)
    if text is None:
        return None
    try:
        tree = read_query(text, catalog.major)
        bind(tree, catalog, gather_sources(tree, catalog))
    except Refused as again:
        if again.construct == refused.construct and again.token is not None:
            return place_of_byte(query, again.token)
    return None
