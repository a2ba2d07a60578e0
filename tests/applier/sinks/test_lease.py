"""Rows exist as long as one lease on them is open; a lease that is closed twice, or opened too late, raises."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY

from applier.plan.nodes import Scan, StreamPlan
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta, MemoryDelta
from applier.sinks.delta_queue import DeltaQueue
from applier.sinks.lease import Lease, LeaseCount
from applier.sinks.outbox_delta import OutboxDelta
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.table_schema import TableId


def open_leases() -> float:
    return REGISTRY.get_sample_value("pg_trickle_open_leases") or 0.0


def test_the_last_lease_deletes_the_rows_once() -> None:
    deleted: list[str] = []
    count = LeaseCount(lambda: deleted.append("now"))
    before = open_leases()
    first, second = count.open("rows"), count.open("rows")
    with first as rows:
        assert rows == "rows" and open_leases() == before + 2
    assert deleted == []
    second.close()
    assert deleted == ["now"] and open_leases() == before
    with pytest.raises(AssertionError, match="already deleted"):
        count.open("rows")


def test_the_last_two_leases_are_closed_at_the_same_moment() -> None:
    deleted: list[str] = []
    count = LeaseCount(lambda: deleted.append("now"))
    first, second = count.open("rows"), count.open("rows")

    class OtherThreadIsNext:
        """A lock: when it is released for the first time, another thread closes the second lease at once."""

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            count._lock = threading.Lock()
            closing = threading.Thread(target=second.close)
            closing.start()
            closing.join()

    count._lock = OtherThreadIsNext()  # type: ignore[assignment]
    first.close()
    assert deleted == ["now"]


def test_a_lease_ends_once() -> None:
    lease = Lease("rows")
    lease.close()
    with pytest.raises(AssertionError, match="closed before"):
        lease.close()
    with pytest.raises(AssertionError, match="is closed"):
        assert lease.value


def delta(lower: int, upper: int) -> MemoryDelta:
    return MemoryDelta(LsnRange(Lsn(lower), Lsn(upper)), pa.table({"__w": pa.array([], pa.int64())}))


def test_a_queue_holds_its_deltas_until_they_are_written() -> None:
    scan = Scan(TableId("public", "t"), 1, (), (), None)
    table = StreamTable(7, TableId("public", "st"), 1, (), StreamPlan(scan, ()))
    queue, before = DeltaQueue(), open_leases()
    queued: list[Delta] = [delta(0, 10), OutboxDelta(LsnRange(Lsn(10), Lsn(20)), "", 7), delta(20, 30)]
    for one in queued:
        queue.add(table, one)
    assert (queue.tables(), queue.lowest_frontier(), open_leases()) == ([7], Lsn(0), before + 3)
    # Another thread may forget them while a reader reads.
    with queue.lease(7) as read:
        assert queue.remove_until(7, Lsn(20)) and not queue.is_idle(7)
        queue.forget(7)
        assert [d for _, d in read] == queued and open_leases() == before + 3
    assert (queue.tables(), queue.lowest_frontier(), open_leases()) == ([], None, before)
