"""A stream table in; a digest of everything that decides what its state is at a given LSN, out.

A state is a function of the plan, of the rows of the sources at that LSN and of the code that computes it. Names of
columns are no part of it: the plan is compared without them.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pyspark

import applier
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import StreamTable
from shared_schema.dependency_facts import DependencyFacts
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId

FORM = 1
"""The version of the stored form."""

_CODE = ("arrange", "functions", "jvm", "operators", "plan", "spark", "state", "trace", "zset.py")
"""What of the applier computes states: with other code there they are computed once more."""

_PLAIN = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.datetime)


@dataclass(frozen=True, slots=True)
class SourceCopy:
    """Which copy of a relation its trace holds."""

    table: TableId
    relid: int
    captured_at: Lsn
    membership: str


def state_fingerprint(table: StreamTable, facts: DependencyFacts | None, copies: Iterable[SourceCopy]) -> str | None:
    """Return the digest of a state that was computed with these facts of the catalog; None for a plan that cannot be
    compared with another."""
    if not isinstance(table.plan, StreamPlan):
        return None
    try:
        parts = [FORM, code_digest(), structure(table.plan.root), _meanings(facts), structure(tuple(copies))]
    except (TypeError, RecursionError):
        return None
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def structure(value: Any) -> str:
    """Return a value as a text that is equal for equal values, in every process; raise TypeError for other kinds."""
    if value is None or type(value) in _PLAIN:
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return f"({','.join(map(structure, value))})"
    if is_dataclass(value) and not isinstance(value, type):
        compared = (f"{f.name}={structure(getattr(value, f.name))}" for f in fields(value) if f.compare)
        return f"{type(value).__name__}({','.join(compared)})"
    raise TypeError(f"{type(value).__name__} has no structure that can be compared")


def _meanings(facts: DependencyFacts | None) -> str:
    """Return what values of the sources mean beside the plan: labels of enums, parts of types, bodies of functions."""
    if facts is None:
        return ""
    relations = [(oid, sorted(fact.enums), sorted(fact.composites)) for oid, fact in sorted(facts.relations.items())]
    types = [(oid, fact.kind, fact.base, fact.labels, fact.columns) for oid, fact in sorted(facts.types.items())]
    functions = [(oid, fact.digest) for oid, fact in sorted(facts.functions.items())]
    return repr((relations, types, functions))


@cache
def code_digest() -> str:
    """Return a digest of the code that decides what a state is."""
    root = Path(applier.__file__).parent
    digest = hashlib.sha256(pyspark.__version__.encode())
    for name in _CODE:
        path = root / name
        files = [path] if path.is_file() else path.rglob("*")
        for file in sorted(file for file in files if file.suffix in (".py", ".java")):
            digest.update(f"\n{file.relative_to(root)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
