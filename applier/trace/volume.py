"""Rows in, how much they are, out: limits that are given in rows hold for large rows too. Pure."""

from __future__ import annotations

import pyarrow as pa

ROW_BYTES = 1_024
"""A row that is larger than this counts as several."""

ROW_GROUP_BYTES = 16 << 20
"""Spark reads a row group of a Parquet file in batches of up to 4 096 rows, and holds a batch as a whole."""


def volume(rows: pa.Table) -> int:
    """Return the number of rows, or of their kilobytes if that is more.

    >>> volume(pa.table({"c0": [1, 2, 3]}))
    3
    >>> volume(pa.table({"c0": ["x" * 10_240]}))
    10
    """
    return max(int(rows.num_rows), int(rows.nbytes) // ROW_BYTES)


def rows_per_group(rows: pa.Table) -> int | None:
    """Return how many such rows a row group may have; None for rows that need no limit."""
    if not rows.num_rows or rows.nbytes <= ROW_BYTES * rows.num_rows:
        return None
    return max(1, ROW_GROUP_BYTES * int(rows.num_rows) // int(rows.nbytes))
