"""Where the rows of each relation go: its outlet, how its tuples are read, and from which commit on."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Relation
from cdc_consumer.pgoutput.relations import Relations
from cdc_consumer.ring.spool import Spool
from cdc_consumer.sinks.sink import RowWriter, Sink
from cdc_consumer.snapshot.captures import Captures
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class Route:
    """A captured relation's way; commits before `since` are in its snapshot."""

    row_writer: RowWriter
    reader: TableReader
    since: Lsn


class Routes:
    """The routes of the relations seen in the stream; None for one that is not captured."""

    def __init__(self, relations: Relations, captures: Captures, sink: Sink) -> None:
        self._relations = relations
        self._captures = captures
        self._sink = sink
        self._routes: dict[int, Route | None] = {}
        self._aside: dict[int, Spool] = {}

    def redirect_rows(self, relid: int, spool: Spool) -> None:
        """The relation is being copied: its changes wait in the spool."""
        self._aside[relid] = spool
        self._routes.pop(relid, None)

    def restore_route(self, relid: int) -> None:
        """Its copy is written, or given up."""
        self._aside.pop(relid, None)
        self._routes.pop(relid, None)

    def describe(self, relation: Relation) -> None:
        """A Relation message came."""
        self._relations.describe(relation)
        self._routes.pop(relation.relid, None)

    def forget(self) -> None:
        """The captured tables changed."""
        self._routes.clear()

    def find(self, relid: int, commit_lsn: Lsn) -> Route | None:
        """The route for a row of a commit; None when the row goes nowhere."""
        if relid not in self._routes:
            self._routes[relid] = self._build(relid)
        route = self._routes[relid]
        return route if route is not None and commit_lsn >= route.since else None

    def _build(self, relid: int) -> Route | None:
        relation, spool = self._relations.relation(relid), self._aside.get(relid)
        since = self._captures.since(relid, TableId(relation.schema, relation.name)) if spool is None else spool.since
        if since is None:
            return None
        schema = self._relations.schema(relid)
        row_writer = self._sink.row_writer(schema)
        return Route(
            row_writer if spool is None else row_writer.redirect(spool.write), TableReader(relation, schema), since
        )
