"""The Delta sink: the deltas of many ticks in; one MERGE per stream table, in the background, out.

It uses delta-rs: the rows are on the driver anyway, and a MERGE of a few rows takes a tenth of the time of a Spark job.
The frontier is in the commit itself: as the transaction version and, for people and for time travel, in the commit's
metadata as `pgtrickle_lsn`. Every write reads the frontier from one version and makes the next one, or fails: a process
that was replaced, and does not know it yet, cannot add its rows to those of its successor. A MERGE returns how many
rows it deleted and inserted; another number than expected means that another program wrote to the Delta table: that
stream table is suspended.

A MERGE needs its rows in memory. A larger delta is streamed: appended when it only inserts, else the Delta table is
rewritten from PostgreSQL's rows, in one commit too.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import Field, PrimitiveType

from applier import metrics
from applier.errors import Infrastructure, TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.sinks.commit_to_visible import DELTA, CommitToVisible
from applier.sinks.delta import Delta
from applier.sinks.delta_queue import DeltaQueue
from applier.sinks.net_delta import row_tuples
from applier.sinks.postgres.target_snapshot import PartialTarget, read_target_snapshot
from applier.spark.delta_files import ONLY_NEXT, create, open_newest, optimize_and_vacuum
from applier.unexpected import to_trickle_error
from applier.zset import WEIGHT, Row, column_name, column_names, copies_of, identity, net
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.topics import escape_name

log = logging.getLogger(__name__)

_ACT = "__act"

TableError = tuple[StreamTable, TrickleError]

PANIC = "PanicException"
"""The class of a panic in delta-rs, which is no Exception and cannot be imported."""

PROPERTIES = {"delta.checkpointInterval": "100", "delta.dataSkippingNumIndexedCols": "32"}
"""For readers: few log files to read, and statistics for data skipping. Retention is `delta_retention_hours`."""

_PRUNABLE = (pa.int16(), pa.int32(), pa.int64(), pa.string())
"""Types whose order is the same in Arrow, in the files' statistics and in the predicate."""

STREAMED_ROWS = 16_384
"""Rows that are read at a time from a delta that is not in memory."""

MERGE_ROWS = 200_000
"""Most net rows that are merged in memory."""


LOOK_UP_THREADS = 4
"""So many Delta tables are looked at side by side at a start: each needs some files of its log."""


class DeltaSink:
    """Writes stream tables below one folder or URI: `<root>/<schema>/<name>`; `url` is the database that has them."""

    def __init__(
        self,
        root: str,
        url: str | None = None,
        merge_rows: int = MERGE_ROWS,
        visible: CommitToVisible | None = None,
    ) -> None:
        self._visible = visible or CommitToVisible()
        self._root = root.rstrip("/")
        self._url = url
        self._merge_rows = merge_rows
        self.queue = DeltaQueue()
        """The deltas that are not written yet."""
        self._writing = threading.Lock()
        """Held while one stream table is written, from reading the queue to removing its deltas from it."""
        self._durable: dict[int, Lsn] = {}
        self._compared: dict[int, pa.Schema] = {}
        """The types of the deltas that were compared with those of the Delta table."""
        self._width: dict[int, int] = {}
        """How many columns the Delta tables have, as far as this process has looked."""

    def path(self, table: StreamTable) -> str:
        """Return the folder or URI of the stream table."""
        return f"{self._root}/{escape_name(table.table.schema)}/{escape_name(table.table.name)}"

    def frontier(self, table: StreamTable) -> Lsn:
        """Return the frontier of the newest commit of this stream table; ORIGIN when there is none."""
        # Another thread may drop what is known meanwhile.
        if (known := self._durable.get(table.id)) is None:
            known = self._durable[table.id] = self._read_frontier(table)
        return known

    def _read_frontier(self, table: StreamTable) -> Lsn:
        newest = open_newest(self.path(table))
        return ORIGIN if newest is None else _frontier_of(newest, table)

    def recall(self, tables: Collection[StreamTable]) -> None:
        """Look up the frontiers of several stream tables side by side; what cannot be read is looked up when needed."""

        def look_up(table: StreamTable) -> None:
            try:
                self.frontier(table)
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != PANIC:
                    raise

        with ThreadPoolExecutor(LOOK_UP_THREADS, "frontier") as pool:
            for _ in pool.map(look_up, tables):
                pass

    def await_frontier(self, table: StreamTable) -> Lsn:
        """Wait until no write is in progress; return the frontier then."""
        with self._writing:
            return self.frontier(table)

    def flush(self) -> list[TableError]:
        """Write all queued deltas; return the stream tables that cannot be written, with the errors: another program
        wrote to the Delta table, or something that nobody foresaw."""
        failed: list[TableError] = []
        for table_id in self.queue.tables():
            with self._writing:
                while self._flush_once(table_id, failed):
                    pass
        return failed

    def flush_table(self, table_id: int) -> None:
        """Write the queued deltas of one stream table now; raise TargetDiverged when another program wrote to it."""
        failed: list[TableError] = []
        with self._writing:
            while self._flush_once(table_id, failed):
                pass
        for _, error in failed:
            raise error

    def _flush_once(self, table_id: int, failed: list[TableError]) -> bool:
        """Make one commit of the queued deltas; return whether some are left for another one."""
        with self.queue.lease(table_id) as queued:
            if not queued:
                return False
            # When one of the deltas has no key, none is applied by key.
            table = next((t for t, _ in queued if t.key is None), queued[-1][0])
            try:
                # A rewrite from PostgreSQL may have included deltas that were queued only after it. And a commit that
                # raised may be in the log: what follows it (the log's own checkpoint) can fail too, and the library
                # accepts the same transaction twice.
                reached = self.frontier(table)
                if missing := [delta for _, delta in queued if delta.lsn_range.upper > reached]:
                    reached = self._write(table, self._open(table, reached), missing)
                    self._visible.observe(DELTA, table, missing[0].lsn_range.lower)
            except (DeltaError, OSError, Infrastructure, psycopg.Error) as error:
                # The deltas stay queued and no checkpoint passes them, so a later attempt writes all of them.
                log.exception("delta could not be written", extra={"table": str(table), "error": str(error)[:300]})
                metrics.DELTA_FAILURES.inc()
                self._durable.pop(table_id, None)
                return False
            except PartialTarget:
                return False
            except TargetDiverged as error:
                metrics.DELTA_DIVERGED.inc()
                failed.append((table, error))
                reached = queued[-1][1].lsn_range.upper
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != PANIC:
                    raise
                # The deltas stay queued, so that nothing counts as written.
                failed.append((table, to_trickle_error(f"writing the Delta table of {table}", error)))
                self._durable.pop(table_id, None)
                return False
        return self.queue.remove_until(table_id, reached)

    def tidy(self, tables: Iterable[StreamTable], retention_hours: int) -> list[tuple[str, str]]:
        """Compact small files and delete old ones; readers find every version of the last `retention_hours`.

        Return the stream tables for which that failed, with the reason.
        """
        failed: list[tuple[str, str]] = []
        for table in tables:
            try:
                if not DeltaTable.is_deltatable(self.path(table)):
                    continue
                optimize_and_vacuum(DeltaTable(self.path(table)), retention_hours)
            except Exception as error:
                log.warning("delta table could not be tidied", extra={"table": str(table), "error": str(error)[:300]})
                failed.append((str(table), str(error)[:300]))
        return failed

    def _open(self, table: StreamTable, reached: Lsn) -> DeltaTable | None:
        """Return the version that the next commit follows, or fails; None when there is no Delta table yet."""
        newest = open_newest(self.path(table))
        at = ORIGIN if newest is None else _frontier_of(newest, table)
        if at != reached:
            raise Infrastructure(f"another process writes to the Delta table of {table}: it is at {at}, not {reached}")
        return newest

    def _write(self, table: StreamTable, newest: DeltaTable | None, deltas: list[Delta]) -> Lsn:
        """Make one commit that covers at least the first of the deltas; return its frontier."""
        until = deltas[-1].lsn_range.upper
        if deltas[0].is_fill:
            if sum(delta.count for delta in deltas) <= self._merge_rows:
                rows = copies_of(_sum_rows(deltas), len(table.columns)).to_reader()
            else:
                until = deltas[0].lsn_range.upper
                rows = _stream_rows(table, deltas[:1])
            self._fill(table, newest, rows, until)
        elif newest is None:
            raise Infrastructure(f"the Delta table of {table} is gone")
        else:
            self._add_columns(table, newest, deltas[-1])
            if self._has_outgrown(table, newest, deltas[-1].schema):
                until = self._rewrite(table, newest, deltas, schema_mode="overwrite")
            elif sum(delta.count for delta in deltas) <= self._merge_rows:
                if not self._write_in_memory(table, newest, deltas):
                    return until
            elif not any(delta.has_deletions for delta in deltas):
                self._append(table, newest, _stream_rows(table, deltas), until)
            else:
                until = self._rewrite(table, newest, deltas)
        self._durable[table.id] = until
        log.debug("delta written", extra={"table": str(table), "frontier": str(until), "deltas": len(deltas)})
        return until

    def _write_in_memory(self, table: StreamTable, target: DeltaTable, deltas: list[Delta]) -> bool:
        """Write the sum of the deltas; return whether there was a commit: the deltas may cancel each other."""
        rows = _sum_rows(deltas)
        if rows.num_rows:
            self._merge(table, target, rows, deltas[-1].lsn_range.upper)
        return bool(rows.num_rows)

    def _add_columns(self, table: StreamTable, target: DeltaTable, delta: Delta) -> None:
        """Add the columns that the stream table got since the last write; rows that are there have NULL in them."""
        if self._width.get(table.id) == len(table.columns):
            return
        held = {field.name for field in target.schema().fields}
        missing = [i for i, column in enumerate(table.columns) if column.name not in held]
        if missing:
            fields = [pa.field(table.columns[i].name, delta.schema.field(i).type) for i in missing]
            target.alter.add_columns(Schema.from_arrow(pa.schema(fields)).fields, commit_properties=ONLY_NEXT)
            log.info("delta table has new columns", extra={"table": str(table), "columns": len(missing)})
        self._width[table.id] = len(table.columns)

    def _has_outgrown(self, table: StreamTable, target: DeltaTable, schema: pa.Schema) -> bool:
        """Whether a numeric that is text by now, for its digits, is a decimal in the Delta table."""
        if self._compared.get(table.id) == schema:
            return False
        stored = {field.name: str(field.type.type) for field in _primitive_fields(target)}
        names = [column.name for column in table.columns]
        is_text = [pa.types.is_string(schema.field(i).type) for i in range(len(names))]
        if any(text and stored.get(n, "").startswith("decimal") for n, text in zip(names, is_text, strict=True)):
            return True
        self._compared[table.id] = schema
        return False

    def _rewrite(
        self,
        table: StreamTable,
        target: DeltaTable,
        deltas: list[Delta],
        schema_mode: Literal["overwrite"] | None = None,
    ) -> Lsn:
        """Overwrite the Delta table with PostgreSQL's rows, which are at the end of these deltas or later."""
        until = deltas[-1].lsn_range.upper
        if self._url is not None:
            with read_target_snapshot(self._url, table, deltas[-1].schema, STREAMED_ROWS) as snapshot:
                if snapshot is not None and snapshot.frontier >= until:
                    properties = _commit_properties(table, snapshot.frontier)
                    write_deltalake(
                        target,
                        snapshot.rows,
                        mode="overwrite",
                        schema_mode=schema_mode,
                        commit_properties=properties,
                    )
                    return snapshot.frontier
        if schema_mode is not None:
            raise TargetDiverged(
                f"the Delta table of {table} has a decimal column for numbers that are text by now",
                hint="drop and create the stream table: that rewrites the Delta table",
            )
        log.warning("a large delta is merged in memory", extra={"table": str(table)})
        self._write_in_memory(table, target, deltas)
        return until

    @staticmethod
    def _append(table: StreamTable, target: DeltaTable, rows: pa.RecordBatchReader, frontier: Lsn) -> None:
        """Add files; no other file is read, because no row is deleted."""
        properties = _commit_properties(table, frontier)
        write_deltalake(target, _rename_columns(table, rows), mode="append", commit_properties=properties)

    def _fill(self, table: StreamTable, newest: DeltaTable | None, rows: pa.RecordBatchReader, frontier: Lsn) -> None:
        about: dict[str, Any] = {
            "name": str(table.table),
            "description": "maintained by pg-trickle-applier; pgtrickle_lsn in each commit is the frontier of its rows",
            "configuration": PROPERTIES,
            "commit_properties": _commit_properties(table, frontier),
        }
        named = _rename_columns(table, rows)
        if newest is None:
            create(self.path(table), named, **about)
        else:
            write_deltalake(newest, named, mode="overwrite", schema_mode="overwrite", **about)

    def _merge(self, table: StreamTable, target: DeltaTable, rows: pa.Table, frontier: Lsn) -> None:
        width = len(table.columns)
        if pc.min(rows[WEIGHT]).as_py() > 0:
            self._append(table, target, copies_of(rows, width).to_reader(), frontier)
            return
        held = Counter[Row]() if table.key is not None else _count_held(target, rows, width)
        deletions = rows.filter(pc.less(rows[WEIGHT], 0)) if table.key is not None else rows
        insertions = rows if table.key is not None else _set_final_counts(rows, held)
        if table.key is None and pc.min(insertions[WEIGHT]).as_py() < 0:
            raise _divergence_error(table)
        actions = pa.concat_tables(
            [_add_action(deletions.drop_columns([WEIGHT]), "D"), _add_action(copies_of(insertions, width), "I")]
        )
        deleted = deletions.num_rows if table.key is not None else sum(held.values())
        inserted = actions.num_rows - deletions.num_rows
        names = [_quote(column.name) for column in table.columns]
        # Every copy of a deleted row is deleted; an inserted row never matches, so it is inserted.
        same = " AND ".join(
            _same_value(f"t.{name}", f"s.{column_name(i)}", rows.schema.field(i).type) for i, name in enumerate(names)
        )
        outcome = (
            target.merge(
                actions,
                predicate=f"s.{_ACT} = 'D' AND {same}{_pruning_range(table, deletions)}",
                source_alias="s",
                target_alias="t",
                commit_properties=_commit_properties(table, frontier),
            )
            .when_matched_delete()
            .when_not_matched_insert(
                {name: f"s.{column_name(i)}" for i, name in enumerate(names)}, predicate=f"s.{_ACT} = 'I'"
            )
            .execute()
        )
        if (outcome["num_target_rows_deleted"], outcome["num_target_rows_inserted"]) != (deleted, inserted):
            raise _divergence_error(table)


def _same_value(target: str, source: str, kind: pa.DataType) -> str:
    """Return the condition that two values are the same; floats by their text, which tells 0 from -0."""
    if pa.types.is_floating(kind):
        target, source = f"CAST({target} AS STRING)", f"CAST({source} AS STRING)"
    return f"({target} IS NOT DISTINCT FROM {source})"


def _primitive_fields(table: DeltaTable) -> list[Field]:
    return [field for field in table.schema().fields if isinstance(field.type, PrimitiveType)]


def _pruning_range(table: StreamTable, deletions: pa.Table) -> str:
    """Return a condition on the first key column of the deleted rows: files outside that range are not read."""
    ordinal = (table.key or (0,))[0]
    values = deletions[column_name(ordinal)]
    if values.null_count or values.type not in _PRUNABLE:
        return ""
    ends = (pc.min(values).as_py(), pc.max(values).as_py())
    low, high = (f"'{end.replace(chr(39), chr(39) * 2)}'" if isinstance(end, str) else str(end) for end in ends)
    name = f"t.{_quote(table.columns[ordinal].name)}"
    return f" AND {name} >= {low} AND {name} <= {high}"


def _stream_rows(table: StreamTable, deltas: list[Delta]) -> pa.RecordBatchReader:
    """Return a reader of the rows that the deltas insert, some at a time."""
    width = len(table.columns)
    batches = (
        batch
        for delta in deltas
        for rows in delta.batches(STREAMED_ROWS)
        for batch in copies_of(rows, width).to_batches()
    )
    return pa.RecordBatchReader.from_batches(pa.schema([deltas[0].schema.field(i) for i in range(width)]), batches)


def _rename_columns(table: StreamTable, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the same rows under the stream table's own column names."""
    names = [column.name for column in table.columns]
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in rows))


def _divergence_error(table: StreamTable) -> TargetDiverged:
    return TargetDiverged(
        f"the Delta table of {table} does not hold the rows it should: another program wrote to it",
        hint="SELECT pgtrickle.reinitialize_stream_table(name) writes the Delta table again",
    )


def _sum_rows(deltas: list[Delta]) -> pa.Table:
    """Return the net rows of deltas."""
    return net(pa.concat_tables([delta.rows for delta in deltas], promote_options="default"))


def _frontier_of(target: DeltaTable, table: StreamTable) -> Lsn:
    """Return the frontier of a version; ORIGIN in the folder of a dropped stream table of the same name."""
    version = target.transaction_version(_application_id(table))
    return ORIGIN if version is None else Lsn(version)


def _application_id(table: StreamTable) -> str:
    return f"pgtrickle-{table.id}"


def _commit_properties(table: StreamTable, frontier: Lsn) -> CommitProperties:
    """Return the properties of a commit that makes the version after the one it was made for, or fails."""
    return CommitProperties(
        custom_metadata={"pgtrickle_lsn": str(frontier)},
        max_commit_retries=0,
        app_transactions=[Transaction(_application_id(table), frontier.value)],
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _add_action(rows: pa.Table, action: str) -> pa.Table:
    return rows.append_column(_ACT, pa.array([action] * rows.num_rows, pa.string()))


def _count_held(target: DeltaTable, rows: pa.Table, width: int) -> Counter[Row]:
    """Count the present copies of each affected row."""
    affected = {identity(row[:-1]) for row in row_tuples(rows)}
    first = rows[column_name(0)].combine_chunks()
    held: Counter[Row] = Counter()
    for batch in target.to_pyarrow_dataset().to_batches():
        part = pa.Table.from_batches([batch]).rename_columns(column_names(width))
        candidates = part.filter(pc.is_in(part[column_name(0)], value_set=first.cast(part.schema.field(0).type)))
        for row in zip(*[column.to_pylist() for column in candidates.columns], strict=True):
            if (same := identity(row)) in affected:
                held[same] += 1
    return held


def _set_final_counts(rows: pa.Table, held: Counter[Row]) -> pa.Table:
    """Replace each weight by the number of copies that the table must hold afterwards."""
    final = [held[identity(row[:-1])] + row[-1] for row in row_tuples(rows)]
    return rows.set_column(rows.num_columns - 1, WEIGHT, pa.array(final, pa.int64()))
