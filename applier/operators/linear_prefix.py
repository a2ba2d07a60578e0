"""A plan node -> the relation and the linear map that it consists of: the part of a plan that can be arranged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from applier.operators.filter import apply_filter
from applier.operators.project import apply_project
from applier.operators.repeat import apply_repeat
from applier.operators.support.inputs import LinearMap, identity_map
from applier.operators.unnest import apply_unnest
from applier.plan.nodes import Filter, Node, Project, Repeat, Scan, Unnest, fields
from applier.zset import ZSet, column_names

_HOLE = "\x00"


@dataclass(frozen=True, slots=True)
class _WrittenMap:
    """A linear map that is written once: what comes before and after the text of its input."""

    before: str
    after: str
    columns: tuple[str, ...]

    def __call__(self, zset: ZSet) -> ZSet:
        return ZSet(f"{self.before}{zset.sql}{self.after}", self.columns)


def linear_prefix(node: Node) -> tuple[Scan, LinearMap] | None:
    """Return the relation and the linear map of the node; None where the node is more than that."""
    match node:
        case Scan():
            return node, identity_map
        case Filter() | Project():
            below = linear_prefix(node.input)
            if below is None:
                return None
            scan, inner = below
            written = apply_linear(node, inner(ZSet(_HOLE, tuple(column_names(len(fields(scan)))))))
            before, _, after = written.sql.partition(_HOLE)
            return scan, _WrittenMap(before, after, written.columns)
        case _:
            return None


def apply_linear(node: Filter | Project | Repeat | Unnest, zset: ZSet) -> ZSet:
    """Apply the node to a Z-set."""
    match node:
        case Filter():
            return apply_filter(node, zset)
        case Project():
            return apply_project(node, zset)
        case Repeat():
            return apply_repeat(node, zset)
        case Unnest():
            return apply_unnest(node, zset)
        case _:
            assert_never(node)
