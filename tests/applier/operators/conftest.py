from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def _interpreted(interpreted: SparkSession) -> None:
    """Many small queries, each once."""
