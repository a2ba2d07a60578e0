"""A stream table in; the rows in which it differs from its query, both evaluated by PostgreSQL at one LSN, out.

Transactions that write the sources wait during the comparison: with the sources locked against writes, the frontier
that the stream table reaches is the LSN that the query sees. A sample shortens that time: both sides are restricted to
the same few values of the key, which PostgreSQL looks up in the query instead of computing all of it.

The query runs with the rights of the stream table's owner, which its functions cannot leave: as the body of a temporary
function that belongs to the owner. The transaction is rolled back, with all that a function did.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from applier.catalog.confined import Confined
from applier.errors import CheckFailed
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.session_pins import OWN_PATH, PATH_OF_THE_ROLE
from shared_schema.table_schema import TableId

SHOWN_DIFFERENCES = 5

LOCK_LIMIT_S = 10
"""How long the check waits for the locks on the sources; later writers wait behind it."""

WAIT_LIMIT_S = 60
"""How long writers wait at most for a stream table that does not reach the frontier."""

_QUERY = "pgt_checked"
"""The temporary view of the query."""

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class CheckResult:
    """The outcome for one stream table: the number of compared rows, and the first differences."""

    table: TableId
    frontier: Lsn
    rows: int
    missing: list[str]
    unexpected: list[str]
    columns: str = ""
    """How its columns differ from the query's."""
    suspended: str = ""
    """Why it was not compared, when it is suspended."""
    skipped: str = ""
    """Which changes it lacks on purpose; then it was not compared either."""

    @property
    def equal(self) -> bool:
        """Whether the stream table is exactly its query's result."""
        return not (self.missing or self.unexpected or self.columns or self.suspended or self.skipped)


@dataclass(frozen=True)
class _Definition:
    query: str
    status: str
    error: str
    skipped: str
    sources: list[str]
    reads: list[str]
    owner: str


def stream_table_names(connection: Connection) -> list[TableId]:
    """List every stream table that was ever filled, suspended ones included."""
    found = connection.execute(
        "SELECT s.pgt_schema, s.pgt_name FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle.pgt_frontiers USING (pgt_id)"
        " WHERE s.status IN ('ACTIVE', 'SUSPENDED') AND s.replaces IS NULL ORDER BY 1, 2"
    ).fetchall()
    return [TableId(str(schema), str(name)) for schema, name in found]


def check_stream_table(
    connection: Connection, table: TableId, *, sample: int | None = None, wait_s: int = WAIT_LIMIT_S
) -> CheckResult:
    """Lock the sources against writes, wait for the stream table, and compare rows as PostgreSQL prints them."""
    definition = _read_definition(connection, table)
    if (known := _not_compared(table, definition)) is not None:
        return known
    try:
        # Wait before locking too, so that the wait under the lock is short.
        connection.execute("SELECT pgtrickle.wait_for(%s)", (table.quoted,))
        with connection.transaction(force_rollback=True):
            frontier = _freeze(connection, table, definition, wait_s)
            return _compare(connection, table, definition, frontier, sample)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
        raise CheckFailed(
            f"{table} could not be checked: {str(error).splitlines()[0]}",
            hint="a long transaction writes a source, or a program is not running; try again, or see pgt_status()",
        ) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        # Something that it reads holds it.
        raise CheckFailed(
            f"{table} could not be checked: {str(error).splitlines()[0]}", hint=error.diag.message_hint or ""
        ) from error


def check_once(connection: Connection, table: TableId, *, sample: int) -> CheckResult:
    """Compare both in one snapshot, without a lock: a change that is not refreshed yet shows as a difference."""
    definition = _read_definition(connection, table)
    if (known := _not_compared(table, definition)) is not None:
        return known
    with connection.transaction(force_rollback=True):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return _compare(connection, table, definition, ORIGIN, sample)


def _read_definition(connection: Connection, table: TableId) -> _Definition:
    found = connection.execute(
        # One that is being repaired is compared when that is done.
        "SELECT s.defining_query, CASE WHEN EXISTS (SELECT FROM pgtrickle.pgt_reinitializations r"
        "  WHERE r.pgt_id = s.pgt_id AND r.refused_at IS NULL) THEN 'ACTIVE' ELSE s.status END,"
        " coalesce(s.last_error_message, ''),"
        " coalesce((SELECT string_agg(f.problem, '; ') FROM pgtrickle._fuse_findings(s.pgt_id) f"
        "           WHERE f.class = 'ChangesSkipped'), ''),"
        " (SELECT coalesce(array_agg(format('%%I.%%I', b.source_schema, b.source_name) ORDER BY b.source_relid), '{}')"
        "  FROM pgtrickle._base_sources(s.pgt_id) b),"
        " (SELECT coalesce(array_agg(format('%%I.%%I', d.source_schema, d.source_name)), '{}')"
        "  FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = s.pgt_id AND d.source_type = 'STREAM_TABLE'),"
        " (SELECT pg_get_userbyid(c.relowner)::text FROM pg_class c WHERE c.oid = s.pgt_relid)"
        " FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_schema = %s AND s.pgt_name = %s",
        (table.schema, table.name),
    ).fetchone()
    if found is None:
        raise CheckFailed(f"there is no stream table {table}", hint="see SELECT * FROM pgtrickle.pgt_status()")
    query, status, error, skipped, sources, reads, owner = found
    lists = [[str(name) for name in names] if isinstance(names, list) else [] for names in (sources, reads)]
    text = str(query).rstrip().rstrip(";")
    return _Definition(text, str(status), str(error), str(skipped), lists[0], lists[1], str(owner))


def _not_compared(table: TableId, definition: _Definition) -> CheckResult | None:
    """Return the result for a stream table that is known not to be equal, or not to advance."""
    if definition.status == "SUSPENDED":
        return CheckResult(table, ORIGIN, 0, [], [], suspended=definition.error)
    return CheckResult(table, ORIGIN, 0, [], [], skipped=definition.skipped) if definition.skipped else None


def _freeze(connection: Connection, table: TableId, definition: _Definition, wait_s: int) -> Lsn:
    """Lock the sources, wait until the stream table and those that it reads have caught up; return its frontier."""
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_LIMIT_S}s'".encode())
    if definition.sources:
        connection.execute(f"LOCK TABLE {', '.join(definition.sources)} IN SHARE MODE".encode())
    frontier = ORIGIN
    for name in [*definition.reads, table.quoted]:
        waited = connection.execute(
            "SELECT pgtrickle.wait_for(%s, timeout => make_interval(secs => %s))::text", (name, wait_s)
        ).fetchone()
        frontier = Lsn.parse(str(waited[0])) if waited else ORIGIN
    return frontier


def _compare(
    connection: Connection, table: TableId, definition: _Definition, frontier: Lsn, sample: int | None
) -> CheckResult:
    confined = Confined(connection, definition.owner)
    confined.run(f"CREATE TEMP VIEW {_QUERY} AS {definition.query}", probe=definition.query)
    connection.execute(OWN_PATH)
    actual, expected = (_columns(connection, name) for name in (table.quoted, f"pg_temp.{_QUERY}"))
    if actual != expected:
        return CheckResult(table, frontier, 0, [], [], columns=f"{', '.join(actual)} instead of {', '.join(expected)}")
    chosen = sql.SQL("true") if sample is None else _sample_condition(connection, table, sample)
    relations = {"t": sql.Identifier(table.schema, table.name), "q": sql.Identifier("pg_temp", _QUERY)}
    sides: dict[str, sql.Composable] = {}
    for side, relation in relations.items():
        rows = sql.Identifier("pg_temp", f"{_QUERY}_{side}")
        body = sql.SQL("SELECT * FROM {} s WHERE {}").format(relation, chosen).as_string(connection)
        confined.run(
            sql.SQL(
                "CREATE FUNCTION {}() RETURNS SETOF {} LANGUAGE sql STABLE SECURITY DEFINER"
                " SET search_path FROM CURRENT AS {}"
            ).format(rows, relation, sql.Literal(body))
        )
        sides[side] = sql.SQL("SELECT * FROM {}()").format(rows)
    # Nothing of the query has run yet; from here on nothing can be written.
    connection.execute("SET TRANSACTION READ ONLY")
    connection.execute(OWN_PATH)
    count = connection.execute(sql.SQL("SELECT count(*) FROM ({t}) t").format(**sides)).fetchone()
    missing = _first_rows(
        connection, "SELECT (q.*)::text FROM ({q}) q EXCEPT ALL SELECT (t.*)::text FROM ({t}) t", sides
    )
    unexpected = _first_rows(
        connection, "SELECT (t.*)::text FROM ({t}) t EXCEPT ALL SELECT (q.*)::text FROM ({q}) q", sides
    )
    return CheckResult(table, frontier, int(str(count[0])) if count else 0, missing, unexpected)


def _columns(connection: Connection, relation: str) -> list[str]:
    found = connection.execute(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a"
        " WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        (relation,),
    ).fetchall()
    return [f"{name} {kind}" for name, kind in found]


def _sample_condition(connection: Connection, table: TableId, rows: int) -> sql.Composable:
    """Return a condition that about `rows` randomly chosen rows satisfy: some values of each column of the key.

    Without a key it uses the first column. A row that the stream table lacks is found when it has such values too.
    """
    # The key may be of a type from an extension, whose operators are not in pg_catalog.
    connection.execute("SELECT " + PATH_OF_THE_ROLE)
    found = connection.execute(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), c.reltuples FROM pg_class c"
        " LEFT JOIN LATERAL (SELECT i.indkey FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique"
        "  AND i.indexprs IS NULL AND i.indpred IS NULL ORDER BY i.indnatts LIMIT 1) k ON true"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (coalesce(k.indkey::int2[], '{1}'))"
        " WHERE c.oid = %s::regclass",
        (table.quoted,),
    ).fetchall()
    key = [sql.Identifier(str(name)) for name, _, _ in found]
    estimate = max(float(str(found[0][2])), 1.0)
    # By pages: only the chosen ones are read. More than needed, because some have few rows.
    percent = min(100.0, 100.0 * 4 * rows / estimate)
    chosen = connection.execute(
        sql.SQL("SELECT {} FROM {} TABLESAMPLE SYSTEM ({}) ORDER BY random() LIMIT {}").format(
            # Not ::text, which is a function of the type's owner where he made a cast.
            sql.SQL(", ").join(sql.SQL("CASE num_nonnulls({0}) WHEN 1 THEN concat({0}) END").format(c) for c in key),
            sql.Identifier(table.schema, table.name),
            sql.Literal(percent),
            sql.Literal(rows),
        )
    ).fetchall()
    conditions = [
        sql.SQL("s.{} = ANY ({}::text[]::{}[])").format(
            column, sql.Literal(sorted({str(row[i]) for row in chosen if row[i] is not None})), sql.SQL(str(kind))
        )
        for i, (column, (_, kind, _)) in enumerate(zip(key, found, strict=True))
    ]
    return sql.SQL(" AND ").join(conditions)


def _first_rows(connection: Connection, text: str, sides: dict[str, sql.Composable]) -> list[str]:
    # The query may have left another one behind.
    connection.execute(OWN_PATH)
    limited = sql.SQL(text + f" LIMIT {SHOWN_DIFFERENCES}").format(**sides)
    return [str(row[0]) for row in connection.execute(limited).fetchall()]
