"""GROUPING SETS, ROLLUP and CUBE -> the list of grouping sets. Pure."""

from __future__ import annotations

from itertools import combinations, product

from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.node_text import TextNode
from applier.sql.refusal import Reason, Refused

MAX_GROUPING_SETS = 64
"""Each set is an aggregate of its own; CUBE of seven columns has twice as many sets."""

_EMPTY, _SIMPLE, _ROLLUP, _CUBE, _SETS = range(5)

Set = tuple[int, ...]


def grouping_sets(nodes: tuple[TextNode, ...], major: int, *, distinct: bool) -> tuple[Set, ...]:
    """Return all sets in PostgreSQL's order, each only once if `distinct`; none for a plain GROUP BY."""
    if not nodes:
        return ()
    parts = [_sets(node, major) for node in nodes]
    count = 1
    for part in parts:
        count *= len(part)
    if count > MAX_GROUPING_SETS:
        construct = f"GROUP BY with {count} grouping sets"
        hint = f"at most {MAX_GROUPING_SETS} are supported; create several stream tables"
        raise Refused(Reason.CONSTRUCT, construct, hint=hint)
    found = [tuple(dict.fromkeys(key for part in parts for key in part)) for parts in product(*parts)]
    return tuple({frozenset(keys): keys for keys in reversed(found)}.values())[::-1] if distinct else tuple(found)


def _sets(node: TextNode, major: int) -> list[Set]:
    if node.kind != "GROUPINGSET":
        raise unknown(f"a {node.kind} node in GROUPING SETS")
    fields = Fields(node, major)
    kind = fields.integer("kind")
    if kind == _EMPTY:
        fields.tree("content")
        found: list[Set] = [()]
    elif kind == _SIMPLE:
        found = [fields.integers("content")]
    elif kind in (_ROLLUP, _CUBE, _SETS):
        found = _expand(kind, [_sets(part, major) for part in fields.nodes("content")])
    else:
        raise unknown(f"a grouping set of kind {kind}")
    fields.finish()
    return found


def _expand(kind: int, parts: list[list[Set]]) -> list[Set]:
    if kind == _SETS:
        return [keys for part in parts for keys in part]
    if any(len(part) != 1 for part in parts) or len(parts) > MAX_GROUPING_SETS:
        raise unknown("a ROLLUP or CUBE of grouping sets")
    keys = [part[0] for part in parts]
    if kind == _ROLLUP:
        chosen = [keys[:n] for n in range(len(keys), -1, -1)]
    else:
        if 1 << len(keys) > MAX_GROUPING_SETS:
            construct = f"CUBE of {len(keys)} columns"
            hint = f"it makes more than {MAX_GROUPING_SETS} grouping sets; list the sets you need in GROUPING SETS"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint)
        chosen = [list(groups) for n in range(len(keys), -1, -1) for groups in combinations(keys, n)]
    return [tuple(key for group in groups for key in group) for groups in chosen]
