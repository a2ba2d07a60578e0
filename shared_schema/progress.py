"""Records of the compacted `<prefix>.progress` topic (JSON).

`Progress` (key = slot): everything whose commit record starts before `frontier` is on the topics. It is written inside
the Kafka transaction that it describes. Transaction markers do not reach all partitions at the same moment, and readers
read each partition at its own pace. Therefore `end_offsets` gives, for every partition ever written, the offset after
the last record before `frontier`: a reader is complete up to `frontier` once it has read up to these offsets. The
record names all partitions, not only those of its own transaction, because compaction removes earlier records.

While a table is copied, the frontier waits for its rows, but the stream continues: `written` is then ahead of
`frontier`. All changes of the captured tables before `written` are on the topics, and a restart resumes there.

`Capture` (key = slot|schema|table): the relation's rows as of `snapshot_lsn` are on its topic, and every later change
follows. It is written in the Kafka transaction of the last copied row. It also tells readers of an empty table that
there are no rows to wait for.
"""

from __future__ import annotations

import json
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
                "end_offsets": {t: {str(p): o for p, o in ps.items()} for t, ps in self.end_offsets.items()},
                **({} if self.last_commit is None else {"last_commit": _commit_fields(self.last_commit)}),
                "control_end": self.control_end,
                "schemas": {str(relid): written for relid, written in self.schemas.items()},
                **({} if self.part is None else {"part": _part_fields(self.part)}),
                **({} if self.written is None else {"written": str(self.written)}),
                **({"windows": self.windows} if self.windows else {}),
            },
            separators=(",", ":"),
        ).encode()


@dataclass(frozen=True)
class Capture:
    """A relation is captured: its initial copy is complete.

    `membership` names the publication entries through which it is published. It differs after a table was removed from
    a publication and added again. Then the relation is captured again, because no stream contains the changes in
    between. `schema_id` is the fingerprint of the schema version of the copied rows, in hexadecimal.
    """

    slot: str
    table: TableId
    relid: int
    snapshot_lsn: Lsn
    rows: int
    membership: str = ""
    schema_id: str = ""

    @property
    def key(self) -> bytes:
        """The message key: one record per slot and relation survives compaction."""
        return json.dumps([self.slot, self.table.schema, self.table.name]).encode()

    def encode(self) -> bytes:
        """Encode the record -> message value."""
        return json.dumps(
            {
                "kind": "capture",
                "slot": self.slot,
                "schema": self.table.schema,
                "table": self.table.name,
                "relid": self.relid,
                "snapshot_lsn": str(self.snapshot_lsn),
                "rows": self.rows,
                "membership": self.membership,
                "schema_id": self.schema_id,
            },
            separators=(",", ":"),
        ).encode()


def with_epoch(membership: str, number: int) -> str:
    """Return the membership of a relation whose recapture was requested for the `number`-th time."""
    return ",".join(f"{entry}~{number}" for entry in membership.split(",")) if number else membership


def membership_epoch(membership: str) -> int:
    """Return the number of the recapture request that a capture fulfils, 0 for none: the inverse of with_epoch."""
    return int(membership.rpartition("~")[2]) if "~" in membership else 0


def _part_fields(part: CommitPart) -> dict[str, Any]:
    return {"lsn": str(part.lsn), "rows": part.rows, "publications": list(part.publications)}


def _part(fields: dict[str, Any] | None) -> CommitPart | None:
    return CommitPart(Lsn.parse(fields["lsn"]), fields["rows"], tuple(fields["publications"])) if fields else None


def decode_progress(value: bytes) -> Progress | Capture:
    """Decode a message value -> record."""
    try:
        record: dict[str, Any] = json.loads(value)
        match record["kind"]:
            case "progress":
                offsets = {t: {int(p): int(o) for p, o in ps.items()} for t, ps in record["end_offsets"].items()}
                return Progress(
                    record["slot"],
                    record["system_id"],
                    record["timeline"],
                    Lsn.parse(record["slot_lsn"]),
                    Lsn.parse(record["frontier"]),
                    offsets,
                    _last_commit(record.get("last_commit")),
                    int(record.get("control_end", 0)),
                    {int(relid): str(written) for relid, written in record.get("schemas", {}).items()},
                    _part(record.get("part")),
                    Lsn.parse(record["written"]) if "written" in record else None,
                    int(record.get("windows", 0)),
                )
            case "capture":
                return Capture(
                    record["slot"],
                    TableId(record["schema"], record["table"]),
                    record["relid"],
                    Lsn.parse(record["snapshot_lsn"]),
                    record["rows"],
                    record.get("membership", ""),
                    record.get("schema_id", ""),
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
