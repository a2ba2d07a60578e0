"""A stream table in; the SQL that applies one batch of a delta to it out.

A batch is in a table of its own: columns c0.., `act` (I, U or D; keyed) or `n` (signed multiplicity; keyless).
The row count of every statement is known in advance, so a stream table that another program changed is detected and
not changed further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from psycopg import sql

from applier.plan.stream_table import StreamTable
from applier.sinks.postgres import copy_text
from applier.sinks.postgres.equality import printed
from applier.zset import column_name

MERGE_SINCE = 150_000
"""server_version_num from which MERGE and NULLS NOT DISTINCT exist."""


LOOK_AS_THEY_ARE = frozenset([16, 17, 18, 20, 21, 23, 26, 1082, 1083, 1114, 1184, 2950])
"""Types whose equal values are always printed the same: booleans, integers, bytea, dates and times, uuid."""


def batch_table(table: StreamTable) -> sql.Identifier:
    """Return the temporary table that a batch is copied into."""
    return sql.Identifier("pg_temp", _batch_name(table))


def _batch_name(table: StreamTable) -> str:
    # A session may outlive the present columns of a stream table.
    return f"pgt_delta_{table.id}_{crc32(repr(table.columns).encode()):08x}"


def target(table: StreamTable) -> sql.Identifier:
    """Return the name of the stream table itself."""
    return sql.Identifier(table.table.schema, table.table.name)


def _names(table: StreamTable) -> list[sql.Identifier]:
    return [sql.Identifier(column.name) for column in table.columns]


def _batch_names(table: StreamTable) -> list[sql.Identifier]:
    return [sql.Identifier(column_name(i)) for i in range(len(table.columns))]


def _positional(table: StreamTable) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(name, place) for name, place in zip(_names(table), _batch_names(table), strict=True)
    )


def create_batch_table(table: StreamTable) -> sql.Composed:
    """Create the batch table: exactly the stream table's types under positional names, emptied at every commit."""
    return sql.SQL(
        "CREATE TEMPORARY TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS"
        " SELECT {}, ''::text AS act, 0::int8 AS n FROM {} WITH NO DATA"
    ).format(sql.Identifier(_batch_name(table)), _positional(table), target(table))


def create_delta_table(table: StreamTable, name: sql.Identifier) -> sql.Composed:
    """Create a temporary table for the rows of a delta with their weights `n`, which ends with the transaction."""
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, 0::int8 AS n FROM {} WITH NO DATA").format(
        name, _positional(table), target(table)
    )


def copy_batch(table: StreamTable) -> sql.Composed:
    """COPY a batch: the columns, then act and n."""
    columns = sql.SQL(", ").join([*_batch_names(table), sql.Identifier("act"), sql.Identifier("n")])
    return sql.SQL("COPY {} ({}) FROM STDIN " + copy_text.OPTIONS).format(batch_table(table), columns)


def copy_target(table: StreamTable) -> sql.Composed:
    """COPY directly into the empty stream table."""
    columns = sql.SQL(", ").join(_names(table))
    return sql.SQL("COPY {} ({}) FROM STDIN " + copy_text.OPTIONS).format(target(table), columns)


def create_whole_table(table: StreamTable, name: sql.Identifier) -> sql.Composed:
    """Create a temporary table for a full result, which ends with the transaction."""
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS TABLE {} WITH NO DATA").format(name, target(table))


Equality = Mapping[int, sql.Composable]
"""The operator by which each column is compared: see `equality.py`."""


def _same(table: StreamTable, ordinals: Sequence[int], equal: Equality, *, with_nulls: bool) -> sql.Composable:
    """Return the condition that `t` and `d` are equal in these columns; `with_nulls`, NULL equals NULL."""
    if not ordinals:
        return sql.SQL("true")
    names, places = _names(table), _batch_names(table)
    # IS NOT DISTINCT FROM would look for an operator by its name.
    text = "(t.{0} {1} d.{2} OR t.{0} IS NULL AND d.{2} IS NULL)" if with_nulls else "t.{0} {1} d.{2}"
    return sql.SQL(" AND ").join(sql.SQL(text).format(names[i], equal[i], places[i]) for i in ordinals)


@dataclass(frozen=True, slots=True)
class Key:
    """How a keyed stream table finds its rows."""

    ordinals: tuple[int, ...]
    equal: Equality
    not_null: frozenset[int] = frozenset()
    """The columns that are never NULL."""
    ambiguous: frozenset[int] = frozenset()
    """The columns of the key in which equal values may look different: see LOOK_DIFFERENT."""

    def updated(self, table: StreamTable) -> list[int]:
        """Return the columns that an update writes: also those of the key in which equal values look different."""
        return [i for i in range(len(table.columns)) if i not in self.ordinals or i in self.ambiguous]


def matches(table: StreamTable, key: Key) -> list[tuple[sql.Composable, sql.Composable]]:
    """Return which rows `d` of a batch have the key of a row `t` of the table on which condition; each `d` counts once.

    An index supports `=`, not IS NOT DISTINCT FROM: rows with a NULL in their key, which are few, are looked up by
    themselves.
    """
    nullable = [sql.SQL("d.{} IS NULL").format(_batch_names(table)[i]) for i in key.ordinals if i not in key.not_null]
    by_value, with_nulls = (_same(table, key.ordinals, key.equal, with_nulls=nulls) for nulls in (False, True))
    if not nullable:
        return [(sql.SQL("true"), by_value)]
    some_null = sql.SQL("({})").format(sql.SQL(" OR ").join(nullable))
    return [(sql.SQL("NOT {}").format(some_null), by_value), (some_null, with_nulls)]


def keyed_statements(
    table: StreamTable, key: Key, server: int, batch: sql.Identifier | None = None
) -> list[sql.Composed]:
    """Return statements whose row counts add up to the number of rows in the batch.

    Where equal keys may look different, a batch may delete 1.0 and insert 1.00: to MERGE both are the row that the
    table holds, so there the deletions are a statement before the insertions.
    """
    source = batch or batch_table(table)
    server = 0 if key.ambiguous else server
    return [
        statement
        for which, same in matches(table, key)
        for statement in _merge_statements(table, key, source, same, which, server=server)
    ]


def _merge_statements(
    table: StreamTable,
    key: Key,
    source: sql.Identifier,
    same: sql.Composable,
    which: sql.Composable,
    *,
    server: int,
) -> list[sql.Composed]:
    rest = key.updated(table)
    names, places = _names(table), _batch_names(table)
    parts = {
        "t": target(table),
        "d": sql.SQL("(SELECT * FROM {} d WHERE {})").format(source, which),
        "same": same,
        "names": sql.SQL(", ").join(names),
        "values": sql.SQL(", ").join(sql.SQL("d.{}").format(p) for p in places),
        "set": sql.SQL(", ").join(sql.SQL("{} = d.{}").format(names[i], places[i]) for i in rest),
    }
    if server >= MERGE_SINCE:
        update = "WHEN MATCHED AND d.act = 'U' THEN UPDATE SET {set} " if rest else ""
        text = (
            "MERGE INTO {t} t USING {d} d ON {same} WHEN MATCHED AND d.act = 'D' THEN DELETE "
            + update
            + "WHEN NOT MATCHED AND d.act = 'I' THEN INSERT ({names}) VALUES ({values})"
        )
        return [sql.SQL(text).format(**parts)]
    statements = ["DELETE FROM {t} t USING {d} d WHERE d.act = 'D' AND {same}"]
    if rest:
        statements.append("UPDATE {t} t SET {set} FROM {d} d WHERE d.act = 'U' AND {same}")
    # MERGE finds a row with that key and does not insert; then the counts differ, and here they must differ too.
    statements.append(
        "INSERT INTO {t} ({names}) SELECT {values} FROM {d} d"
        " WHERE d.act = 'I' AND NOT EXISTS (SELECT FROM {t} t WHERE {same})"
    )
    return [sql.SQL(text).format(**parts) for text in statements]


def keyless_statements(
    table: StreamTable,
    comparable: frozenset[int],
    hashable: frozenset[int],
    equal: Equality,
    batch: sql.Identifier | None = None,
) -> list[sql.Composed]:
    """Delete -n copies of each row with n < 0, insert n copies of each with n > 0: counts add up to Σ |n|.

    Types without an equality operator (json, point …) are compared by their text. The hashes let PostgreSQL read the
    table once, whatever the number of deleted rows: with the comparisons alone it compares every pair of rows.
    """
    names, places = _names(table), _batch_names(table)

    def comparable_value(alias: str, column: sql.Identifier, ordinal: int) -> sql.Composable:
        value = sql.SQL(f"{alias}.{{}}").format(column)
        return value if ordinal in comparable else printed(value, table.columns[ordinal])

    def row_hash(alias: str, columns: list[sql.Identifier]) -> sql.Composed:
        values = [comparable_value(alias, c, i) for i, c in enumerate(columns) if i in hashable or i not in comparable]
        return sql.SQL("pg_catalog.hash_record(ROW({}))").format(sql.SQL(", ").join(values))

    def same_value(ordinal: int) -> sql.Composed:
        held, batched = (comparable_value(a, c[ordinal], ordinal) for a, c in (("t", names), ("d", places)))
        operator = equal[ordinal] if ordinal in comparable else sql.SQL("OPERATOR(pg_catalog.=)")
        # IS NOT DISTINCT FROM would look for an operator by its name, and record_eq wants equal collations.
        text = "({0} {1} {2} OR {0} IS NULL AND {2} IS NULL)"
        return sql.SQL(text).format(held, operator, batched)

    same = sql.SQL(" AND ").join(
        [
            sql.SQL("{} OPERATOR(pg_catalog.=) {}").format(row_hash("t", names), row_hash("d", places)),
            *(same_value(i) for i in range(len(names))),
        ]
    )
    source = batch or batch_table(table)
    # Of rows that are equal but printed differently (1.0 and 1.00), delete the one that is printed the same.
    same_text = [
        sql.SQL('({}) COLLATE "C" IS NOT DISTINCT FROM ({}) COLLATE "C"').format(
            *(printed(sql.SQL("{}.{}").format(sql.SQL(a), c[i]), column) for a, c in (("t", names), ("d", places)))
        )
        for i, column in enumerate(table.columns)
        if i in comparable and column.type.oid not in LOOK_AS_THEY_ARE
    ]
    order = sql.SQL(" ORDER BY ({}) DESC").format(sql.SQL(" AND ").join(same_text)) if same_text else sql.SQL("")
    delete = sql.SQL(
        "DELETE FROM {t} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ("
        " SELECT t.ctid, d.n, row_number() OVER (PARTITION BY d.ctid{order}) AS nth FROM {t} t JOIN {d} d"
        " ON d.n < 0 AND {same}) pairs WHERE nth <= -n))"
    ).format(t=target(table), d=source, same=same, order=order)
    insert = sql.SQL(
        "INSERT INTO {t} ({names}) SELECT {values} FROM {d} d, pg_catalog.generate_series(1::int8, d.n) WHERE d.n > 0"
    ).format(
        t=target(table),
        d=source,
        names=sql.SQL(", ").join(names),
        values=sql.SQL(", ").join(sql.SQL("d.{}").format(p) for p in places),
    )
    return [delete, insert]


Phases = tuple[list[sql.Composed], list[sql.Composed], list[sql.Composed]]
"""Deletions, updates, insertions."""


def fill_part(table: StreamTable, part: sql.Identifier) -> Phases:
    """Return the statements that insert all rows of a part into the empty table."""
    names, places = (sql.SQL(", ").join(of(table)) for of in (_names, _batch_names))
    text = (
        "INSERT INTO {t} ({names}) SELECT {places} FROM {d} WHERE n = 1"
        " UNION ALL SELECT {places} FROM {d} d, pg_catalog.generate_series(1::int8, d.n) WHERE d.n > 1"
    )
    return [], [], [sql.SQL(text).format(t=target(table), names=names, places=places, d=part)]


def keyed_part(table: StreamTable, key: Key, part: sql.Identifier) -> Phases:
    """Return the statements of a keyed part, separated by action."""
    phases: Phases = ([], [], [])
    per_variant = 3 if key.updated(table) else 2
    statements = keyed_statements(table, key, 0, part)
    for place, statement in enumerate(statements):
        phase = place % per_variant
        phases[phase if phase < per_variant - 1 else 2].append(statement)
    return phases


def keyless_part(
    table: StreamTable, comparable: frozenset[int], hashable: frozenset[int], part: sql.Identifier, equal: Equality
) -> Phases:
    """Return the statements of a part whose rows may repeat."""
    delete, insert = keyless_statements(table, comparable, hashable, equal, part)
    return [delete], [], [insert]


def key_index(table: StreamTable, key: tuple[int, ...], not_null: frozenset[int], server: int) -> sql.Composed:
    """Create the index by which a keyed MERGE finds its rows; unique where NULLs are equal or impossible."""
    columns = sql.SQL(", ").join(_names(table)[i] for i in key)
    if server >= MERGE_SINCE:
        text = "CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT"
    else:
        text = "CREATE UNIQUE INDEX ON {} ({})" if set(key) <= not_null else "CREATE INDEX ON {} ({})"
    return sql.SQL(text).format(target(table), columns)


LOOK_DIFFERENT = """
SELECT a.attname::text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = %s::int8::oid AND a.attnum > 0 AND NOT a.attisdropped AND NOT (
    y.typtype = 'e' OR a.atttypid = ANY (%s::oid[])
    OR a.atttypid IN ('text'::regtype, 'varchar'::regtype, 'name'::regtype) AND coalesce(c.collisdeterministic, true)
    OR a.atttypid = 'bpchar'::regtype AND a.atttypmod >= 0 AND coalesce(c.collisdeterministic, true)
    OR a.atttypid = 'numeric'::regtype AND a.atttypmod >= 0)
"""
"""Selects the columns in which equal values may look different: 1.0 and 1.00, 0 and -0, texts under a collation that
ignores case, and whatever type of an extension. Takes the relation and LOOK_AS_THEY_ARE."""

KEY_INDEX = """
SELECT i.indexrelid::regclass::text FROM pg_catalog.pg_index i
WHERE i.indrelid = %s::int8::oid AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT i.indisprimary
  AND (SELECT pg_catalog.array_agg(a.attname::text ORDER BY k.n)
       FROM pg_catalog.unnest(i.indkey) WITH ORDINALITY k(attnum, n)
       JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum)
      OPERATOR(pg_catalog.=) %s::text[]
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.conindid = i.indexrelid)
ORDER BY i.indexrelid
"""
"""Selects the indexes on exactly these columns, the oldest first: that is the one of `key_index`."""

COMPARABLE = """
SELECT t.oid::int8, a.amname::text FROM pg_catalog.unnest(%s::oid[]) t(oid) JOIN pg_catalog.pg_opclass o
    ON o.opcintype = t.oid OR o.opcintype = (
        SELECT CASE WHEN y.typtype = 'e' THEN 'anyenum'::regtype WHEN y.typelem <> '0'::oid AND y.typlen = -1
                    THEN 'anyarray'::regtype WHEN y.typtype = 'r' THEN 'anyrange'::regtype
                    WHEN y.typname = 'varchar' THEN 'text'::regtype END::oid
        FROM pg_catalog.pg_type y WHERE y.oid = t.oid)
JOIN pg_catalog.pg_am a ON a.oid = o.opcmethod AND a.amname IN ('btree', 'hash')
"""
"""Selects which types have an order, and which a hash."""
