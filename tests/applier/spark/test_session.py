"""What a Spark master says about the cores of this machine."""

from __future__ import annotations

import os

import pytest

from applier.spark.session import count_cores


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
        ("spark://host:7077", 7),
        ("local-cluster[2,1,1024]", 7),
    ],
)
def test_the_cores_of_a_master(master: str, cores: int) -> None:
    assert count_cores(master, elsewhere=7) == cores
