"""Takes a query or the name of a stream table and reports its plan, what it reads and what it costs to maintain."""

from __future__ import annotations

from typing import Any

import psycopg

from applier.operators.explain_delta import explain_deltas
from applier.operators.stateful_nodes import stateful_nodes
from applier.plan.depth import Thresholds
from applier.plan.facts import plan_facts, report
from applier.plan.nodes import StreamPlan
from applier.sql.plan_query import StoredQuery, plan_query
from applier.sql.refusal import DefinitionError, Refused
from shared_schema.errors import TrickleError


def explain_query(connection: psycopg.Connection[Any], query: str, search_path: str) -> str:
    """Return the report of a query that a user wrote."""
    return plan_report(plan_query(connection, query, search_path).plan)


def plan_report(plan: StreamPlan) -> str:
    """Return what a user sees of a plan: its nodes, what it costs, and how the change of each table is computed."""
    return f"{report(plan, stateful_nodes(plan.root))}\n{explain_deltas(plan)}"


def verdict(
    connection: psycopg.Connection[Any], query: str, search_path: str, thresholds: Thresholds
) -> dict[str, Any]:
    """Return the result of `validate_query`: the facts of the plan, or why there is no plan."""
    try:
        plan = plan_query(connection, query, search_path).plan
    except psycopg.errors.LockNotAvailable:
        return {
            "supported": False,
            "problem": "a table of the query is locked by a transaction that altered it",
            "hint": "ask before altering it, or after the commit",
            "code": psycopg.errors.LockNotAvailable.sqlstate,
            "line": None,
            "column": None,
            "full_in_postgres": False,
        }
    except (DefinitionError, Refused) as error:
        place = error.place
        return {
            "supported": False,
            "problem": error.problem,
            "hint": error.hint,
            "code": error.reason.value if isinstance(error, Refused) else error.sqlstate,
            "line": place.line if place else None,
            "column": place.column if place else None,
            "full_in_postgres": isinstance(error, Refused) and error.full_in_postgres,
        }
    return {"supported": True, **plan_facts(plan, thresholds, stateful_nodes(plan.root)), "text": plan_report(plan)}


def explain_stream_table(connection: psycopg.Connection[Any], name: str) -> str:
    """Return the report of an existing stream table, given its name with or without the schema."""
    found = connection.execute(
        "SELECT defining_query, original_query, created_at, pgt_schema, pgt_name FROM pgtrickle.pgt_stream_tables"
        " WHERE %(name)s IN (pgt_name, pgt_schema || '.' || pgt_name) ORDER BY pgt_id",
        {"name": name},
    ).fetchall()
    if not found:
        raise TrickleError(f"there is no stream table {name}", hint="see SELECT * FROM pgtrickle.pgt_status()")
    if len(found) > 1:
        names = ", ".join(f"{row[3]}.{row[4]}" for row in found)
        raise TrickleError(f"several stream tables are called {name}", hint=f"name one of {names}")
    query, original, created, _, _ = found[0]
    return plan_report(plan_query(connection, query, "pg_catalog", StoredQuery(original, created)).plan)
