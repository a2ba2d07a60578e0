"""Finds the route of each relation: its row writer, its tuple reader, and the first commit that is written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Relation
from cdc_consumer.pgoutput.relations import Relations
from cdc_consumer.ring.spool import Spool
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.sinks.sink import RowWriter, Sink, Write
from cdc_consumer.snapshot.captured_tables import CapturedTables, LeafGone, LeafOf
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import LEAF_COLUMN, TableSchema


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of a captured relation reach the sink. Commits before `since` are part of its snapshot."""

    row_writer: RowWriter
    reader: TableReader
    since: Lsn
    spool: Spool | None = None
    """Where the rows go too, or instead, while the relation is copied."""


class Routes:
    """Builds and caches the routes of the relations in the stream.

    Rows of a leaf partition go to the topic of its root. `ancestors` returns the tables of which a relation is a
    partition now, and itself if it is published. It is asked for relations that nobody knows: a leaf may join without a
    message about it, and leave again.
    """

    def __init__(
        self,
        relations: Relations,
        tables: CapturedTables,
        sink: Sink,
        schema_versions: SchemaVersions,
        ancestors: Callable[[int], Collection[int]],
    ) -> None:
        self._relations = relations
        self._tables = tables
        self._sink = sink
        self._schema_versions = schema_versions
        self._ancestors = ancestors
        self._routes: dict[int, Route | None] = {}
        self._aside: dict[int, Spool] = {}
        self._beside: dict[int, Spool] = {}

    def redirect_rows(self, relid: int, spool: Spool) -> None:
        """Write the relation's changes into the spool while the relation is copied."""
        self._aside[relid] = spool
        self._beside.pop(relid, None)
        self.forget()

    def repeat_rows(self, relid: int, spool: Spool) -> None:
        """Write the relation's changes into the spool while its copy is prepared, and to the sink if it is captured."""
        self._beside[relid] = spool
        self.forget()

    def restore_routes(self, spool: Spool) -> None:
        """Write the changes in the spool to the sink again from now on: the copy is finished or cancelled."""
        for spools in (self._aside, self._beside):
            for relid in [relid for relid, used in spools.items() if used is spool]:
                del spools[relid]
        self.forget()

    def describe(self, relation: Relation) -> None:
        """Take over a Relation message of the stream."""
        self._relations.describe(relation)
        self._routes.pop(relation.relid, None)

    def forget(self) -> None:
        """Drop all cached routes, because the set of captured tables changed."""
        self._routes.clear()

    def find(self, relid: int, commit_lsn: Lsn) -> Route | None:
        """Return the route for the rows of a commit; None if they are not written."""
        if relid not in self._routes:
            self._routes[relid] = self._build(relid, commit_lsn)
        route = self._routes[relid]
        if route is None or commit_lsn < route.since:
            return None
        if route.spool is not None:
            route.spool.begin_commit(commit_lsn)
        return route

    def leaf_writer(self, gone: LeafGone, commit_lsn: Lsn) -> tuple[RowWriter, TableSchema]:
        """Return the writer for the T row of a leaf partition that left, and the schema of its root.

        It is not kept aside while only the leaf is copied: it is stamped after all copied rows.
        """
        root = gone.root
        schema = self._schema_versions.find(root.relid)
        if schema is None:
            raise AssertionError(f"{root.table} was captured without a schema")
        spool = self._aside.get(root.relid)
        writer = self._sink.row_writer(schema)
        if spool is None:
            return writer, schema
        spool.begin_commit(commit_lsn)
        return writer.redirect(spool.write), schema

    def _build(self, relid: int, commit_lsn: Lsn) -> Route | None:
        relation = self._relations.relation(relid)
        leaf = self._tables.find_leaf(relid)
        capture = None if leaf is not None else self._tables.find(relid)
        captured_since = None if capture is None else capture.snapshot_lsn
        if leaf is None and captured_since is None and relid not in self._beside and relid not in self._aside:
            leaf = self._find_unknown(relid, commit_lsn)
        elif leaf is None and (root := self._tables.find_root((relid,))) is not None:
            # It was published via its root for some time. A copy that has begun contains such rows.
            if self._tables.captures.get(root.table) is root:
                self._tables.lose_leaves(root, commit_lsn)
            return None
        # A copy of the root that has begun does not contain a leaf that is awaited, so the leaf does not share its
        # spool. One that is being prepared will contain the leaf.
        root_relid = relid if leaf is None else leaf.root.relid
        key = root_relid if leaf is not None and leaf.since is not None else relid
        if leaf is not None and not leaf.is_copying:
            captured_since = leaf.since
        beside = self._beside.get(relid) or self._beside.get(root_relid)
        aside = self._aside.get(relid) or self._aside.get(key) or (beside if captured_since is None else None)
        since = captured_since if aside is None else aside.since
        if since is None:
            return None
        schema = self._relations.schema(relid) if leaf is None else self._root_schema(relid, leaf.root)
        if aside is not None:
            row_writer = self._sink.row_writer(schema).redirect(aside.write)
            return Route(row_writer, TableReader(relation, schema), since, aside)
        # The topic is that of the capture, also while the relation has another name.
        written = schema if capture is None else replace(schema, table=capture.table)
        row_writer, reader = self._sink.row_writer(written), TableReader(relation, written)
        if beside is None:
            return Route(row_writer, reader, since)
        # Its copy is prepared under the present name.
        spooled: Write = beside.write
        if written != schema:
            spooled = row_writer.write_as(self._sink.row_writer(schema), spooled)
        return Route(row_writer.redirect(_both(row_writer.write, spooled)), reader, since, beside)

    def _find_unknown(self, relid: int, commit_lsn: Lsn) -> LeafOf | None:
        """Return the root of a leaf partition of which no message told; the leaf is awaited from now on.

        One that left since then is awaited by every table that may have been its root: the frontier stays before its
        rows until the next look at the catalog, which finds that it is gone.
        """
        ancestors = self._ancestors(relid)
        root = self._tables.find_root(ancestors)
        if root is not None and root.relid == relid:
            return None
        for awaiting in [root] if root is not None else self._find_alike(relid) if not ancestors else []:
            self._tables.await_leaf(awaiting, relid, commit_lsn)
        return self._tables.find_leaf(relid)

    def _find_alike(self, relid: int) -> list[Capture]:
        """Return the partitioned tables of which a relation with these columns may have been a leaf.

        Columns of the table may have been added, dropped or given another type before the relation was created, and
        nothing of that in the stream yet. To wait for one too many costs a look at the catalog.
        """
        columns = {column.name for column in self._relations.relation(relid).columns}
        return [
            root
            for root in self._tables.followed_roots
            if (schema := self._schema_versions.find(root.relid)) is not None
            and (columns <= (known := {c.name for c in schema.columns if c != LEAF_COLUMN}) or known <= columns)
        ]

    def _root_schema(self, leaf: int, root: Capture) -> TableSchema:
        previous = self._schema_versions.find(root.relid)
        return self._relations.root_schema(leaf, root.table, root.relid, previous)


def _both(first: Write, second: Write) -> Write:
    def write(key: bytes | None, value: bytes) -> None:
        first(key, value)
        second(key, value)

    return write
