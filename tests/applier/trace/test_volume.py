"""Large rows count as several."""

from __future__ import annotations

import doctest

import pyarrow as pa

from applier.trace import volume


def test_the_examples() -> None:
    assert doctest.testmod(volume).failed == 0


def test_row_groups_of_large_rows_are_small() -> None:
    assert volume.rows_per_group(pa.table({"c0": list(range(100))})) is None
    assert volume.rows_per_group(pa.table({"c0": pa.array([], pa.string())})) is None
    large = volume.rows_per_group(pa.table({"c0": ["x" * 100_000] * 10}))
    assert large is not None and 160 < large < 170
    assert volume.rows_per_group(pa.table({"c0": ["x" * (20 << 20)]})) == 1
