"""The net rows of a delta in; one action per key (insert, update or delete) out. Pure, on Arrow."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from applier.zset import WEIGHT, Row, column_name

ACT = "act"
INSERT, UPDATE, DELETE = "I", "U", "D"


def row_tuples(rows: pa.Table) -> Iterator[Row]:
    """Yield rows as Python tuples, the weight last."""
    for batch in rows.to_batches():
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def row_actions(rows: pa.Table, key: tuple[int, ...]) -> pa.Table:
    """Return one row per key of a keyed stream table with its action in ACT: deletions, then updates, then insertions.

    For an update it is the new row.
    """
    names = [column_name(i) for i in key]
    position = pa.array(range(rows.num_rows), pa.int64())
    is_insert = pc.greater(rows[WEIGHT], 0)
    sides = {"new": pc.if_else(is_insert, position, None), "old": pc.if_else(is_insert, None, position)}
    # Without key columns there is one row, and one group.
    grouped = {name: rows[name] for name in names} or {"one": pa.nulls(rows.num_rows)}
    found = (
        pa.table({**{f"k{i}": column for i, column in enumerate(grouped.values())}, **sides})
        .group_by([f"k{i}" for i in range(len(grouped))], use_threads=False)
        .aggregate([("new", "max"), ("old", "max"), ("new", "count"), ("old", "count")])
    )
    most = [pc.max(column).as_py() or 0 for column in (found["new_count"], found["old_count"], pc.abs(rows[WEIGHT]))]
    if max(most) > 1:
        raise AssertionError("rows of a keyed result share a key")
    new, old = found["new_max"], found["old_max"]
    parts = [
        (DELETE, old.filter(pc.is_null(new))),
        (UPDATE, new.filter(pc.and_(pc.is_valid(new), pc.is_valid(old)))),
        (INSERT, new.filter(pc.is_null(old))),
    ]
    values = rows.drop_columns([WEIGHT])
    return pa.concat_tables(
        values.take(positions).append_column(ACT, pa.repeat(pa.scalar(act), len(positions))) for act, positions in parts
    )
