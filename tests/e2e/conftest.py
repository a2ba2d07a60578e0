"""`db`: a connection to the running stack's database, without the stream tables of earlier tests."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from deploy.local.stack import Stack

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(stack: Stack) -> Iterator[Connection]:
    """Yield a connection; afterwards drop the test's stream tables, so that they do not slow down later tests."""
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        before = _stream_tables(connection)
        yield connection
        for name in _stream_tables(connection) - before:
            if name in _stream_tables(connection):
                connection.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (name,))


def _stream_tables(connection: Connection) -> set[str]:
    rows = connection.execute(
        "SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables"
    ).fetchall()
    return {str(row[0]) for row in rows}
