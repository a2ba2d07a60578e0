"""Converts rows between Arrow and Python tuples, and adds their numbers up exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Context, localcontext
from typing import Any

import pyarrow as pa

from applier.errors import CalculationError
from applier.zset import Row
from shared_schema.pg_types import MAX_DECIMAL_DIGITS

_EXACT = Context(prec=100)


def zero_of(kind: pa.DataType) -> Any:
    """Return zero as a Python number of this type."""
    return pa.scalar(0).cast(kind).as_py()


def add_exact(left: Any, right: Any) -> Any:
    """Return the exact sum of two numbers."""
    with localcontext(_EXACT):
        return left + right


def add_sums(left: Row, right: Row) -> Row:
    """Return the exact sums of two rows of numbers, column by column."""
    with localcontext(_EXACT):
        return tuple(a + b for a, b in zip(left, right, strict=True))


def rows_as_tuples(table: pa.Table) -> list[Row]:
    """Return the rows of a table as tuples."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def arrow_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return an Arrow table of the rows, with this schema."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    with report_overflow():
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


PART_ROWS = 4_096
"""While Arrow converts so many rows, no other thread of Python runs: some milliseconds."""


def arrow_table_in_parts(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return the same table part by part, so that a tick that runs meanwhile does not wait for all of it."""
    parts = [arrow_table(rows[i : i + PART_ROWS], schema) for i in range(0, len(rows), PART_ROWS)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


@contextmanager
def report_overflow() -> Iterator[None]:
    """Turn Arrow's error for a decimal that is too long into one of the stream table whose sum it is."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CalculationError(
            f"a sum needs more digits than the {MAX_DECIMAL_DIGITS} of its physical type",
            hint="cast the argument to numeric(39,s), with its own scale s: such sums have no limit",
        ) from error
