"""Compares two schema versions of one relation and describes the differences in words. Does no IO."""

from __future__ import annotations

from dataclasses import dataclass

from shared_schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """The differences. `compatible` means that a reader of the old version can read the new rows without a change."""

    compatible: bool
    changes: tuple[str, ...]


def compare_schemas(old: TableSchema, new: TableSchema) -> SchemaDifference:
    """Return what a reader of `old` must know to read rows of `new`. A renamed column is one dropped and one added."""
    before = {column.name: column.type for column in old.columns}
    after = {column.name: column.type for column in new.columns}
    added = [f"added {name} {kind.display}" for name, kind in after.items() if name not in before]
    other = [f"dropped {name} {kind.display}" for name, kind in before.items() if name not in after]
    other += [
        f"retyped {name} from {before[name].display} to {kind.display}"
        for name, kind in after.items()
        if name in before and before[name] != kind
    ]
    if [n for n in before if n in after] != [n for n in after if n in before]:
        other.append("reordered columns")
    if old.key != new.key:
        other.append(f"key is now ({', '.join(new.key)}), was ({', '.join(old.key)})")
    if old.replica_identity != new.replica_identity:
        was, now = old.replica_identity.name.lower(), new.replica_identity.name.lower()
        other.append(f"replica identity is now {now}, was {was}")
    if old.table != new.table:
        other.append(f"renamed from {old.table}")
    return SchemaDifference(not other, (*added, *other))
