"""A function of the query in the allow-list: its entry, or why it is not taken."""

from __future__ import annotations

from typing import assert_never

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import CollationNeed, Entry
from applier.sql.analyze.system_catalog import FIRST_USER_OID, FunctionInfo, SystemCatalog, Volatility
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused

Called = tree.FuncExpr | tree.AnyOfList | tree.ScalarArrayOpExpr
_TIME_FUNCTIONS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday", "age"}
)


def allow_listed(origin: Called, catalog: SystemCatalog) -> tuple[FunctionInfo, Entry]:
    """What the server and the allow-list say of a function; Refused where it is not listed."""
    info = catalog.function(origin.function)
    entry = ENTRIES.get(info.signature)
    if entry is None:
        raise refuse_unlisted(info, origin, catalog)
    return info, entry


def refuse_unlisted(info: FunctionInfo, origin: Called, catalog: SystemCatalog) -> Refused:
    """Why a function that is not listed is not taken."""
    construct = call_entry(info, origin, catalog)
    if info.name in _TIME_FUNCTIONS and info.volatility is not Volatility.IMMUTABLE:
        hint = "compare with a column, or filter when reading the stream table"
        return Refused(Reason.CURRENT_TIME, construct, hint=hint, token=origin.at)
    match info.volatility:
        case Volatility.VOLATILE:
            hint = "store the value in a column; a volatile result has no one right content"
            return Refused(Reason.VOLATILE, construct, hint=hint, token=origin.at, full_in_postgres=False)
        case Volatility.STABLE:
            hint = "its result depends on session settings; use a form that does not (AT TIME ZONE 'UTC'), or store it"
            return Refused(Reason.SESSION, construct, hint=hint, token=origin.at)
        case Volatility.IMMUTABLE if info.oid >= FIRST_USER_OID:
            hint = "write its expression in the query itself, or store the value in a column"
            return Refused(Reason.FUNCTION, construct, hint=hint, token=origin.at)
        case Volatility.IMMUTABLE:
            hint = "it is not yet proven equal in Spark; store the value in a column"
            return Refused(Reason.FUNCTION, construct, hint=hint, token=origin.at)
        case _:
            assert_never(info.volatility)


def check_unchanged(info: FunctionInfo, what: str, digest: str, at: int | None, catalog: SystemCatalog) -> None:
    """Refuse a function that is not the one a stored query was created with."""
    if catalog.expected_digests is not None and catalog.expected_digests.get(info.oid) != digest:
        construct = f"{what}, which is not the one the stream table was created with,"
        hint = (
            "drop the stream table and create it again, or put the old function back and resume it; where"
            " PostgreSQL runs the query meanwhile, alter_stream_table with the same query takes the new one over"
        )
        raise Refused(Reason.FUNCTION, construct, hint=hint, token=at)


def call_entry(info: FunctionInfo, origin: Called, catalog: SystemCatalog) -> str:
    """What the user wrote: a function or an operator."""
    if not origin.operator:
        return f"the function {info.signature}"
    return f"the operator {catalog.operator(origin.operator).name} ({info.signature})"


def check_collation(
    entry: Entry, origin: Called | tree.MinMaxExpr | tree.SetReturningExpr, catalog: SystemCatalog
) -> None:
    """Refuse a text function under a collation that Spark does not share."""
    # A function of any type has no collation where its arguments have none.
    if entry.collation is CollationNeed.NONE or (not origin.input_collation and "any" in entry.signature):
        return
    collation = catalog.collation(origin.input_collation)
    if entry.collation is CollationNeed.EQUALITY and not collation.deterministic:
        construct = f"text equality under the nondeterministic collation {collation.name}"
        raise Refused(Reason.COLLATION, construct, hint='use COLLATE "C"', token=origin.at)
    if entry.collation is CollationNeed.LETTERS and not collation.ascii_letters:
        construct = f"upper and lower case, or classes of letters, under the collation {collation.name}"
        raise Refused(Reason.COLLATION, construct, hint='use COLLATE "C", which knows ASCII only', token=origin.at)
    if entry.collation is CollationNeed.ORDER and not collation.byte_order:
        construct = f"text order under the collation {collation.name}"
        hint = 'declare the column COLLATE "C", or compare for equality only'
        raise Refused(Reason.COLLATION, construct, hint=hint, token=origin.at)
