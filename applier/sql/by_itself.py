"""PostgreSQL's analysed trees of a query -> what lets its result change although no row of its sources does. Pure.

The whole text of the trees is looked through, those of views too: this holds also where the typed reader stops at a
construct that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from applier.functions.allow_list import ENTRIES
from applier.sql.catalog_snapshot import CatalogSnapshot, FunctionInfo, Volatility
from applier.sql.pg_tree.layout import UNSUPPORTED_KINDS
from applier.sql.refusal import Reason, Refused
from applier.sql.sources import SYSTEM_SCHEMAS
from applier.sql.typing.lookup import refuse_by_volatility
from shared_schema.pg_types import FIRST_USER_OID

CHANGES_BY_ITSELF = frozenset({Reason.VOLATILE, Reason.CURRENT_TIME, Reason.SESSION})
"""Refusals of queries whose result changes by itself: only an explicit mode FULL accepts them."""

_NODES = {
    "SQLVALUEFUNCTION": (Reason.CURRENT_TIME, *UNSUPPORTED_KINDS["SQLVALUEFUNCTION"]),
    "TABLESAMPLECLAUSE": (Reason.VOLATILE, "TABLESAMPLE", "every run gives another sample; filter by a column"),
}

_CALL = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
_CONVERSION = re.compile(r":resulttype (\d+) :resultcollid")
"""Of a conversion through text: of the nodes with these fields only that one has no type modifier between them."""

_READS_THE_CLOCK = re.compile(r"_?(?:date|time|timetz|timestamp|timestamptz|daterange|tsrange|tstzrange)")
"""Types whose texts may say 'now' or 'today'."""
_READS_THE_CATALOG = re.compile(r"_?reg[a-z]+")

_OF_ITS_ARGUMENTS = re.compile(
    r"concat|concat_ws|format|textanycat|anytextcat|quote_(?:literal|nullable)|length|convert(?:_to|_from)?"
    r"|array_to_(?:string|json)|row_to_json|to_jsonb?|jsonb?_(?:object_)?agg\w*|jsonb?_build_\w+|jsonb?_populate_\w+"
    r"|jsonb?_to_record(?:set)?|jsonb_path_\w+_tz|to_(?:char|date|number|timestamp)|make_timestamptz|extract|timezone"
    r"|date|time|timetz|timestamp|timestamptz|(?:date|timestamp|timestamptz)_[a-z_]+|interval_pl_timestamptz"
    r"|generate_series|in_range|overlaps|enum_(?:first|last|range)|money|numeric|xml|pg_typeof|pg_collation_for"
)
"""Functions of PostgreSQL that are STABLE because of settings that every session of ours pins."""


def find_change_by_itself(query: str, catalog: CatalogSnapshot) -> Refused | None:
    """Return the refusal of what lets the result change by itself, wherever in the tree of the query or of its views
    it is."""
    for tree in _trees(query, catalog):
        for kind, (reason, construct, hint) in _NODES.items():
            if "{" + kind in tree:
                return Refused(reason, construct, hint=hint)
        for info in _functions(_CALL, tree, catalog):
            if info.signature not in ENTRIES and not _is_of_its_arguments(info):
                refused = refuse_by_volatility(info, f"the function {info.signature}", None)
                if refused is not None:
                    return refused
    return None


def is_steady(query: str, catalog: CatalogSnapshot) -> bool:
    """Whether the result of a query that PostgreSQL runs can change only with its sources: nobody knows what a function
    of users reads, one behind an operator too, nor what the text of a date says."""
    return find_change_by_itself(query, catalog) is None and not any(
        any(info.oid >= FIRST_USER_OID for info in _functions(_CALL, tree, catalog))
        or any(_is_looked_up(int(oid), catalog) for oid in _CONVERSION.findall(tree))
        for tree in _trees(query, catalog)
    )


def _trees(query: str, catalog: CatalogSnapshot) -> Iterator[str]:
    yield query
    for info in catalog.relations.values():
        if info.rule is not None and info.table.schema not in SYSTEM_SCHEMAS:
            yield info.rule


def _functions(calls: re.Pattern[str], tree: str, catalog: CatalogSnapshot) -> Iterator[FunctionInfo]:
    known = catalog.built_in_objects.functions, catalog.objects.functions
    for oid in sorted({int(found) for found in calls.findall(tree)}):
        info = known[oid >= FIRST_USER_OID].get(oid)
        if info is not None:
            yield info


def _is_of_its_arguments(info: FunctionInfo) -> bool:
    is_built_in = info.oid < FIRST_USER_OID and info.volatility is Volatility.STABLE
    return is_built_in and _OF_ITS_ARGUMENTS.fullmatch(info.name) is not None


def _is_looked_up(oid: int, catalog: CatalogSnapshot) -> bool:
    known = (catalog.built_in_objects if oid < FIRST_USER_OID else catalog.objects).types.get(oid)
    name = known.name if known is not None else ""
    return bool(_READS_THE_CLOCK.fullmatch(name) or _READS_THE_CATALOG.fullmatch(name))
