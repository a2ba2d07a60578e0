"""The text of a query -> its plan, result columns and sources: the passes in their order.

analyze → read the tree → bind, which types → decorrelate. Only `analyze` does IO; every later pass is a function of the
one before it and of the catalog snapshot.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import psycopg

from applier.errors import QueryTooLarge
from applier.operators.check_text import check_text
from applier.plan.limits import DEFAULT_LIMITS, SPLIT, PlanBudget, PlanLimits
from applier.plan.nodes import Node, StreamPlan, scans
from applier.sql.analyze.analyze import (
    AnalyzedQuery,
    RequestedQuery,
    analyze,
    analyze_requested,
    place_of_byte,
    tree_with_positions,
)
from applier.sql.bind.bind import bind
from applier.sql.by_itself import CHANGES_BY_ITSELF, find_change_by_itself
from applier.sql.decorrelate.decorrelate import decorrelate
from applier.sql.lexical import declared_digests, find_word, refuse_special_times
from applier.sql.pg_tree.read_query import read_query
from applier.sql.refusal import DefinitionError, Place, Reason, Refused
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
    connection: psycopg.Connection[Any],
    query: str,
    search_path: str,
    original: StoredQuery | None = None,
    role: str | None = None,
    *,
    limits: PlanLimits = DEFAULT_LIMITS,
) -> PlannedQuery:
    """Analyse the query on the server with the rights of a role and plan it. Leaves nothing behind on the server.

    Where `query` is the canonical text of a stored query, `original` is what the user wrote.

    Raises DefinitionError when PostgreSQL does not accept the query, Refused when it cannot be maintained exactly.
    """
    return plan_analyzed(connection, analyze_query(connection, query, search_path, original, role), original, limits)


def plan_requested(
    connection: psycopg.Connection[Any], requested: RequestedQuery, role: str, limits: PlanLimits = DEFAULT_LIMITS
) -> PlannedQuery:
    """Plan a question of another session, with the rights of its role. Nothing of the question is run.

    Raises DefinitionError when the role may not read it or an object is not visible yet, Refused as `plan_query`.
    """
    analyzed = analyze_requested(connection, requested, role)
    try:
        return plan_analyzed(connection, analyzed, limits=limits)
    except KeyError as error:
        hint = "ask after the commit of the transaction that created it"
        raise DefinitionError("an object of the query does not exist yet for others", hint=hint) from error


def analyze_query(
    connection: psycopg.Connection[Any],
    query: str,
    search_path: str,
    original: StoredQuery | None = None,
    role: str | None = None,
) -> AnalyzedQuery:
    """Run the first pass; of a stored query, the functions must be those that it was created with."""
    try:
        digests = None if original is None else declared_digests(query) or {}
        return analyze(connection, query, search_path, digests, role)
    except Refused as refused:
        raise refused.with_place(find_word(query, refused.construct)) from refused.__cause__


def plan_analyzed(
    connection: psycopg.Connection[Any],
    analyzed: AnalyzedQuery,
    original: StoredQuery | None = None,
    limits: PlanLimits = DEFAULT_LIMITS,
) -> PlannedQuery:
    """Run the other passes. The connection is used only to find the place of a refusal in the text."""
    written = original or StoredQuery(analyzed.query, analyzed.analysed_at)
    try:
        root, has_large_deltas = _plan_within(limits, analyzed, written)
    except Refused as first:
        refused = _strongest(first, analyzed)
        place = refused.place or analyzed.place(refused.token)
        if place is None and not refused.in_view:
            place = _find_place_by_replanning(connection, analyzed, refused, written, limits)
        raise refused.with_place(place or find_word(analyzed.query, refused.construct)) from refused.__cause__
    return PlannedQuery(
        plan=StreamPlan(root, tuple(column.name for column in analyzed.columns), not has_large_deltas),
        columns=tuple((column.name, column.type) for column in analyzed.columns),
        sources=frozenset(scan.table for scan in scans(root)),
    )


def _strongest(refused: Refused, analyzed: AnalyzedQuery) -> Refused:
    """Return a refusal, or that of what lets the result change by itself: planning stops at what it meets first."""
    if refused.reason in CHANGES_BY_ITSELF or not refused.full_in_postgres:
        return refused
    return find_change_by_itself(analyzed.tree, analyzed.catalog) or refused


def _plan_within(limits: PlanLimits, analyzed: AnalyzedQuery, written: StoredQuery) -> tuple[Node, bool]:
    """Plan the query and write the texts of its refreshes; refuse it when it is too large in form.

    Returns also whether a delta over many change rows can be written.
    """
    budget = PlanBudget(limits)
    try:
        root = _plan_tree(analyzed.tree, analyzed, written, budget)
        return root, check_text(root, budget)
    except (QueryTooLarge, RecursionError) as error:
        problem, hint = (
            (error.problem, error.hint) if isinstance(error, QueryTooLarge) else ("a query nested that deeply", SPLIT)
        )
        raise Refused(Reason.SIZE, problem, hint=hint, place=Place.start()) from error


def _plan_tree(tree_text: str, analyzed: AnalyzedQuery, written: StoredQuery, budget: PlanBudget) -> Node:
    tree = read_query(tree_text, analyzed.catalog.major)
    refuse_special_times(written.text, tree, written.at)
    budget.check_time()
    bound = bind(tree, analyzed.catalog, read_sources(tree, analyzed.catalog))
    budget.check_time()
    return decorrelate(bound, budget)


def _find_place_by_replanning(
    connection: psycopg.Connection[Any],
    analyzed: AnalyzedQuery,
    refused: Refused,
    written: StoredQuery,
    limits: PlanLimits,
) -> Place | None:
    """Plan the query again from a tree with positions, and return the place of the same refusal there."""
    found = tree_with_positions(connection, analyzed)
    if found is None:
        return None
    text, text_at = found
    try:
        _plan_tree(text, analyzed, written, PlanBudget(limits))
    except QueryTooLarge:
        return None
    except Refused as again:
        if again.construct == refused.construct and again.token is not None:
            return place_of_byte(analyzed.query, again.token - text_at)
    return None
