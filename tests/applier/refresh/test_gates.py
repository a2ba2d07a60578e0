"""Which stream tables gates and watermark groups hold, and where: laws over many gates, positions and readers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.holding.gates import Gate, GateKind, SkipReason, find_hold, find_positions, find_stuck, key_of
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.table_schema import TableId

TABLES = [TableId("shop", name) for name in "abcd"]
CLOSED_AT = datetime(2026, 1, 1, tzinfo=UTC)

positions = st.integers(1, 1000).map(Lsn)
some_tables = st.frozensets(st.sampled_from(TABLES), min_size=1)


@st.composite
def gates(draw: st.DrawFn, name: str = "g") -> Gate:
    sources = draw(some_tables)
    kind = GateKind.WATERMARK if len(sources) > 1 else GateKind.GATE
    closed, opened = draw(positions), draw(positions)
    letter = draw(st.sampled_from("xyz"))
    return Gate(
        kind=kind,
        id=letter,
        name=letter + name,
        sources=sources,
        min_sources=1 if kind is GateKind.GATE else 2,
        is_closed=draw(st.booleans()),
        closed_lsn=closed,
        held_lsn=draw(st.none() | positions),
        opened_lsn=max(closed, opened),
        closed_at=CLOSED_AT,
        detail="",
        readers_at=draw(st.just(ORIGIN) | positions),
    )


many_gates = st.lists(gates(), max_size=5, unique_by=lambda gate: (gate.kind, gate.id))


@given(many_gates, positions, positions)
def test_a_position_is_where_the_furthest_reader_is_and_it_stays(found: list[Gate], last: Lsn, log_end: Lsn) -> None:
    first = find_positions(found, {}, last, log_end)
    for gate in found:
        if gate.is_closed:
            assert first[key_of(gate)] == (gate.held_lsn or max(gate.closed_lsn, gate.readers_at, last))
        else:
            assert first[key_of(gate)] == log_end
    renamed = [replace(gate, name="renamed", readers_at=Lsn(4000)) for gate in found]
    assert find_positions(renamed, first, Lsn(5000), Lsn(6000)) == first, "nothing moves a gate that was seen"
    stored = [replace(gate, held_lsn=first[key_of(gate)]) for gate in renamed if gate.is_closed]
    after_restart = find_positions(stored, {}, ORIGIN, Lsn(6000))
    assert after_restart == {key_of(gate): first[key_of(gate)] for gate in stored}


@given(many_gates, some_tables, positions, positions)
def test_no_reader_passes_a_closed_gate(
    found: list[Gate], sources: frozenset[TableId], lsn: Lsn, frontier: Lsn
) -> None:
    where = find_positions(found, {}, ORIGIN, Lsn(5000))
    hold = find_hold(sources, lsn, frontier, found, where)
    closed = [
        where[key_of(gate)] for gate in found if gate.is_closed and len(gate.sources & sources) >= gate.min_sources
    ]
    waits = [g for g in found if not g.is_closed and g.concerns(sources) and g.opened_lsn and lsn <= g.opened_lsn]
    if not closed and not waits:
        assert hold is None, "who reads nothing that is gated goes on"
    else:
        assert hold is not None and hold.limit == min([*closed, *([lsn] if waits else [])])


@given(gates(), st.lists(some_tables, min_size=2), positions)
def test_all_readers_of_one_gate_have_one_limit(gate: Gate, readers: list[frozenset[TableId]], frontier: Lsn) -> None:
    where = find_positions([gate], {}, ORIGIN, ORIGIN)
    holds = [find_hold(sources, ORIGIN, frontier, [gate], where) for sources in readers if gate.concerns(sources)]
    assert len({hold.limit for hold in holds if hold}) <= 1
    if gate.is_closed:
        assert all(holds)


def _gate(*, closed: bool, kind: GateKind = GateKind.GATE) -> Gate:
    sources = frozenset(TABLES[: 1 if kind is GateKind.GATE else 2])
    return Gate(kind, "1", "shop.a", sources, len(sources), closed, Lsn(100), None, Lsn(200), CLOSED_AT, "", ORIGIN)


def test_an_opened_gate_waits_for_the_transaction_that_opened_it() -> None:
    gate = _gate(closed=False)
    where = find_positions([gate], {}, Lsn(150), Lsn(230))
    reads = {TABLES[0]}
    held = find_hold(reads, Lsn(100), Lsn(220), [gate], where)
    assert held is not None and (held.limit, held.reason) == (Lsn(100), SkipReason.SOURCE_GATED)
    assert find_hold(reads, Lsn(100), Lsn(230), [gate], where) is None
    assert find_hold(reads, Lsn(201), Lsn(220), [gate], where) is None, "it has gone on already"


def test_a_group_holds_who_reads_two_of_its_sources() -> None:
    group = _gate(closed=True, kind=GateKind.WATERMARK)
    where = find_positions([group], {}, ORIGIN, ORIGIN)
    assert find_hold({TABLES[0], TABLES[2]}, ORIGIN, Lsn(900), [group], where) is None
    held = find_hold(set(TABLES), ORIGIN, Lsn(900), [group], where)
    assert held is not None and held.reason is SkipReason.WATERMARK_MISALIGNED


def test_a_group_is_stuck_after_the_timeout() -> None:
    group, gate = _gate(closed=True, kind=GateKind.WATERMARK), _gate(closed=True)
    late = CLOSED_AT + timedelta(seconds=31)
    assert find_stuck([gate, group], late, 30) == [group]
    assert find_stuck([gate, group], late, 31) == []
    assert find_stuck([gate, group], late, 0) == []
    assert find_stuck([_gate(closed=False, kind=GateKind.WATERMARK)], late, 30) == []
