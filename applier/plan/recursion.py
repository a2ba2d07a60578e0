"""Which recursions can be followed from what they derived before."""

from __future__ import annotations

from applier.plan.nodes import Filter, Join, Node, Project, Recursion, Repeat, UnionAll, Unnest, WorkTable, walk


def is_delete_rederivable(node: Recursion) -> bool:
    """Whether every row of the step comes from exactly one row of the last round: step(A + B) = step(A) + step(B).

    Each branch must read those rows, and on the way from them there may only be what keeps the derivations of a row
    apart: a join with other relations, then what is done to each row alone. Then a lost derivation shows as a negative
    weight, though another one comes instead.
    """
    return not _reads(node.base, node.number) and _one_by_one(node.step, node.number)


def _one_by_one(node: Node, number: int) -> bool:
    match node:
        case Filter() | Project() | Repeat() | Unnest():
            return _one_by_one(node.input, number)
        case UnionAll():
            return all(_one_by_one(branch, number) for branch in node.branches)
        case _:
            return _joined(node, number)


def _joined(node: Node, number: int) -> bool:
    match node:
        case Join():
            sides = [(node.left, node.right), (node.right, node.left)]
            return any(_joined(one, number) and not _reads(other, number) for one, other in sides)
        case _:
            return _themselves(node, number)


def _themselves(node: Node, number: int) -> bool:
    match node:
        case Filter() | Project():
            return _themselves(node.input, number)
        case WorkTable():
            return node.number == number
        case _:
            return False


def _reads(node: Node, number: int) -> bool:
    return any(isinstance(below, WorkTable) and below.number == number for below in walk(node))
