"""Copied rows -> change rows of the snapshot.

They are stamped one byte before the consistent point L, where no commit record can start: so they come after everything
the snapshot replaces, before every streamed row of the table (whose commits start at L or later), share a stamp with
none of them, and a frontier of L includes them. The T row of a table captured again has number 0, its rows follow.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from cdc_consumer.change_rows.values import RowParser
from cdc_consumer.snapshot.export import Export, TableExport
from cdc_consumer.wal.diagnosis import diagnose_exception
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.table_schema import quote_identifier

NO_XID = 0
"""A snapshot belongs to no transaction."""


def snapshot_rows(export: Export, table: TableExport, *, again: bool, now_us: int) -> Iterator[ChangeRow]:
    """The rows of one table at the export's consistent point; with `again`, a T row first."""
    lsn = export.stamp
    if again:
        yield ChangeRow(Op.TRUNCATE, Stamp(lsn, 0), NO_XID, now_us, None, snapshot=True)
    parser = RowParser(table.schema)
    try:
        with export.reader.cursor() as cursor, cursor.copy(_query(table).encode()) as copy:
            for seq, texts in enumerate(copy.rows(), start=1):
                yield ChangeRow(Op.INSERT, Stamp(lsn, seq), NO_XID, now_us, parser.row(texts), snapshot=True)
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def _query(table: TableExport) -> str:
    columns = ", ".join(quote_identifier(c.name) for c in table.schema.columns)
    published = table.published
    source = published.table.quoted if published.partitioned else f"ONLY {published.table.quoted}"
    where = f" WHERE {published.row_filter}" if published.row_filter else ""
    return f"COPY (SELECT {columns} FROM {source}{where}) TO STDOUT"
