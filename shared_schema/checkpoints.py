"""Cuts a checkpoint into parts, collects parts, and completes a progress record by its checkpoint. Pure.

A part fits into a Kafka message with its default limit, however many tables there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shared_schema.progress import Capture, Checkpoint, CheckpointPlace, Offsets, Progress, later_offsets

CHECKPOINT_PART_BYTES = 300_000
"""Approximate size of a part."""

_OFFSET_BYTES, _SCHEMA_BYTES = 24, 40


@dataclass
class _Content:
    """What goes into one part."""

    end_offsets: Offsets = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)
    captures: list[Capture] = field(default_factory=list)
    size: int = 0


def cut_checkpoint(
    slot: str, offset: int, end_offsets: Offsets, schemas: Mapping[int, str], captures: Iterable[Capture]
) -> list[Checkpoint]:
    """Return the parts of a checkpoint, at least one."""
    contents = [_Content()]

    def make_room(size: int) -> _Content:
        if contents[-1].size >= CHECKPOINT_PART_BYTES:
            contents.append(_Content())
        contents[-1].size += size
        return contents[-1]

    for topic, partitions in end_offsets.items():
        for partition, end in partitions.items():
            make_room(_OFFSET_BYTES + len(topic)).end_offsets.setdefault(topic, {})[partition] = end
    for relid, written in schemas.items():
        make_room(_SCHEMA_BYTES).schemas[relid] = written
    for capture in captures:
        make_room(len(capture.encode())).captures.append(capture)
    return [
        Checkpoint(slot, offset, part, len(contents), c.end_offsets, c.schemas, tuple(c.captures))
        for part, c in enumerate(contents)
    ]


class CheckpointParts:
    """Collects the parts of the newest checkpoint, in the order of the topic."""

    def __init__(self) -> None:
        self._offset = -1
        self._parts: dict[int, Checkpoint] = {}
        self._whole: tuple[Checkpoint, ...] | None = None

    def add(self, part: Checkpoint) -> None:
        """Add a part; one of another checkpoint replaces what was collected."""
        if part.offset != self._offset:
            self._offset, self._parts = part.offset, {}
        self._parts[part.part] = part
        self._whole = None

    def find(self, place: CheckpointPlace) -> tuple[Checkpoint, ...] | None:
        """Return all parts of a checkpoint, the same object each time; None if compaction removed one of them."""
        if place.offset != self._offset or len(self._parts) < place.parts:
            return None
        if self._whole is None:
            self._whole = tuple(self._parts[part] for part in range(place.parts))
        return self._whole


def complete_progress(progress: Progress, parts: Iterable[Checkpoint]) -> Progress:
    """Return a record that names everything by itself, from a record and the parts of its checkpoint."""
    ends: Offsets = {}
    schemas: dict[int, str] = {}
    captures: dict[object, Capture] = {}
    for part in parts:
        ends = later_offsets(ends, part.end_offsets)
        schemas |= part.schemas
        captures |= {capture.table: capture for capture in part.captures}
    captures |= {capture.table: capture for capture in progress.captures}
    return replace(
        progress,
        end_offsets=later_offsets(ends, progress.end_offsets),
        schemas=schemas | progress.schemas,
        captures=tuple(captures.values()),
        checkpoint=None,
    )
