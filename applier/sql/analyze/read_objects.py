"""The trees of a query -> the types, functions, operators, collations and aggregates of users in them. Does IO.

Every number of a tree that may be an object id of a user's object is looked up: a few of them are something else, and
no row has their number. Function bodies are trees too, so the lookup is repeated until nothing new is named.

Nothing is held from one query to the next: a type may be renamed, a function replaced, and a number that was none of an
object may be that of one that was created since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from applier.catalog.confined import Confined
from applier.catalog.sources import DIGEST
from applier.sql.analyze.built_ins import (
    COLLATIONS_FROM,
    TYPE_FIELDS,
    BuiltIns,
    collation_fields,
    read_collation,
    read_types,
)
from applier.sql.catalog_snapshot import (
    AggregateInfo,
    CatalogObjects,
    CollationInfo,
    FunctionInfo,
    FunctionText,
    OperatorInfo,
    TypeInfo,
    Volatility,
)
from applier.sql.lexical import has_special_time_words
from shared_schema.pg_types import FIRST_USER_OID
from shared_schema.session_pins import OWN_PATH

_NUMBER = re.compile(r"(?<![\w.-])(?<!:relid )(?<!:resorigtbl )\d{5,10}(?![\w.])")
"""Not the object ids of relations: they are in other fields, and are read elsewhere."""
_AGGREGATE_CALL = re.compile(r":(?:agg|win)fnoid (\d+) :(?:agg|win)type (\d+)")
_OIDS: LiteralString = "%(oids)s::int8[]::oid[]"
_TYPES: LiteralString = (
    "WITH RECURSIVE needed(oid) AS (SELECT unnest(" + _OIDS + ") UNION SELECT x.oid FROM needed JOIN pg_type p "
    "ON p.oid = needed.oid CROSS JOIN LATERAL (VALUES (p.typbasetype), (p.typarray), (p.typelem)) x(oid) "
    "WHERE x.oid >= 16384) SELECT json_agg(json_build_array(" + TYPE_FIELDS + ")) "
    "FROM pg_type t WHERE t.oid IN (SELECT needed.oid FROM needed)"
)
_LABELS: LiteralString = (
    "SELECT enumtypid::int8, oid::int8, enumlabel::text FROM pg_enum WHERE enumtypid = ANY(%s::int8[]::oid[]) "
    "ORDER BY enumtypid, enumsortorder"
)
_AGGREGATE: LiteralString = (
    "(SELECT json_build_array(a.aggkind = 'n' AND p.provariadic = 0, a.aggtransfn::oid::int8, s.proisstrict, "
    "a.aggfinalfn::oid::int8, a.aggfinalextra, coalesce(f.proisstrict, true), a.aggtranstype::int8, a.agginitval, "
    "a.aggmtransfn::oid <> 0) FROM pg_aggregate a JOIN pg_proc s ON s.oid = a.aggtransfn "
    "LEFT JOIN pg_proc f ON f.oid = a.aggfinalfn WHERE a.aggfnoid = p.oid)"
)
_FUNCTIONS: LiteralString = (
    "SELECT json_agg(json_build_array(p.oid::int8, n.nspname, p.proname, (SELECT coalesce(string_agg(y.typname, ',' "
    "ORDER BY g.ordinal), '') FROM unnest(p.proargtypes) WITH ORDINALITY g(oid, ordinal) JOIN pg_type y "
    "ON y.oid = g.oid), p.provolatile, p.proisstrict, "
    "l.lanname = 'sql' AND p.prokind = 'f' AND NOT p.prosecdef AND NOT p.proretset AND p.proconfig IS NULL "
    "AND p.provolatile = 'i' AND p.provariadic = 0, p.prorettype::int8, p.prosrc, p.prosqlbody::text, "
    "pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), " + DIGEST + ", " + _AGGREGATE + ")) "
    "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang "
    "WHERE p.oid >= 16384 AND p.oid IN (SELECT unnest(" + _OIDS + ") "
    "UNION SELECT o.oprcode FROM pg_operator o WHERE o.oid = ANY(" + _OIDS + ") "
    "UNION SELECT a.aggtransfn FROM pg_aggregate a WHERE a.aggfnoid = ANY(" + _OIDS + ") "
    "UNION SELECT a.aggfinalfn FROM pg_aggregate a WHERE a.aggfnoid = ANY(" + _OIDS + "))"
)
_OPERATORS: LiteralString = (
    "SELECT json_agg(json_build_array(o.oid::int8, o.oprname, o.oprcode::oid::int8)) FROM pg_operator o "
    "WHERE o.oid = ANY(" + _OIDS + ")"
)
_ANALYZED_BODY: LiteralString = (
    "SELECT prosqlbody::text FROM pg_proc WHERE pronamespace = pg_my_temp_schema() AND proname = 'pgtrickle_body'"
)


@dataclass(slots=True)
class UserObjects:
    """What one query names."""

    types: dict[int, TypeInfo] = field(default_factory=dict)
    functions: dict[int, FunctionInfo] = field(default_factory=dict)
    operators: dict[int, OperatorInfo] = field(default_factory=dict)
    collations: dict[int, CollationInfo] = field(default_factory=dict)
    function_texts: dict[int, FunctionText] = field(default_factory=dict)
    aggregates: dict[int, AggregateInfo] = field(default_factory=dict)

    def objects(self) -> CatalogObjects:
        """Return the objects that are looked up by their ids alone."""
        return CatalogObjects(self.types, self.functions, self.operators, self.collations)


def read_user_objects(
    connection: psycopg.Connection[Any],
    built_ins: BuiltIns,
    trees: Sequence[str],
    types: Iterable[int],
    confined: Confined | None,
) -> UserObjects:
    """Read the objects that the trees name, the `types` of columns, and all that these need.

    Bodies of functions are texts of users, so they are analysed in `confined`; without it, they are not.
    """
    found, named = UserObjects(), _user_oids(trees)
    calls = {(int(function), int(result)) for tree in trees for function, result in _AGGREGATE_CALL.findall(tree)}
    unread = named | {oid for oid in types if oid >= FIRST_USER_OID}
    looked_up: set[int] = set()
    while unread:
        looked_up |= unread
        in_bodies = _read(connection, built_ins, sorted(unread), calls=calls, found=found, confined=confined)
        named |= in_bodies
        unread = in_bodies - looked_up
    labels = _read_labels(connection, sorted(oid for oid in named if oid in found.types and found.types[oid].is_enum))
    found.types |= {oid: replace(found.types[oid], labels=pairs) for oid, pairs in labels.items()}
    return found


def _read_labels(connection: psycopg.Connection[Any], enums: list[int]) -> dict[int, tuple[tuple[int, str], ...]]:
    if not enums:
        return {}
    labels: dict[int, tuple[tuple[int, str], ...]] = dict.fromkeys(enums, ())
    with connection.cursor(row_factory=tuple_row) as cursor:
        for enum, oid, label in cursor.execute(_LABELS, [enums]):
            labels[enum] = (*labels[enum], (oid, label))
    return labels


def _user_oids(trees: Iterable[str]) -> set[int]:
    numbers = (int(number) for tree in trees for number in _NUMBER.findall(tree))
    return {number for number in numbers if FIRST_USER_OID <= number < 2**32}


def _read(
    connection: psycopg.Connection[Any],
    built_ins: BuiltIns,
    oids: list[int],
    *,
    calls: set[tuple[int, int]],
    found: UserObjects,
    confined: Confined | None,
) -> set[int]:
    """Add objects to those found; return what they name themselves."""
    collations: LiteralString = (
        "SELECT json_agg(json_build_array(" + collation_fields(built_ins.major) + ")) " + COLLATIONS_FROM + " "
        "AND c.oid = ANY(" + _OIDS + ")"
    )
    query: LiteralString = "SELECT (" + _TYPES + "), (" + _FUNCTIONS + "), (" + _OPERATORS + "), (" + collations + ")"
    with connection.cursor(row_factory=tuple_row) as cursor:
        types, functions, operators, collated = cursor.execute(query, {"oids": oids}).fetchall()[0]
    found.types |= read_types(types or (), {**built_ins.objects.types, **found.types})
    found.operators |= {row[0]: OperatorInfo(*row) for row in operators or ()}
    found.collations |= {row[0]: read_collation(row) for row in collated or ()}
    named: set[int] = set()
    for row in functions or ():
        oid, schema, name, arguments, volatility, strict, *rest = row
        found.functions[oid] = FunctionInfo(oid, name, f"{schema}.{name}({arguments})", Volatility(volatility), strict)
        *body, digest, aggregate = rest
        if aggregate is not None:
            results = {result for function, result in calls if function == oid}
            found.aggregates[oid] = _read_aggregate(connection, built_ins, aggregate, digest, results)
            named |= {found.aggregates[oid].state} - built_ins.objects.types.keys()
        elif (text := _read_text(connection, body, confined)) is not None:
            found.function_texts[oid] = FunctionText(text, body[1], strict, digest)
            named |= _user_oids([text])
    return named


def _read_text(connection: psycopg.Connection[Any], body: Sequence[Any], confined: Confined | None) -> str | None:
    """Return the tree of a simple immutable SQL function; None for others."""
    is_simple, _, source, stored, arguments, returns = body
    if not is_simple or has_special_time_words(source):
        return None
    if stored or confined is None:
        return str(stored) if stored else None
    return _analyze_body(connection, confined, source, arguments, returns)


def _analyze_body(
    connection: psycopg.Connection[Any], confined: Confined, source: str, arguments: str, returns: str
) -> str | None:
    """Let the server analyse a body, as the body of a temporary function with only pg_catalog on its search path."""
    statement = (
        f"CREATE FUNCTION pg_temp.pgtrickle_body({arguments}) RETURNS {returns} LANGUAGE sql IMMUTABLE "
        f"BEGIN ATOMIC {source.strip().rstrip(';')}; END"
    )
    try:
        with connection.transaction(force_rollback=True):
            confined.run(statement)
            connection.execute(OWN_PATH)
            with connection.cursor(row_factory=tuple_row) as reading:
                found = reading.execute(_ANALYZED_BODY).fetchone()
                return None if found is None else str(found[0])
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        return None


def _read_aggregate(
    connection: psycopg.Connection[Any], built_ins: BuiltIns, fields: Sequence[Any], digest: str, results: set[int]
) -> AggregateInfo:
    """Return an aggregate whose calls have these `results`."""
    plain, step, strict, final, final_takes_all, final_strict, state, written, moves = fields
    known = built_ins.objects.types
    states = {state}
    if state in known and known[state].name.startswith("any") and not final:
        # A polymorphic state has the type of the call's result.
        states = results
    initial: dict[int, str] = {}
    for candidate in states & known.keys() if plain and written is not None else ():
        if not known[candidate].name.startswith(("any", "internal")) and known[candidate].base == candidate:
            initial[candidate] = _print(connection, written, known[candidate].display)
    return AggregateInfo(
        plain, step, strict, final, final_takes_all, final_strict, state, written is not None, initial, moves, digest
    )


def _print(connection: psycopg.Connection[Any], written: str, type_: str) -> str:
    """Return a value as the output function of its type prints it."""
    query = sql.SQL("SELECT concat({}::{})").format(sql.Literal(written), sql.SQL(type_))
    with connection.cursor(row_factory=tuple_row) as cursor:
        return str(cursor.execute(query).fetchall()[0][0])
