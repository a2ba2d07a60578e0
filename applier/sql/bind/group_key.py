"""A compiled GROUP BY, DISTINCT or PARTITION BY expression -> the key by which Spark groups.

Spark treats some values as different that PostgreSQL treats as equal (1 and 1.0, '30 days' and '1 mon', -0 and 0). Such
rows are grouped by a comparison key that is the same for all equal values. PostgreSQL shows the value of the row that
it reads first. Here the value that sorts first as text is shown, so that the same rows always give the same result.
"""

from __future__ import annotations

from applier.functions.allow_list import ENTRIES
from applier.functions.comparison_keys import comparison_key
from applier.functions.entry import CollationNeed, UnsuitableArguments
from applier.plan.expr import Expr
from applier.sql.bound.nodes import GroupKey
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.collations import collation_of

_HINT = "cast the value to text, numeric or date, or store it in such a column"
_EQUALITY = {
    "int2": "int2eq(int2,int2)",
    "int4": "int4eq(int4,int4)",
    "int8": "int8eq(int8,int8)",
    "numeric": "numeric_eq(numeric,numeric)",
    "float4": "float4eq(float4,float4)",
    "float8": "float8eq(float8,float8)",
    "bool": "booleq(bool,bool)",
    "text": "texteq(text,text)",
    "varchar": "texteq(text,text)",
    "bpchar": "bpchareq(bpchar,bpchar)",
    "uuid": "uuid_eq(uuid,uuid)",
    "date": "date_eq(date,date)",
    "time": "time_eq(time,time)",
    "timestamp": "timestamp_eq(timestamp,timestamp)",
    "timestamptz": "timestamptz_eq(timestamptz,timestamptz)",
    "interval": "interval_eq(interval,interval)",
    "jsonb": "jsonb_eq(jsonb,jsonb)",
    "inet": "network_eq(inet,inet)",
    "macaddr": "macaddr_eq(macaddr,macaddr)",
}
"""The default equality function of each type that can be grouped."""


def group_key(value: Expr, written: tree.Expression, item: query_tree.GroupItem, catalog: CatalogSnapshot) -> GroupKey:
    """Build the key of GROUP BY, DISTINCT or PARTITION BY, with the equality that PostgreSQL chose."""
    equality = catalog.function(catalog.operator(item.equality).function).signature
    return _build_key(value, written, equality, catalog)


def dependent_key(value: Expr, written: tree.Expression, catalog: CatalogSnapshot) -> GroupKey:
    """Build the key of a column that depends on a grouped primary key, so that PostgreSQL does not group by it."""
    return _build_key(value, written, _EQUALITY.get(value.type.pg.name, ""), catalog)


def check_key(
    value: Expr, written: tree.Expression, item: query_tree.GroupItem, catalog: CatalogSnapshot, clause: str
) -> None:
    """Refuse a key that Spark cannot compare by the values themselves."""
    key = group_key(value, written, item, catalog)
    if key.by != key.value:
        construct = f"{clause} on values of type {value.type.pg.display}"
        raise Refused(Reason.GROUPING, construct, hint=_HINT, token=walk.place_of(written))


def default_equality(value: Expr) -> str | None:
    """Return the signature of the type's default equality; None when Spark cannot hash the value itself."""
    entry = ENTRIES.get(_EQUALITY.get(value.type.pg.name, ""))
    return entry.signature if entry is not None and entry.hashes((value,)) else None


def _build_key(value: Expr, written: tree.Expression, equality: str, catalog: CatalogSnapshot) -> GroupKey:
    entry = ENTRIES.get(equality)
    try:
        if entry is None:
            raise UnsuitableArguments(f"values of type {value.type.pg.display}")
        entry.physical_type((value, value))
    except UnsuitableArguments as error:
        raise _refuse_key(error.problem, written) from error
    by = value if entry.hashes((value,)) else comparison_key(value) if entry.hash_equal or entry.key_equal else None
    if by is None:
        raise _refuse_key(f"values of type {value.type.pg.display}", written)
    if entry.collation is not CollationNeed.NONE:
        collation = collation_of(written, value, catalog)
        if collation is not None and not collation.deterministic:
            construct = f"GROUP BY or DISTINCT under the nondeterministic collation {collation.name}"
            raise Refused(
                Reason.COLLATION, construct, hint='declare the column COLLATE "C"', token=walk.place_of(written)
            )
    return GroupKey(value, by)


def _refuse_key(problem: str, written: tree.Expression) -> Refused:
    return Refused(Reason.GROUPING, f"GROUP BY or DISTINCT on {problem}", hint=_HINT, token=walk.place_of(written))
