"""The Delta sink: many ticks of a stream table in one MERGE, off the tick's path.

Written with delta-rs: the rows are on the driver anyway, and a MERGE of a few rows costs it a tenth of a Spark job.
The frontier lies in the commit itself: as the transaction version and, for people and for time travel, in the commit's
metadata as `pgtrickle_lsn`. A MERGE says how many rows it removed and added; another number than expected means that
somebody else wrote to the Delta table: that stream table is taken out of service.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from applier import metrics
from applier.apply.net_delta import row_tuples
from applier.apply.staging import StagedDelta
from applier.delta_files import tidy
from applier.errors import TargetDiverged
from applier.stream_table import Delta, StreamTable
from applier.zset import WEIGHT, Row, column_name, column_names, copies, identity, net
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.topics import escape_name

log = logging.getLogger(__name__)

_ACT = "__act"

PROPERTIES = {"delta.checkpointInterval": "100", "delta.dataSkippingNumIndexedCols": "32"}
"""For readers: few files of the log to read, statistics to skip data files by. Retention is `delta_retention_hours`."""

_PRUNED = (pa.int16(), pa.int32(), pa.int64(), pa.string())
"""Types whose order is the same in Arrow, in the files' statistics and in the predicate."""

STREAMED_ROWS = 16_384
"""Of a delta that is not in memory, at a time."""


class DeltaSink:
    """Keeps stream tables below one folder or URI: `<root>/<schema>/<name>`."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._pending: dict[int, list[tuple[StreamTable, Delta]]] = defaultdict(list)
        self._lock = threading.Lock()
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

    def add(self, table: StreamTable, delta: Delta) -> None:
        """Queue a delta; it must begin where the last one queued ended."""
        with self._lock:
            self._pending[table.id].append((table, delta))

    def idle(self, table_id: int) -> bool:
        """Whether nothing is queued."""
        with self._lock:
            return not self._pending.get(table_id)

    def waiting(self, table_id: int) -> list[Delta]:
        """What is queued, oldest first."""
        with self._lock:
            return [delta for _, delta in self._pending.get(table_id, ())]

    def forget(self, table_id: int) -> None:
        """A stream table was dropped."""
        with self._lock:
            self._pending.pop(table_id, None)

    def flush(self) -> list[tuple[StreamTable, TargetDiverged]]:
        """Write everything queued, one commit per stream table; return those whose Delta table is not what it was."""
        diverged: list[tuple[StreamTable, TargetDiverged]] = []
        with self._lock:
            queued = {k: list(v) for k, v in self._pending.items() if v}
        for table_id, deltas in queued.items():
            # What was counted once is counted for all of them.
            table = next((t for t, _ in deltas if t.key is None), deltas[-1][0])
            try:
                self._write(table, [delta for _, delta in deltas])
            except (DeltaError, OSError) as error:
                # The rows stay queued and no checkpoint passes them, so a later attempt finds everything.
                log.exception("delta could not be written", extra={"table": str(table), "error": str(error)[:300]})
                metrics.DELTA_FAILURES.inc()
                continue
            except TargetDiverged as error:
                metrics.DELTA_DIVERGED.inc()
                diverged.append((table, error))
            with self._lock:
                del self._pending[table_id][: len(deltas)]
            for _, delta in deltas:
                delta.release()
        return diverged

    def tidy(self, tables: Iterable[StreamTable], retention_hours: int) -> None:
        """Keep the folders small; readers find every version of the last `retention_hours`."""
        for table in tables:
            if not DeltaTable.is_deltatable(self.path(table)):
                continue
            try:
                tidy(DeltaTable(self.path(table)), retention_hours)
            except (DeltaError, OSError) as error:
                log.warning("delta table could not be tidied", extra={"table": str(table), "error": str(error)[:300]})

    def _write(self, table: StreamTable, deltas: list[Delta]) -> None:
        first, *later = deltas
        if isinstance(first, StagedDelta) and first.is_fill:
            self._fill(table, _streamed(first, len(table.columns)), first.window.new)
            self._durable[table.id] = first.window.new
            if later:
                self._write(table, later)
            return
        window = Window(deltas[0].window.old, deltas[-1].window.new)
        rows = net(pa.concat_tables([d.rows for d in deltas], promote_options="default"))
        if not window.old:
            self._fill(table, copies(rows, len(table.columns)).to_reader(), window.new)
        elif rows.num_rows:
            self._merge(table, rows, window.new)
        else:
            return
        self._durable[table.id] = window.new
        log.debug("delta written", extra={"table": str(table), "frontier": str(window.new), "rows": rows.num_rows})

    def _fill(self, table: StreamTable, rows: pa.RecordBatchReader, frontier: Lsn) -> None:
        names = [column.name for column in table.columns]
        schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
        write_deltalake(
            self.path(table),
            pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in rows)),
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
            # Nothing leaves: a file more, and no other is read.
            named = copies(rows, width).rename_columns([column.name for column in table.columns])
            write_deltalake(target, named, mode="append", commit_properties=_commit(table, frontier))
            return
        held = Counter[Row]() if table.key is not None else _held(target, rows, width)
        leaving = rows.filter(pc.less(rows[WEIGHT], 0)) if table.key is not None else rows
        arriving = rows if table.key is not None else _with_final_counts(rows, held)
        if table.key is None and pc.min(arriving[WEIGHT]).as_py() < 0:
            raise _diverged(table)
        acts = pa.concat_tables([_acting(leaving.drop_columns([WEIGHT]), "D"), _acting(copies(arriving, width), "I")])
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


def _streamed(delta: StagedDelta, width: int) -> pa.RecordBatchReader:
    batches = (batch for rows in delta.batches(STREAMED_ROWS) for batch in copies(rows, width).to_batches())
    return pa.RecordBatchReader.from_batches(pa.schema([delta.schema.field(i) for i in range(width)]), batches)


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
