"""What docstrings say of whole modules is what their imports say."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import grimp

SHIPPED = ("shared_schema", "cdc_consumer", "applier")
OUTSIDE = ("psycopg", "pyspark", "confluent_kafka", "deltalake")


def _docstring(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return ast.get_docstring(ast.parse(Path(found.origin).read_text())) or ""


def test_a_module_that_says_it_is_pure_reaches_nothing_that_does_io() -> None:
    graph = grimp.build_graph(*SHIPPED, include_external_packages=True)
    assert set(OUTSIDE) <= graph.modules
    pure = [m for m in graph.modules - set(OUTSIDE) if m.split(".")[0] in SHIPPED]
    pure = [m for m in pure if re.search(r"\bpure\b", _docstring(m), re.IGNORECASE)]
    assert len(pure) > 20
    reached = {m: chain for m in pure for o in OUTSIDE if (chain := graph.find_shortest_chain(m, o))}
    assert reached == {}
