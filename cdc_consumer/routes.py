"""Finds the route of each relation: its row writer, its tuple reader, and the first commit that is written."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Relation
from cdc_consumer.pgoutput.relations import Relations
from cdc_consumer.ring.spool import Spool
from cdc_consumer.sinks.sink import RowWriter, Sink
from cdc_consumer.snapshot.captures import CapturedTables
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of a captured relation reach the sink. Commits before `since` are part of its snapshot."""

    row_writer: RowWriter
    reader: TableReader
    since: Lsn


class Routes:
    """Builds and caches the routes of the relations in the stream."""

    def __init__(self, relations: Relations, tables: CapturedTables, sink: Sink) -> None:
        self._relations = relations
        self._tables = tables
        self._sink = sink
        self._routes: dict[int, Route | None] = {}
        self._aside: dict[int, Spool] = {}

    def redirect_rows(self, relid: int, spool: Spool) -> None:
        """Write the relation's changes into the spool while the relation is copied."""
        self._aside[relid] = spool
        self._routes.pop(relid, None)

    def restore_route(self, relid: int) -> None:
        """Write the relation's changes to the sink again: its copy is finished or cancelled."""
        self._aside.pop(relid, None)
        self._routes.pop(relid, None)

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
            self._routes[relid] = self._build(relid)
        route = self._routes[relid]
        return route if route is not None and commit_lsn >= route.since else None

    def _build(self, relid: int) -> Route | None:
        relation, spool = self._relations.relation(relid), self._aside.get(relid)
        since = self._tables.since(relid, TableId(relation.schema, relation.name)) if spool is None else spool.since
        if since is None:
            return None
        schema = self._relations.schema(relid)
        row_writer = self._sink.row_writer(schema)
        return Route(
            row_writer if spool is None else row_writer.redirect(spool.write), TableReader(relation, schema), since
        )
