"""State has one owner: no part writes into another, and nothing is decided by a metric."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CONSUMER = Path(__file__).parents[2] / "cdc_consumer"

WRITTEN_BY_OTHERS = {
    ("rows.py", "transaction.ordinal"),
    ("change_rows/buffer_rows.py", "self._transaction.ordinal"),  # encoders number rows as `Transaction.split` does
    ("rows.py", "writer.inserts"),
    ("rows.py", "writer.deletes"),  # `RelationWriter` is a record of the same module
    ("ring/segments.py", "segment.end"),  # so is `_Segment`
    ("sinks/kafka.py", "other.write"),
    ("sinks/kafka.py", "other.write_all"),
    ("sinks/postgres.py", "other.write"),  # a second object of the class itself
    ("snapshot/captures.py", "self._frontier.limit"),  # `Captures` owns the limit: it is the point of its export
    ("snapshot/copy.py", "conn.nonblocking"),
    ("wal/session.py", "self._conn.nonblocking"),  # of libpq
}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(CONSUMER.rglob("*.py")):
        yield str(path.relative_to(CONSUMER)), ast.parse(path.read_text())


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            pending = list(targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            pending = [target]
        case _:
            return
    while pending:
        found = pending.pop()
        if isinstance(found, ast.Tuple | ast.List):
            pending += found.elts
        else:
            yield found


def test_no_part_writes_into_another() -> None:
    written = {
        (file, ast.unparse(target))
        for file, tree in _trees()
        for node in ast.walk(tree)
        for target in _targets(node)
        if isinstance(target, ast.Attribute) and not (isinstance(target.value, ast.Name) and target.value.id == "self")
    }
    assert written == WRITTEN_BY_OTHERS


def test_nothing_is_decided_by_a_metric() -> None:
    """A metric may be set, counted or passed on; its value is not read, and no condition names one."""
    decided = [
        f"{file}:{node.lineno}"
        for file, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.If | ast.While | ast.IfExp) and re.search(r"\bmetrics\.", ast.unparse(node.test))
    ]
    assert decided == []
    read = [file for file, tree in _trees() if "._value" in ast.unparse(tree)]
    assert read == []
