"""Records of the compacted `<prefix>.progress` topic (JSON).

`Progress` (key = slot): everything whose commit record starts before `frontier` is on the topics. It is written inside
the Kafka transaction that it describes. Transaction markers do not reach all partitions at the same moment, and readers
read each partition at its own pace. Therefore `end_offsets` gives, for partitions that were written, the offset after
the last record before `frontier`: a reader is complete up to `frontier` once it has read up to these offsets. Naming
the partitions of its own transaction is not enough, because compaction removes earlier records. Naming all partitions
makes the record too large for many tables. So a record names the partitions written since a checkpoint, and the
checkpoint. Both together name every partition ever written. A record without a checkpoint names all by itself.

`Checkpoint` (key = slot|part): end offsets of all partitions, schema versions and captures at one moment, cut into
parts. It is written now and then, in the Kafka transaction of the first progress record that refers to it, before it.

While a table is copied, the frontier waits for its rows, but the stream continues: `written` is then ahead of
`frontier`. All changes of the captured tables before `written` are on the topics, and a restart resumes there.

`Capture` (key = slot|schema|table): the relation's rows as of `snapshot_lsn` are on its topic, and every later change
follows. It is written in the Kafka transaction of the last copied row. It also tells readers of an empty table that
there are no rows to wait for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared_schema.errors import ContractError
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId

Offsets = dict[str, dict[int, int]]
"""topic -> partition -> offset"""


def later_offsets(old: Offsets, new: Offsets) -> Offsets:
    """Merge both maps; for a partition that is in both, the new offset counts."""
    return {topic: old.get(topic, {}) | new.get(topic, {}) for topic in old.keys() | new.keys()}


@dataclass(frozen=True)
class LastCommit:
    """The last source commit before a frontier, and the publications through which it was streamed."""

    lsn: Lsn
    xid: int
    commit_ts_us: int
    publications: tuple[str, ...]


@dataclass(frozen=True)
class CommitPart:
    """The first part of a source commit that is too long for one transaction of the sink.

    Its change rows and control records with ordinals below `rows` are written. They do not count before the frontier
    passes `lsn`, where the commit record starts. Ordinals depend on the publications through which it is streamed.
    """

    lsn: Lsn
    rows: int
    publications: tuple[str, ...]


@dataclass(frozen=True)
class UnfinishedCopies:
    """Tables that readers know and that are being copied again: a part of their rows, stamped `lsn`, is written.

    The frontier stays below `lsn` until the copies are complete. If the writer dies, it begins them again at a later
    position and publishes no frontier in between.
    """

    lsn: Lsn
    tables: tuple[TableId, ...]


@dataclass(frozen=True)
class CheckpointPlace:
    """Where the parts of a checkpoint are: at or after `offset` of the progress topic. The offset identifies it."""

    offset: int
    parts: int


@dataclass(frozen=True)
class ComparedRange:
    """Frontiers at which the captured tables were compared with the catalog: neither were rows altered behind the log,
    nor were changes left out without saying so. A frontier that is in no range must not be shown by readers that cannot
    compare themselves: either it was not compared yet, or rows were wrong there and were replaced afterwards."""

    since: Lsn
    until: Lsn

    def includes(self, frontier: Lsn) -> bool:
        """Whether readers that cannot compare themselves may show the frontier."""
        return self.since <= frontier <= self.until


@dataclass(frozen=True)
class Progress:
    """The frontier up to which a slot's topics are complete, and the server to which the frontier belongs."""

    slot: str
    system_id: str
    timeline: int
    slot_lsn: Lsn
    frontier: Lsn
    end_offsets: Offsets
    last_commit: LastCommit | None = None
    control_end: int = 0
    """The end offset of the control topic, which most readers do not read."""
    schemas: dict[int, str] = field(default_factory=dict)
    """Relation oid -> fingerprint of the schema version of its last rows before the frontier."""
    part: CommitPart | None = None
    """The part of a source commit that is written beyond the frontier."""
    written: Lsn | None = None
    """The position of the stream, if it is not the frontier."""
    windows: int = 0
    """For a stream table: the number of the last delta that has rows; deltas are numbered from 1 without a gap."""
    unfinished: UnfinishedCopies | None = None
    """Second copies of tables that are written in part beyond the frontier."""
    checkpoint: CheckpointPlace | None = None
    """The checkpoint that this record continues: `end_offsets`, `schemas` and `captures` are those since then."""
    captures: tuple[Capture, ...] = ()
    """Captures since the checkpoint, this transaction's included; each has a record of its own too."""
    complete_until_us: int | None = None
    """Every source commit that was durable before this moment of the source's clock is before the frontier."""
    first_commit_us: int | None = None
    """Commit time of the first source commit of this transaction."""
    compared: ComparedRange | None = None
    """For readers that do not see the catalog of the sources; None from writers that do not compare all tables."""

    @property
    def resume_at(self) -> Lsn:
        """The position from which the stream resumes after a restart."""
        return self.written or self.frontier

    @property
    def key(self) -> bytes:
        """The message key: one record per slot survives compaction."""
        return self.slot.encode()

    def encode(self) -> bytes:
        """Encode the record -> message value."""
        return json.dumps(
            {
                "kind": "progress",
                "slot": self.slot,
                "system_id": self.system_id,
                "timeline": self.timeline,
                "slot_lsn": str(self.slot_lsn),
                "frontier": str(self.frontier),
                "end_offsets": _offset_fields(self.end_offsets),
                **({} if self.last_commit is None else {"last_commit": _commit_fields(self.last_commit)}),
                "control_end": self.control_end,
                "schemas": {str(relid): written for relid, written in self.schemas.items()},
                **({} if self.part is None else {"part": _part_fields(self.part)}),
                **({} if self.written is None else {"written": str(self.written)}),
                **({"windows": self.windows} if self.windows else {}),
                **({} if self.unfinished is None else {"unfinished": _unfinished_fields(self.unfinished)}),
                **({} if self.checkpoint is None else {"checkpoint": vars(self.checkpoint)}),
                **({"captures": [c.fields() for c in self.captures]} if self.captures else {}),
                **({} if self.complete_until_us is None else {"complete_until": self.complete_until_us}),
                **({} if self.first_commit_us is None else {"first_commit_ts": self.first_commit_us}),
                **({} if self.compared is None else {"compared": _compared_fields(self.compared)}),
            },
            separators=(",", ":"),
        ).encode()


@dataclass(frozen=True)
class Capture:
    """A relation is captured: its initial copy is complete.

    `membership` names the publication entries through which it is published. It differs after a table was removed from
    a publication and added again. Then the relation is captured again, because no stream contains the changes in
    between. `schema_id` is the fingerprint of the schema version of the copied rows, in hexadecimal.

    `left_out` is empty. Otherwise the topic does not have all rows or changes of the relation, for this reason.

    `stopped` is empty. Otherwise the relation is not followed, from `snapshot_lsn` on, for this reason; what its topic
    holds after that does not count until the next capture.

    The record of a partitioned table is written again whenever its leaf partitions change.
    """

    slot: str
    table: TableId
    relid: int
    snapshot_lsn: Lsn
    rows: int
    membership: str = ""
    schema_id: str = ""
    stopped: str = ""
    leaves: Mapping[int, Lsn] | None = None
    """For a partitioned table: the oid of each leaf partition whose rows are on the topic, and the position from which
    on its changes are. None for an ordinary table, and in records that were written before leaves were followed."""
    awaited: Mapping[int, Lsn] = field(default_factory=dict)
    """Leaf partitions that are not copied yet, and the position up to which the frontier may advance meanwhile."""
    joined: Mapping[int, str] = field(default_factory=dict)
    """What identifies the attachment of each leaf partition: it differs after it was detached and attached again."""
    left_out: str = ""
    facts: str = ""
    """What the relation was like when its rows on the topic were last right; `cdc_consumer/wal/table_facts.py` reads
    it."""

    @property
    def key(self) -> bytes:
        """The message key: one record per slot and relation survives compaction."""
        return json.dumps([self.slot, self.table.schema, self.table.name]).encode()

    def fields(self) -> dict[str, Any]:
        """Return the content of the JSON object."""
        return {
            "kind": "capture",
            "slot": self.slot,
            "schema": self.table.schema,
            "table": self.table.name,
            "relid": self.relid,
            "snapshot_lsn": str(self.snapshot_lsn),
            "rows": self.rows,
            "membership": self.membership,
            "schema_id": self.schema_id,
            **({"stopped": self.stopped} if self.stopped else {}),
            **({} if self.leaves is None else {"leaves": _leaf_fields(self.leaves)}),
            **({"awaited": _leaf_fields(self.awaited)} if self.awaited else {}),
            **({"joined": {str(leaf): by for leaf, by in self.joined.items()}} if self.joined else {}),
            **({"left_out": self.left_out} if self.left_out else {}),
            **({"facts": self.facts} if self.facts else {}),
        }

    def encode(self) -> bytes:
        """Encode the record -> message value."""
        return json.dumps(self.fields(), separators=(",", ":")).encode()


@dataclass(frozen=True)
class Checkpoint:
    """One part of a checkpoint. All parts with the same offset together are the checkpoint."""

    slot: str
    offset: int
    part: int
    parts: int
    end_offsets: Offsets
    schemas: dict[int, str]
    captures: tuple[Capture, ...]

    @property
    def key(self) -> bytes:
        """The message key: each part replaces the same part of the checkpoint before."""
        return json.dumps([self.slot, self.part]).encode()

    def encode(self) -> bytes:
        """Encode the part -> message value."""
        return json.dumps(
            {
                "kind": "checkpoint",
                "slot": self.slot,
                "offset": self.offset,
                "part": self.part,
                "parts": self.parts,
                "end_offsets": _offset_fields(self.end_offsets),
                "schemas": {str(relid): written for relid, written in self.schemas.items()},
                "captures": [capture.fields() for capture in self.captures],
            },
            separators=(",", ":"),
        ).encode()


ProgressRecord = Progress | Capture | Checkpoint
"""What the progress topic holds."""


def with_epoch(membership: str, number: int) -> str:
    """Return the membership of a relation whose recapture was requested for the `number`-th time."""
    return ",".join(f"{entry}~{number}" for entry in membership.split(",")) if number else membership


def membership_epoch(membership: str) -> int:
    """Return the number of the recapture request that a capture fulfils, 0 for none: the inverse of with_epoch."""
    return int(membership.rpartition("~")[2]) if "~" in membership else 0


def _leaf_fields(leaves: Mapping[int, Lsn]) -> dict[str, str]:
    return {str(leaf): str(at) for leaf, at in leaves.items()}


def _leaves(fields: dict[str, str]) -> dict[int, Lsn]:
    return {int(leaf): Lsn.parse(at) for leaf, at in fields.items()}


def _part_fields(part: CommitPart) -> dict[str, Any]:
    return {"lsn": str(part.lsn), "rows": part.rows, "publications": list(part.publications)}


def _part(fields: dict[str, Any] | None) -> CommitPart | None:
    return CommitPart(Lsn.parse(fields["lsn"]), fields["rows"], tuple(fields["publications"])) if fields else None


def _unfinished_fields(copies: UnfinishedCopies) -> dict[str, Any]:
    return {"lsn": str(copies.lsn), "tables": [[table.schema, table.name] for table in copies.tables]}


def _unfinished(fields: dict[str, Any] | None) -> UnfinishedCopies | None:
    if fields is None:
        return None
    return UnfinishedCopies(Lsn.parse(fields["lsn"]), tuple(TableId(*names) for names in fields["tables"]))


def _compared_fields(compared: ComparedRange) -> list[str]:
    return [str(compared.since), str(compared.until)]


def _compared(fields: list[str] | None) -> ComparedRange | None:
    if fields is None:
        return None
    since, until = fields
    return ComparedRange(Lsn.parse(since), Lsn.parse(until))


def _offset_fields(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: {str(p): o for p, o in partitions.items()} for topic, partitions in offsets.items()}


def _offsets(fields: dict[str, dict[str, int]]) -> Offsets:
    return {topic: {int(p): int(o) for p, o in partitions.items()} for topic, partitions in fields.items()}


def _schemas(fields: dict[str, str]) -> dict[int, str]:
    return {int(relid): str(written) for relid, written in fields.items()}


def _capture(record: dict[str, Any]) -> Capture:
    return Capture(
        record["slot"],
        TableId(record["schema"], record["table"]),
        record["relid"],
        Lsn.parse(record["snapshot_lsn"]),
        record["rows"],
        record.get("membership", ""),
        record.get("schema_id", ""),
        record.get("stopped", ""),
        _leaves(record["leaves"]) if "leaves" in record else None,
        _leaves(record.get("awaited", {})),
        {int(leaf): str(by) for leaf, by in record.get("joined", {}).items()},
        record.get("left_out", ""),
        record.get("facts", ""),
    )


def decode_progress(value: bytes) -> ProgressRecord:
    """Decode a message value -> record."""
    try:
        record: dict[str, Any] = json.loads(value)
        match record["kind"]:
            case "progress":
                place = record.get("checkpoint")
                return Progress(
                    record["slot"],
                    record["system_id"],
                    record["timeline"],
                    Lsn.parse(record["slot_lsn"]),
                    Lsn.parse(record["frontier"]),
                    _offsets(record["end_offsets"]),
                    _last_commit(record.get("last_commit")),
                    int(record.get("control_end", 0)),
                    _schemas(record.get("schemas", {})),
                    _part(record.get("part")),
                    Lsn.parse(record["written"]) if "written" in record else None,
                    int(record.get("windows", 0)),
                    _unfinished(record.get("unfinished")),
                    CheckpointPlace(int(place["offset"]), int(place["parts"])) if place else None,
                    tuple(_capture(capture) for capture in record.get("captures", ())),
                    record.get("complete_until"),
                    record.get("first_commit_ts"),
                    _compared(record.get("compared")),
                )
            case "capture":
                return _capture(record)
            case "checkpoint":
                return Checkpoint(
                    record["slot"],
                    int(record["offset"]),
                    int(record["part"]),
                    int(record["parts"]),
                    _offsets(record["end_offsets"]),
                    _schemas(record["schemas"]),
                    tuple(_capture(capture) for capture in record["captures"]),
                )
            case kind:
                raise ContractError(
                    f"unknown progress record kind {kind!r}", hint="is the writer newer than this program?"
                )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError("a progress record is malformed") from error


def _commit_fields(commit: LastCommit) -> dict[str, Any]:
    return {
        "lsn": str(commit.lsn),
        "xid": commit.xid,
        "commit_ts": commit.commit_ts_us,
        "publications": list(commit.publications),
    }


def _last_commit(fields: dict[str, Any] | None) -> LastCommit | None:
    if fields is None:
        return None
    publications = tuple(fields["publications"])
    return LastCommit(Lsn.parse(fields["lsn"]), fields["xid"], fields["commit_ts"], publications)
