"""Takes a table, returns queries that together read each of its rows once: page ranges of the table or its partitions.

All rows that the snapshot sees are in pages that existed when it was taken. The last range has no end, so the result
does not depend on the moment at which the size was read.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from cdc_consumer.snapshot.export import TableExport
from cdc_consumer.wal.catalog import Connection
from cdc_consumer.wal.diagnosis import diagnose_exception
from shared_schema.table_schema import quote_identifier


@dataclass(frozen=True, slots=True)
class TablePart:
    """A relation with storage: a plain table or a leaf partition."""

    relation: str
    """Quoted name."""
    pages: int
    rows: int
    """Row density of the last ANALYZE times the current number of pages; -1 without statistics."""
    by_page: bool
    """Whether page ranges can be read separately."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One COPY command and the number of pages that it reads."""

    query: str
    pages: int


_PARTS = """
SELECT format('%%I.%%I', n.nspname, c.relname),
       (CASE WHEN c.relkind = 'r' THEN pg_relation_size(c.oid) ELSE 0 END / current_setting('block_size')::int8)::int8,
       CASE WHEN c.reltuples < 0 OR c.relpages = 0 THEN -1 ELSE c.reltuples / c.relpages END,
       c.relkind = 'r' AND a.amname = 'heap'
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.oid = ANY (%(relids)s::oid[]) ORDER BY c.oid
"""


def parts_of(reader: Connection, table: TableExport) -> list[TablePart]:
    """Return the parts of the table's storage, as the snapshot's transaction sees them."""
    relids = list(table.leaves) if table.published.partitioned else [table.published.relid]
    try:
        found = reader.execute(_PARTS, {"relids": relids}).fetchall()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return [
        TablePart(name, int(pages), -1 if density < 0 else int(density * int(pages)), bool(by_page))
        for name, pages, density, by_page in found
    ]


def expected_rows(table: TableExport, parts: list[TablePart]) -> int | None:
    """Return the estimated number of rows; None if there is no estimate."""
    if table.published.row_filter or any(part.rows < 0 and part.pages for part in parts):
        return None
    return sum(max(0, part.rows) for part in parts)


def chunks_of(table: TableExport, parts: list[TablePart], pages: int) -> list[Chunk]:
    """Return COPY commands that together read each row of the table once, with the columns in table order."""
    return [chunk for part in parts for chunk in _chunks(table, part, pages)]


def _chunks(table: TableExport, part: TablePart, pages: int) -> list[Chunk]:
    if not part.by_page or part.pages <= pages:
        return [Chunk(_copy(table, part, []), part.pages)]
    starts = list(range(0, part.pages, pages))
    chunks: list[Chunk] = []
    for number, start in enumerate(starts):
        last = number == len(starts) - 1
        bounds = [f"ctid >= '({start},0)'::tid"]
        if not last:
            bounds.append(f"ctid < '({start + pages},0)'::tid")
        chunks.append(Chunk(_copy(table, part, bounds), part.pages - start if last else pages))
    return chunks


def _copy(table: TableExport, part: TablePart, bounds: list[str]) -> str:
    columns = ", ".join(quote_identifier(c.name) for c in table.schema.columns)
    row_filter = table.published.row_filter
    conditions = [*([f"({row_filter})"] if row_filter else []), *bounds]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"COPY (SELECT {columns} FROM ONLY {part.relation}{where}) TO STDOUT"
