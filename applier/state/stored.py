"""The form of a state in the manifest of a checkpoint: at which frontier, of what, and in which files its rows are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shared_schema.lsn import Lsn

TOO_LARGE = "too_large"
"""The kind of a node whose state is too large to keep."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below the folder of the states, with what shows that it is whole."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredNode:
    """The state of one node; `place` is that of the node among those of its plan that keep a state."""

    place: int
    kind: str
    schema: str
    """The Spark types of the rows, as JSON."""
    extra: Mapping[str, int]
    base: tuple[StoredFile, ...] = ()
    """Parquet files of what Spark holds."""
    rows: tuple[StoredFile, ...] = ()
    """Arrow files of what the driver holds; at most one."""
    added: tuple[StoredFile, ...] = ()
    """Arrow files of what the last LSN range added, which is not among the rows yet; at most one."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> StoredNode:
        """Read the stored form."""
        base, rows, added = (tuple(StoredFile(**file) for file in stored[part]) for part in ("base", "rows", "added"))
        return cls(stored["place"], stored["kind"], stored["schema"], dict(stored["extra"]), base, rows, added)


@dataclass(frozen=True, slots=True)
class StoredState:
    """The states of one stream table's nodes at `frontier`."""

    frontier: Lsn
    fingerprint: str
    nodes: tuple[StoredNode, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that a manifest has."""
        nodes = [{**asdict(node), "extra": dict(node.extra)} for node in self.nodes]
        return {"frontier": str(self.frontier), "fingerprint": self.fingerprint, "nodes": nodes}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> StoredState:
        """Read the stored form; raises whatever a form of another kind leads to."""
        nodes = tuple(StoredNode.from_json(node) for node in stored["nodes"])
        return cls(Lsn.parse(stored["frontier"]), str(stored["fingerprint"]), nodes)

    def files(self) -> Iterator[StoredFile]:
        """Yield all files."""
        for node in self.nodes:
            yield from (*node.base, *node.rows, *node.added)
