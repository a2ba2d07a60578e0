"""A connection in; one object per table or group of tables of schema `pgtrickle` out."""

from __future__ import annotations

from applier.catalog.alterations import PendingAlterations
from applier.catalog.checkpoints import Checkpoints
from applier.catalog.database import Database
from applier.catalog.dependencies import DependencyStore
from applier.catalog.frontiers import Frontiers
from applier.catalog.fuses import FuseStore
from applier.catalog.gates import GateStore
from applier.catalog.history import History
from applier.catalog.service import ServiceState
from applier.catalog.sources import SourceFacts
from applier.catalog.stream_tables import StreamTableStore
from shared_schema.alert_sender import AlertSender


class Catalog:
    """The parts of the catalog that share a connection, so that one transaction may span several of them."""

    def __init__(self, database: Database, alerts: AlertSender | None = None) -> None:
        """`alerts` sends those of the whole program."""
        self.stream_tables = StreamTableStore(database)
        self.frontiers = Frontiers(database)
        self.history = History(database)
        self.fuses = FuseStore(database)
        self.checkpoints = Checkpoints(database)
        self.alterations = PendingAlterations(database)
        self.sources = SourceFacts(database)
        self.dependencies = DependencyStore(database)
        self.service = ServiceState(database, alerts)
        self.gates = GateStore(database)
