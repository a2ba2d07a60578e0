"""A function of the query -> its entry in the allow-list, or a refusal with the reason."""

from __future__ import annotations

from typing import assert_never

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import CollationNeed, Entry
from applier.sql.catalog_snapshot import CatalogSnapshot, FunctionInfo, Volatility
from applier.sql.pg_tree import tree
from applier.sql.refusal import Reason, Refused
from shared_schema.pg_types import FIRST_USER_OID

CallNode = tree.FuncExpr | tree.AnyOfList | tree.ScalarArrayOpExpr
_TIME_FUNCTIONS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday", "age"}
)


def find_entry(origin: CallNode, catalog: CatalogSnapshot) -> tuple[FunctionInfo, Entry]:
    """Return the catalog's and the allow-list's information on a function; raises Refused when it is not listed."""
    info = catalog.function(origin.function)
    entry = ENTRIES.get(info.signature)
    if entry is None:
        raise refuse_unlisted(info, origin, catalog)
    return info, entry


def refuse_unlisted(info: FunctionInfo, origin: CallNode, catalog: CatalogSnapshot) -> Refused:
    """Return the refusal of a function that is not listed, with the reason."""
    construct = describe_call(info, origin, catalog)
    if (refused := refuse_by_volatility(info, construct, origin.at)) is not None:
        return refused
    hint = "it is not yet proven to be equal in Spark; store the value in a column"
    if info.oid >= FIRST_USER_OID:
        hint = "write its expression in the query itself, or store the value in a column"
    return Refused(Reason.FUNCTION, construct, hint=hint, token=origin.at)


def refuse_by_volatility(info: FunctionInfo, construct: str, at: int | None) -> Refused | None:
    """Return the refusal of a function whose result may change although its arguments do not; None for others."""
    if info.name in _TIME_FUNCTIONS and info.volatility is not Volatility.IMMUTABLE:
        hint = "compare with a column, or filter when reading the stream table"
        return Refused(Reason.CURRENT_TIME, construct, hint=hint, token=at)
    match info.volatility:
        case Volatility.VOLATILE:
            hint = "store the value in a column; a volatile function has no single correct result"
            return Refused(Reason.VOLATILE, construct, hint=hint, token=at, full_in_postgres=False)
        case Volatility.STABLE:
            hint = "its result depends on session settings; use a form that does not (AT TIME ZONE 'UTC'), or store it"
            return Refused(Reason.SESSION, construct, hint=hint, token=at)
        case Volatility.IMMUTABLE:
            return None
        case _:
            assert_never(info.volatility)


def check_unchanged(
    info: FunctionInfo, description: str, digest: str, at: int | None, catalog: CatalogSnapshot
) -> None:
    """Refuse a function that was changed since the stored query was created."""
    if catalog.expected_digests is not None and catalog.expected_digests.get(info.oid) != digest:
        construct = f"{description}, which was changed since the stream table was created,"
        hint = (
            "SELECT pgtrickle.reinitialize_stream_table(name) computes it with the new function; or restore the old"
            " function and resume it"
        )
        raise Refused(Reason.FUNCTION, construct, hint=hint, token=at)


def describe_call(info: FunctionInfo, origin: CallNode, catalog: CatalogSnapshot) -> str:
    """Describe a call as the user wrote it: a function or an operator."""
    if not origin.operator:
        return f"the function {info.signature}"
    return f"the operator {catalog.operator(origin.operator).name} ({info.signature})"


def check_collation(
    entry: Entry, origin: CallNode | tree.MinMaxExpr | tree.SetReturningExpr, catalog: CatalogSnapshot
) -> None:
    """Refuse a text function under a collation that Spark does not have."""
    # A polymorphic function has no collation when its arguments have none.
    if entry.collation is CollationNeed.NONE or (not origin.input_collation and "any" in entry.signature):
        return
    collation = catalog.collation(origin.input_collation)
    if entry.collation is CollationNeed.EQUALITY and not collation.deterministic:
        construct = f"text equality under the nondeterministic collation {collation.name}"
        raise Refused(Reason.COLLATION, construct, hint='use COLLATE "C"', token=origin.at)
    if entry.collation is CollationNeed.LETTERS and not collation.ascii_letters:
        construct = f"letter case or character classes under the collation {collation.name}"
        raise Refused(
            Reason.COLLATION, construct, hint='use COLLATE "C", which handles ASCII letters only', token=origin.at
        )
    if entry.collation is CollationNeed.ORDER and not collation.byte_order:
        construct = f"text order under the collation {collation.name}"
        hint = 'declare the column COLLATE "C", or compare for equality only'
        raise Refused(Reason.COLLATION, construct, hint=hint, token=origin.at)
