"""The Delta sink: many ticks of a stream table in one MERGE, off the tick's path.

Written with delta-rs: the rows are on the driver anyway, and a MERGE of a few rows costs it a tenth of a Spark job.
The frontier lies in the commit itself: as the transaction version and, for people and for time travel, in the commit's
metadata as `pgtrickle_lsn`. A MERGE says how many rows it removed and added; another number than expected means that
somebody else wrote to the Delta table: that stream table is taken out of service.

A MERGE needs its rows in memory. What is too large for that is streamed: appended when no row leaves, else the table is
written anew as PostgreSQL holds it, in one commit too.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from applier import metrics
from applier.errors import Infrastructure, TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import DeltaRows
from applier.sinks.net_delta import row_tuples
from applier.sinks.postgres.target_snapshot import PartialTarget, read_target_snapshot
from applier.spark.delta_files import optimize_and_vacuum
from applier.zset import WEIGHT, Row, column_name, column_names, copies_of, identity, net
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.topics import escape_name

log = logging.getLogger(__name__)

_ACT = "__act"

PROPERTIES = {"delta.checkpointInterval": "100", "delta.dataSkippingNumIndexedCols": "32"}
"""For readers: few files of the log to read, statistics to skip data files by. Retention is `delta_retention_hours`."""

_PRUNED = (pa.int16(), pa.int32(), pa.int64(), pa.string())
"""Types whose order is the same in Arrow, in the files' statistics and in the predicate."""

STREAMED_ROWS = 16_384
"""Of a delta that is not in memory, at a time."""

MERGE_ROWS = 200_000
"""Most net rows that are merged in memory."""


class DeltaSink:
    """Keeps stream tables below one folder or URI: `<root>/<schema>/<name>`; `url` is where PostgreSQL holds them."""

    def __init__(self, root: str, url: str | None = None, merge_rows: int = MERGE_ROWS) -> None:
        self._root = root.rstrip("/")
        self._url = url
        self._merge_rows = merge_rows
        self._pending: dict[int, list[tuple[StreamTable, DeltaRows]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held while one stream table is written, from taking its deltas to forgetting them."""
        self._durable: dict[int, Lsn] = {}

    def path(self, table: StreamTable) -> str:
        """Where the stream table lies."""
        return f"{self._root}/{escape_name(table.table.schema)}/{escape_name(table.table.name)}"

    def frontier(self, table: StreamTable) -> Lsn:
        """The frontier of the newest commit of this stream table; ORIGIN when there is none."""
        if table.id not in self._durable:
            self._durable[table.id] = self._read_frontier(table)
        return self._durable[table.id]

    def _read_frontier(self, table: StreamTable) -> Lsn:
        if not DeltaTable.is_deltatable(self.path(table)):
            return ORIGIN
        # A folder left behind by a dropped stream table of the same name has another application id.
        version = DeltaTable(self.path(table)).transaction_version(_application(table))
        return ORIGIN if version is None else Lsn(version)

    def add(self, table: StreamTable, delta: DeltaRows) -> None:
        """Queue a delta; it must begin where the last one queued ended."""
        with self._lock:
            self._pending[table.id].append((table, delta))

    def idle(self, table_id: int) -> bool:
        """Whether nothing is queued."""
        with self._lock:
            return not self._pending.get(table_id)

    def waiting(self, table_id: int) -> list[DeltaRows]:
        """What is queued, oldest first."""
        with self._lock:
            return [delta for _, delta in self._pending.get(table_id, ())]

    def forget(self, table_id: int) -> None:
        """A stream table was dropped, or what it is owed is asked for again."""
        with self._lock:
            forgotten = self._pending.pop(table_id, [])
        for _, delta in forgotten:
            delta.release()

    def settled_frontier(self, table: StreamTable) -> Lsn:
        """The frontier once nothing is being written that was queued before."""
        with self._writing:
            return self.frontier(table)

    def flush(self) -> list[tuple[StreamTable, TargetDiverged]]:
        """Write everything queued, one commit per stream table; return those whose Delta table is not what it was."""
        with self._lock:
            ids = [table_id for table_id, deltas in self._pending.items() if deltas]
        diverged: list[tuple[StreamTable, TargetDiverged]] = []
        for table_id in ids:
            with self._writing:
                while self._flush_some(table_id, diverged):
                    pass
        return diverged

    def _flush_some(self, table_id: int, diverged: list[tuple[StreamTable, TargetDiverged]]) -> bool:
        """One commit of what is queued; whether something is left for another one."""
        # What PostgreSQL held when the table was written anew may have been queued only then.
        self._done(table_id, self._durable.get(table_id, ORIGIN))
        with self._lock:
            queued = list(self._pending.get(table_id, ()))
            for _, delta in queued:
                delta.retain()
        if not queued:
            return False
        # What was counted once is counted for all of them.
        table = next((t for t, _ in queued if t.key is None), queued[-1][0])
        try:
            reached = self._write(table, [delta for _, delta in queued])
        except (DeltaError, OSError, Infrastructure, psycopg.Error) as error:
            # The rows stay queued and no checkpoint passes them, so a later attempt finds everything.
            log.exception("delta could not be written", extra={"table": str(table), "error": str(error)[:300]})
            metrics.DELTA_FAILURES.inc()
            return False
        except PartialTarget:
            return False
        except TargetDiverged as error:
            metrics.DELTA_DIVERGED.inc()
            diverged.append((table, error))
            reached = queued[-1][1].lsn_range.upper
        finally:
            for _, delta in queued:
                delta.release()
        return self._done(table_id, reached)

    def _done(self, table_id: int, frontier: Lsn) -> bool:
        """Forget what lies before the frontier; whether something lies behind it."""
        with self._lock:
            queued = self._pending.pop(table_id, [])
            left = [(table, delta) for table, delta in queued if delta.lsn_range.upper > frontier]
            if left:
                self._pending[table_id] = left
        for _, delta in queued:
            if delta.lsn_range.upper <= frontier:
                delta.release()
        return bool(left)

    def tidy(self, tables: Iterable[StreamTable], retention_hours: int) -> None:
        """Keep the folders small; readers find every version of the last `retention_hours`."""
        for table in tables:
            if not DeltaTable.is_deltatable(self.path(table)):
                continue
            try:
                optimize_and_vacuum(DeltaTable(self.path(table)), retention_hours)
            except (DeltaError, OSError) as error:
                log.warning("delta table could not be tidied", extra={"table": str(table), "error": str(error)[:300]})

    def _write(self, table: StreamTable, deltas: list[DeltaRows]) -> Lsn:
        """One commit that covers the first of the deltas at least; return the frontier it stands at."""
        until = deltas[-1].lsn_range.upper
        if sum(delta.count for delta in deltas) <= self._merge_rows:
            if not self._in_memory(table, deltas):
                return until
        elif deltas[0].is_fill:
            until = deltas[0].lsn_range.upper
            self._fill(table, _streamed(table, deltas[:1]), until)
        elif not any(delta.leaving for delta in deltas):
            self._append(table, _streamed(table, deltas), until)
        else:
            until = self._begin_anew(table, deltas)
        self._durable[table.id] = until
        log.debug("delta written", extra={"table": str(table), "frontier": str(until), "deltas": len(deltas)})
        return until

    def _in_memory(self, table: StreamTable, deltas: list[DeltaRows]) -> bool:
        """Whether there was anything to commit: what came may have gone again."""
        rows = net(pa.concat_tables([delta.rows for delta in deltas], promote_options="default"))
        until = deltas[-1].lsn_range.upper
        if deltas[0].is_fill:
            self._fill(table, copies_of(rows, len(table.columns)).to_reader(), until)
        elif rows.num_rows:
            self._merge(table, rows, until)
        return deltas[0].is_fill or bool(rows.num_rows)

    def _begin_anew(self, table: StreamTable, deltas: list[DeltaRows]) -> Lsn:
        """The table as PostgreSQL holds it now: at the end of these deltas or later."""
        until = deltas[-1].lsn_range.upper
        if self._url is not None:
            with read_target_snapshot(self._url, table, deltas[-1].schema, STREAMED_ROWS) as held:
                if held is not None and held.frontier >= until:
                    properties = _commit(table, held.frontier)
                    write_deltalake(self.path(table), held.rows, mode="overwrite", commit_properties=properties)
                    return held.frontier
        log.warning("a large change is merged in memory", extra={"table": str(table)})
        self._in_memory(table, deltas)
        return until

    def _append(self, table: StreamTable, rows: pa.RecordBatchReader, frontier: Lsn) -> None:
        """Nothing leaves: files more, and no other is read."""
        write_deltalake(
            self.path(table), _named(table, rows), mode="append", commit_properties=_commit(table, frontier)
        )

    def _fill(self, table: StreamTable, rows: pa.RecordBatchReader, frontier: Lsn) -> None:
        write_deltalake(
            self.path(table),
            _named(table, rows),
            mode="overwrite",
            schema_mode="overwrite",
            name=str(table.table),
            description="kept by pg-trickle-applier; pgtrickle_lsn in each commit is the position its rows are of",
            configuration=PROPERTIES,
            commit_properties=_commit(table, frontier),
        )

    def _merge(self, table: StreamTable, rows: pa.Table, frontier: Lsn) -> None:
        target = DeltaTable(self.path(table))
        width = len(table.columns)
        if pc.min(rows[WEIGHT]).as_py() > 0:
            self._append(table, copies_of(rows, width).to_reader(), frontier)
            return
        held = Counter[Row]() if table.key is not None else _held(target, rows, width)
        leaving = rows.filter(pc.less(rows[WEIGHT], 0)) if table.key is not None else rows
        arriving = rows if table.key is not None else _with_final_counts(rows, held)
        if table.key is None and pc.min(arriving[WEIGHT]).as_py() < 0:
            raise _diverged(table)
        acts = pa.concat_tables(
            [_acting(leaving.drop_columns([WEIGHT]), "D"), _acting(copies_of(arriving, width), "I")]
        )
        removed = leaving.num_rows if table.key is not None else sum(held.values())
        added = acts.num_rows - leaving.num_rows
        names = [_quoted(column.name) for column in table.columns]
        # Every copy of a leaving row goes; an arriving row never matches, so it is inserted.
        same = " AND ".join(f"(t.{name} IS NOT DISTINCT FROM s.{column_name(i)})" for i, name in enumerate(names))
        outcome = (
            target.merge(
                acts,
                predicate=f"s.{_ACT} = 'D' AND {same}{_range(table, leaving)}",
                source_alias="s",
                target_alias="t",
                commit_properties=_commit(table, frontier),
            )
            .when_matched_delete()
            .when_not_matched_insert(
                {name: f"s.{column_name(i)}" for i, name in enumerate(names)}, predicate=f"s.{_ACT} = 'I'"
            )
            .execute()
        )
        if (outcome["num_target_rows_deleted"], outcome["num_target_rows_inserted"]) != (removed, added):
            raise _diverged(table)


def _range(table: StreamTable, leaving: pa.Table) -> str:
    """Between which values of their first key column the leaving rows lie: files without any of them are not read."""
    place = (table.key or (0,))[0]
    values = leaving[column_name(place)]
    if values.null_count or values.type not in _PRUNED:
        return ""
    ends = (pc.min(values).as_py(), pc.max(values).as_py())
    low, high = (f"'{end.replace(chr(39), chr(39) * 2)}'" if isinstance(end, str) else str(end) for end in ends)
    name = f"t.{_quoted(table.columns[place].name)}"
    return f" AND {name} >= {low} AND {name} <= {high}"


def _streamed(table: StreamTable, deltas: list[DeltaRows]) -> pa.RecordBatchReader:
    """What comes by the deltas, some rows at a time."""
    width = len(table.columns)
    batches = (
        batch
        for delta in deltas
        for rows in delta.batches(STREAMED_ROWS)
        for batch in copies_of(rows, width).to_batches()
    )
    return pa.RecordBatchReader.from_batches(pa.schema([deltas[0].schema.field(i) for i in range(width)]), batches)


def _named(table: StreamTable, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The same under the stream table's own column names."""
    names = [column.name for column in table.columns]
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in rows))


def _diverged(table: StreamTable) -> TargetDiverged:
    return TargetDiverged(
        f"the Delta table of {table} held other rows than it should: somebody else wrote to it",
        hint="drop and create the stream table; it writes the Delta table anew",
    )


def _application(table: StreamTable) -> str:
    return f"pgtrickle-{table.id}"


def _commit(table: StreamTable, frontier: Lsn) -> CommitProperties:
    return CommitProperties(
        custom_metadata={"pgtrickle_lsn": str(frontier)},
        app_transactions=[Transaction(_application(table), frontier.value)],
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _acting(rows: pa.Table, act: str) -> pa.Table:
    return rows.append_column(_ACT, pa.array([act] * rows.num_rows, pa.string()))


def _held(target: DeltaTable, rows: pa.Table, width: int) -> Counter[Row]:
    """How many copies of each touched row there are now."""
    touched = {identity(row[:-1]) for row in row_tuples(rows)}
    first = rows[column_name(0)].combine_chunks()
    held: Counter[Row] = Counter()
    for batch in target.to_pyarrow_dataset().to_batches():
        part = pa.Table.from_batches([batch]).rename_columns(column_names(width))
        near = part.filter(pc.is_in(part[column_name(0)], value_set=first.cast(part.schema.field(0).type)))
        for row in zip(*[column.to_pylist() for column in near.columns], strict=True):
            if (same := identity(row)) in touched:
                held[same] += 1
    return held


def _with_final_counts(rows: pa.Table, held: Counter[Row]) -> pa.Table:
    """The weight becomes how many copies there must be afterwards."""
    final = [held[identity(row[:-1])] + row[-1] for row in row_tuples(rows)]
    return rows.set_column(rows.num_columns - 1, WEIGHT, pa.array(final, pa.int64()))
