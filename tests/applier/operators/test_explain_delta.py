"""The delta plan that `explain` prints: lookups, state, what is computed by itself, what is broadcast."""

from __future__ import annotations

import pytest

from applier.operators.explain_delta import explain_deltas
from applier.plan.expr import AggregateCall, Col
from applier.plan.nodes import Aggregate, Join, Node, SemiJoin, StreamPlan, fields
from tests.applier.operators.plans import BIG, INT, scan

X, Y = Col(0, INT), Col(1, INT)
JOINED = Join(scan("a"), scan("b"), ((X, X),), None)

CASES: dict[str, tuple[Node, str]] = {
    "an aggregate of a join, from its state": (
        Aggregate(JOINED, (X,), (AggregateCall("sum(int4)", (Y,), BIG),)),
        """\
a change of public.a:
  updates the state of Aggregate by a.x AS n0: sum(a.y) AS n1
    the change rows of a
      joined with b after, looked up by x, the rows so far are broadcast
  changes the result
    Aggregate by a.x AS n0: sum(a.y) AS n1, from the sums in its state
a change of public.b:
  updates the state of Aggregate by a.x AS n0: sum(a.y) AS n1
    the change rows of b
      joined with a before, looked up by x, the rows so far are broadcast
  changes the result
    Aggregate by a.x AS n0: sum(a.y) AS n1, from the sums in its state
""",
    ),
    "a semi-join, whose right side is read again when it changes": (
        SemiJoin(scan("a"), scan("b"), ((X, X),), None, False),
        """\
a change of public.a:
  changes the result
    SemiJoin on a.x = b.x, for the affected keys, before and after
      the change rows of a
      b before, looked up by x
a change of public.b:
  changes the result
    step 1, computed by itself because it is read again
      a before, looked up by x
    step 2, computed by itself because it is read again
      b before, looked up by x
    SemiJoin on a.x = b.x, for the affected keys, before and after
      the change rows of b
      step 1
      step 2
""",
    ),
    "a minimum": (
        Aggregate(scan("a"), (X,), (AggregateCall("min(int4)", (Y,), INT),)),
        """\
a change of public.a:
  updates the state of Aggregate by x AS n0: min(y) AS n1
    the change rows of a
  changes the result
    Aggregate by x AS n0: min(y) AS n1, from the minima and maxima in its state
""",
    ),
}


@pytest.mark.parametrize(("node", "expected"), [pytest.param(*case, id=name) for name, case in CASES.items()])
def test_plans_are_as_reviewed(node: Node, expected: str) -> None:
    assert explain_deltas(StreamPlan(node, tuple(f"n{i}" for i in range(len(fields(node)))))) == expected
