"""Decides whether a recursion can be maintained from the rows that it derived before (delete and rederive)."""

from __future__ import annotations

from applier.plan.nodes import Filter, Join, Node, Project, Recursion, Repeat, UnionAll, Unnest, WorkTable, walk


def is_delete_rederivable(node: Recursion) -> bool:
    """Whether every row of the step comes from exactly one row of the last round: step(A + B) = step(A) + step(B).

    Each branch must read those rows. Above them only operators are allowed that keep the derivations of a row apart: a
    join with other relations, then operators that treat each row alone. Then a lost derivation shows as a negative
    weight, even if another one replaces it.
    """
    return not _reads_work_table(node.base, node.number) and _keeps_derivations(node.step, node.number)


def _keeps_derivations(node: Node, number: int) -> bool:
    match node:
        case Filter() | Project() | Repeat() | Unnest():
            return _keeps_derivations(node.input, number)
        case UnionAll():
            return all(_keeps_derivations(branch, number) for branch in node.branches)
        case _:
            return _is_joined_work_table(node, number)


def _is_joined_work_table(node: Node, number: int) -> bool:
    match node:
        case Join():
            sides = [(node.left, node.right), (node.right, node.left)]
            return any(
                _is_joined_work_table(one, number) and not _reads_work_table(other, number) for one, other in sides
            )
        case _:
            return _is_work_table(node, number)


def _is_work_table(node: Node, number: int) -> bool:
    match node:
        case Filter() | Project():
            return _is_work_table(node.input, number)
        case WorkTable():
            return node.number == number
        case _:
            return False


def _reads_work_table(node: Node, number: int) -> bool:
    return any(isinstance(below, WorkTable) and below.number == number for below in walk(node))
