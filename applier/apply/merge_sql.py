"""SQL text that applies one batch of a delta to a stream table. Pure.

A batch lies in a session-local table: columns c0.., `act` (I, U or D; keyed) or `n` (signed multiplicity; keyless).
Every statement's row count is known beforehand, so a stream table that somebody else changed is noticed, not bent.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from applier.stream_table import StreamTable
from applier.zset import column_name

MERGE_SINCE = 150_000
"""server_version_num from which MERGE and NULLS NOT DISTINCT exist."""


def batch_table(table: StreamTable) -> sql.Identifier:
    """The session-local table a batch is copied into."""
    return sql.Identifier("pg_temp", f"pgt_delta_{table.id}")


def target(table: StreamTable) -> sql.Identifier:
    """The stream table itself."""
    return sql.Identifier(table.table.schema, table.table.name)


def _names(table: StreamTable) -> list[sql.Identifier]:
    return [sql.Identifier(column.name) for column in table.columns]


def _batch_names(table: StreamTable) -> list[sql.Identifier]:
    return [sql.Identifier(column_name(i)) for i in range(len(table.columns))]


def create_batch_table(table: StreamTable) -> sql.Composed:
    """Exactly the stream table's types under positional names, emptied at every commit."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(name, place) for name, place in zip(_names(table), _batch_names(table), strict=True)
    )
    return sql.SQL(
        "CREATE TEMPORARY TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS"
        " SELECT {}, ''::text AS act, 0::int8 AS n, 0::int8 AS pos FROM {} WITH NO DATA"
    ).format(sql.Identifier(f"pgt_delta_{table.id}"), columns, target(table))


def copy_batch(table: StreamTable) -> sql.Composed:
    """Columns, then act, n and the row's position in the batch."""
    extra = [sql.Identifier(name) for name in ("act", "n", "pos")]
    columns = sql.SQL(", ").join([*_batch_names(table), *extra])
    return sql.SQL("COPY {} ({}) FROM STDIN").format(batch_table(table), columns)


def copy_target(table: StreamTable) -> sql.Composed:
    """Straight into the empty stream table."""
    return sql.SQL("COPY {} ({}) FROM STDIN").format(target(table), sql.SQL(", ").join(_names(table)))


def _same(table: StreamTable, ordinals: Sequence[int], not_null: frozenset[int]) -> sql.Composable:
    """`t` and `d` agree on these columns; NULL agrees with NULL."""
    if not ordinals:
        return sql.SQL("true")
    names, places = _names(table), _batch_names(table)
    return sql.SQL(" AND ").join(
        sql.SQL("t.{} = d.{}" if i in not_null else "t.{} IS NOT DISTINCT FROM d.{}").format(names[i], places[i])
        for i in ordinals
    )


def keyed_statements(
    table: StreamTable, key: tuple[int, ...], not_null: frozenset[int], server: int
) -> list[sql.Composed]:
    """Statements whose row counts add up to the number of rows in the batch."""
    rest = [i for i in range(len(table.columns)) if i not in key]
    names, places = _names(table), _batch_names(table)
    same = _same(table, key, not_null)
    parts = {
        "t": target(table),
        "d": batch_table(table),
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
    statements.append("INSERT INTO {t} ({names}) SELECT {values} FROM {d} d WHERE d.act = 'I'")
    return [sql.SQL(text).format(**parts) for text in statements]


def keyless_statements(table: StreamTable, comparable: frozenset[int]) -> list[sql.Composed]:
    """Remove -n copies of each row with n < 0, add n copies of each with n > 0: counts add up to Σ |n|.

    Types without an equality operator (json, point …) are compared by their text.
    """
    names, places = _names(table), _batch_names(table)
    same = sql.SQL(" AND ").join(
        sql.SQL(
            "t.{} IS NOT DISTINCT FROM d.{}" if i in comparable else "t.{}::text IS NOT DISTINCT FROM d.{}::text"
        ).format(names[i], places[i])
        for i in range(len(names))
    )
    delete = sql.SQL(
        "DELETE FROM {t} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ("
        " SELECT t.ctid, d.n, row_number() OVER (PARTITION BY d.pos) AS nth FROM {t} t JOIN {d} d ON d.n < 0 AND {same}"
        ") pairs WHERE nth <= -n))"
    ).format(t=target(table), d=batch_table(table), same=same)
    insert = sql.SQL(
        "INSERT INTO {t} ({names}) SELECT {values} FROM {d} d, generate_series(1, d.n) WHERE d.n > 0"
    ).format(
        t=target(table),
        d=batch_table(table),
        names=sql.SQL(", ").join(names),
        values=sql.SQL(", ").join(sql.SQL("d.{}").format(p) for p in places),
    )
    return [delete, insert]


def key_index(table: StreamTable, key: tuple[int, ...], server: int) -> sql.Composed:
    """The index a keyed MERGE finds its rows with; unique where the server can treat NULLs as equal."""
    columns = sql.SQL(", ").join(_names(table)[i] for i in key)
    text = "CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT" if server >= MERGE_SINCE else "CREATE INDEX ON {} ({})"
    return sql.SQL(text).format(target(table), columns)
