"""Takes a query or the name of a stream table and reports its plan, what it reads and what it costs to maintain."""

from __future__ import annotations

from typing import Any

import psycopg

from applier.arrange.inputs import SMALL_RANGE_ROWS
from applier.catalog.confined import owner_of
from applier.errors import QueryTooLarge
from applier.operators.explain_delta import explain_deltas
from applier.operators.stateful_nodes import stateful_nodes
from applier.plan.depth import Thresholds
from applier.plan.facts import plan_facts, report
from applier.plan.limits import DEFAULT_LIMITS, PlanBudget, PlanLimits
from applier.plan.nodes import StreamPlan
from applier.sql.analyze.analyze import RequestedQuery
from applier.sql.plan_query import StoredQuery, plan_query, plan_requested
from applier.sql.refusal import DefinitionError, Place, Refused
from applier.unexpected import to_own_error
from shared_schema.errors import TrickleError


def explain_query(connection: psycopg.Connection[Any], query: str, search_path: str) -> str:
    """Return the report of a query that a user wrote."""
    return plan_report(plan_query(connection, query, search_path).plan)


def plan_report(plan: StreamPlan, limits: PlanLimits = DEFAULT_LIMITS) -> str:
    """Return what a user sees of a plan: its nodes, what it costs, and how the change of each table is computed."""
    nodes = report(plan, stateful_nodes(plan.root))
    if plan.only_small_deltas:
        nodes += f"more than {SMALL_RANGE_ROWS} change rows of one commit are a full refresh: their delta is too long\n"
    try:
        return f"{nodes}\n{explain_deltas(plan, PlanBudget(limits))}"
    except QueryTooLarge as error:
        return f"{nodes}\nhow a change is computed is not shown: {error.problem}\n"


def verdict(
    connection: psycopg.Connection[Any], requested: RequestedQuery, role: str, thresholds: Thresholds
) -> dict[str, Any]:
    """Return the result of `validate_query`: the facts of the plan, or why there is no plan."""
    try:
        plan = plan_requested(connection, requested, role, thresholds.limits).plan
    except psycopg.errors.LockNotAvailable:
        problem = "a table of the query is locked by a transaction that altered it"
        hint = "ask before altering it, or after the commit"
        return _negative_verdict(problem, hint, psycopg.errors.LockNotAvailable.sqlstate)
    except DefinitionError as error:
        return _negative_verdict(error.problem, error.hint, error.sqlstate, error.place)
    except Refused as error:
        return _negative_verdict(
            error.problem, error.hint, error.reason.value, error.place, full_in_postgres=error.full_in_postgres
        )
    except Exception as error:
        own = to_own_error("the plan of the query", error)
        return _negative_verdict(own.problem, "", type(own).__name__)
    return {
        "supported": True,
        **plan_facts(plan, thresholds, stateful_nodes(plan.root)),
        "text": plan_report(plan, thresholds.limits),
    }


def _negative_verdict(
    problem: str, hint: str, code: str | None, place: Place | None = None, *, full_in_postgres: bool = False
) -> dict[str, Any]:
    return {
        "supported": False,
        "problem": problem,
        "hint": hint,
        "code": code,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "full_in_postgres": full_in_postgres,
    }


def explain_stream_table(connection: psycopg.Connection[Any], name: str) -> str:
    """Return the report of an existing stream table, given its name with or without the schema."""
    found = connection.execute(
        "SELECT defining_query, original_query, created_at, pgt_schema, pgt_name, pgt_relid::int8"
        " FROM pgtrickle.pgt_stream_tables"
        " WHERE %(name)s IN (pgt_name, pgt_schema || '.' || pgt_name) ORDER BY pgt_id",
        {"name": name},
    ).fetchall()
    if not found:
        raise TrickleError(f"there is no stream table {name}", hint="see SELECT * FROM pgtrickle.pgt_status()")
    if len(found) > 1:
        names = ", ".join(f"{row[3]}.{row[4]}" for row in found)
        raise TrickleError(f"several stream tables are called {name}", hint=f"name one of {names}")
    query, original, created, _, _, relid = found[0]
    role = owner_of(connection, relid)
    return plan_report(plan_query(connection, query, "pg_catalog", StoredQuery(original, created), role).plan)
