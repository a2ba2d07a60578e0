"""Rows of a large micro-batch are held in files without a name, and are the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from applier.errors import Infrastructure
from applier.ingest.on_disk import is_plain, move_to_disk, pack_rows
from applier.trace.align import RowAligner, to_arrow
from applier.trace.columns import captured_columns
from applier.trace.stamped_rows import StampedRow
from shared_schema.change_row import ChangeRow, Op, Stamp, Value
from shared_schema.lsn import Lsn
from tests.applier.ingest.test_decode import SCHEMA, VALUES


def row(
    seq: int, values: tuple[Value, ...] | None, op: Op = Op.INSERT, unknown: frozenset[int] = frozenset()
) -> StampedRow:
    return StampedRow(ChangeRow(op, Stamp(Lsn(5), seq), 1, 0, values, None, unknown), SCHEMA)


def test_rows_on_disk_are_the_same(tmp_path: Path) -> None:
    width = max(map(len, VALUES.values()))
    rows = [row(i, tuple(values[i % len(values)] for values in VALUES.values())) for i in range(width)]
    rows.append(row(width, (None,) * len(VALUES), Op.DELETE))
    assert all(map(is_plain, rows))
    chunk = pack_rows(rows)
    assert chunk is not None
    held = move_to_disk(chunk, tmp_path)
    assert list(tmp_path.iterdir()) == []
    columns = captured_columns((), SCHEMA.columns, Lsn(1))
    aligner = RowAligner(SCHEMA.table, columns, SCHEMA)
    expected = to_arrow(columns, [aligner.align(one.row) for one in rows])
    found, losses = aligner.align_many(held.rows)
    assert found.to_pydict().__repr__() == expected.to_pydict().__repr__() and not losses


def test_rows_that_need_special_treatment_are_not_plain() -> None:
    values = tuple(choices[0] for choices in VALUES.values())
    infinite = tuple("infinity" if column.name == "day" else v for column, v in zip(VALUES, values, strict=True))
    assert not is_plain(row(0, infinite))
    assert not is_plain(row(0, values, unknown=frozenset([1])))
    assert not is_plain(row(0, None, Op.TRUNCATE)) and not is_plain(row(0, values, Op.TRUNCATE))


def test_a_value_that_its_type_does_not_hold_is_left_to_the_trace() -> None:
    values = tuple(2**40 if column.name == "Int4" else None for column in VALUES)
    assert pack_rows([row(0, values)]) is None


def test_a_folder_that_is_not_there_is_no_fault_of_the_rows(tmp_path: Path) -> None:
    chunk = pack_rows([row(0, (None,) * len(VALUES))])
    assert chunk is not None
    with pytest.raises(Infrastructure, match="cannot be written"):
        move_to_disk(chunk, tmp_path / "missing")
