"""Row keys and nullability, node by node."""

from __future__ import annotations

from applier.plan.expr import (
    BOOL,
    AggregateCall,
    BoolOp,
    Call,
    Case,
    Coalesce,
    Col,
    Const,
    Expr,
    IsNull,
    Logic,
    ValueType,
    Widen,
    columns_read,
    nullable,
    shift,
)
from applier.plan.expr import INT4 as INT
from applier.plan.expr import INT8 as LONG
from applier.plan.keys import identifies_rows, row_key
from applier.plan.nodes import (
    Aggregate,
    Field,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Scan,
    SemiJoin,
    UnionAll,
    fields,
)
from shared_schema.pg_types import PgType
from shared_schema.table_schema import TableId


def _scan(*not_null: bool, key: tuple[int, ...] | None) -> Scan:
    columns = tuple(f"a{i}" for i in range(len(not_null)))
    return Scan(TableId("s", "t"), 1, columns, tuple(Field(INT, not n) for n in not_null), key)


def _col(ordinal: int, can_be_null: bool = True) -> Col:
    return Col(ordinal, INT, can_be_null)


KEYED = _scan(True, False, key=(0,))
BAG = _scan(True, False, key=None)


def _joined(left: Node, right: Node, *pairs: tuple[Expr, Expr]) -> tuple[int, ...] | None:
    return row_key(Join(left, right, pairs, None))


def test_a_filter_keeps_the_key_and_a_projection_keeps_what_it_shows() -> None:
    true = Const(True, BOOL)
    assert row_key(Filter(KEYED, true)) == (0,)
    assert row_key(Project(KEYED, (_col(1), _col(0)))) == (1,)
    assert row_key(Project(KEYED, (_col(0), _col(0)))) == (0,)
    assert row_key(Project(KEYED, (_col(1),))) is None
    assert row_key(Project(KEYED, (Widen(_col(0), LONG),))) is None


def test_a_join_needs_both_keys_unless_a_side_is_looked_up() -> None:
    assert _joined(KEYED, KEYED) == (0, 2)
    assert _joined(KEYED, BAG) is None
    assert _joined(KEYED, KEYED, (_col(1), _col(1))) == (0, 2)
    assert _joined(KEYED, KEYED, (_col(1), _col(0))) == (0,)
    assert _joined(KEYED, KEYED, (_col(0), _col(1))) == (2,)
    assert _joined(KEYED, KEYED, (Widen(_col(1), LONG), Widen(_col(0), LONG))) == (0,)
    assert _joined(KEYED, KEYED, (_col(1), Call("int4um(int4)", (_col(0),), INT))) == (0, 2)


def test_columns_bound_by_pairs_are_not_part_of_the_key() -> None:
    lines = _scan(True, True, False, key=(0, 1))
    assert _joined(BAG, lines, (_col(0), _col(0))) is None
    assert _joined(KEYED, lines, (_col(1), _col(0))) == (0, 3)
    assert row_key(OuterJoin(KEYED, lines, ((_col(1), _col(0)),), None, False)) == (0, 3)
    assert row_key(OuterJoin(KEYED, lines, ((_col(1), _col(0)),), None, True)) == (0, 2, 3)


def test_rows_are_identified_by_what_an_inner_join_makes_equal() -> None:
    lines = _scan(True, True, False, key=(0, 1))
    joined = Join(KEYED, lines, ((_col(0), _col(0)),), None)
    assert row_key(joined) == (2, 3)
    assert identifies_rows(joined, (_col(0), _col(3)))
    assert identifies_rows(Filter(joined, Const(True, BOOL)), (_col(0), _col(3)))
    assert not identifies_rows(joined, (_col(1), _col(3)))
    assert not identifies_rows(Join(KEYED, lines, (), None), (_col(0), _col(3)))
    null = Const(0, INT)
    pairs = (
        (IsNull(_col(1), False, BOOL), IsNull(_col(0), False, BOOL)),
        (Coalesce((_col(1), null), INT), Coalesce((_col(0), null), INT)),
    )
    assert identifies_rows(Join(KEYED, lines, pairs, None), (_col(0), _col(1), _col(3)))
    # Equality of values says nothing about NULL.
    assert not identifies_rows(Join(BAG, lines, pairs[1:], None), (_col(0), _col(1), _col(3)))
    floats = ValueType(PgType(701, -1, "float8", "double precision"), "double")
    assert not identifies_rows(Join(KEYED, lines, ((Col(0, floats), Col(0, floats)),), None), (_col(0), _col(3)))


def test_an_outer_join_needs_both_keys_unless_the_right_is_looked_up() -> None:
    grouped = Aggregate(BAG, (_col(1),), ())
    assert row_key(OuterJoin(KEYED, KEYED, ((_col(1), _col(1)),), None, False)) == (0, 2)
    assert row_key(OuterJoin(KEYED, KEYED, ((_col(1), _col(0)),), None, False)) == (0,)
    assert row_key(OuterJoin(KEYED, KEYED, ((_col(0), _col(1)),), None, False)) == (0, 2)
    assert row_key(OuterJoin(KEYED, KEYED, ((_col(1), _col(0)),), None, True)) == (0, 2)
    assert row_key(OuterJoin(KEYED, BAG, ((_col(1), _col(0)),), None, False)) is None
    # A NULL group on both sides, each without a match, would be the same row twice.
    assert row_key(OuterJoin(grouped, grouped, ((_col(0), _col(0)),), None, True)) is None
    assert row_key(OuterJoin(KEYED, grouped, ((_col(0), _col(0)),), None, True)) == (0, 2)
    assert [f.nullable for f in fields(OuterJoin(KEYED, KEYED, (), None, False))] == [False, True, True, True]
    assert [f.nullable for f in fields(OuterJoin(KEYED, KEYED, (), None, True))] == [True] * 4


def test_a_semi_join_is_its_left_input() -> None:
    for anti in (False, True):
        node = SemiJoin(KEYED, BAG, ((_col(0), _col(0)),), None, anti)
        assert row_key(node) == (0,)
        assert fields(node) == fields(KEYED)


def test_an_aggregate_is_keyed_by_its_groups() -> None:
    count = AggregateCall("count()", (), LONG, nullable=False)
    total = AggregateCall("sum(int4)", (_col(1),), LONG)
    grouped = Aggregate(BAG, (_col(0, False), _col(1)), (count, total))
    assert row_key(grouped) == (0, 1)
    assert [f.nullable for f in fields(grouped)] == [False, True, False, True]
    assert row_key(Aggregate(BAG, (), (count,))) == ()


def test_a_union_has_no_key_and_is_nullable_where_a_branch_is() -> None:
    union = UnionAll((KEYED, _scan(False, True, key=(0,))))
    assert row_key(union) is None
    assert [f.nullable for f in fields(union)] == [True, True]
    assert [f.nullable for f in fields(UnionAll((KEYED, KEYED)))] == [False, True]


def test_what_may_be_null() -> None:
    null, one, maybe = Const(None, INT), Const(1, INT), _col(0)
    true = Const(True, BOOL)
    assert not nullable(IsNull(maybe, False, BOOL))
    assert not nullable(Coalesce((maybe, one), INT))
    assert nullable(Coalesce((maybe, null), INT))
    assert nullable(Case(((true, one),), null, INT))
    assert not nullable(Case(((IsNull(maybe, True, BOOL), one),), one, INT))
    assert nullable(Widen(maybe, LONG))
    assert nullable(BoolOp(Logic.AND, (true, Col(0, BOOL)), BOOL))


def test_shift_moves_every_column() -> None:
    expr = Case(((IsNull(_col(0), False, BOOL), Coalesce((_col(1), Const(1, INT)), INT)),), Widen(_col(2), LONG), LONG)
    assert sorted(columns_read(expr)) == [0, 1, 2]
    assert sorted(columns_read(shift(expr, 3))) == [3, 4, 5]
    assert shift(shift(expr, 3), -3) == expr
