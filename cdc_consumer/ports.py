"""The interfaces to the outside that the relay and its parts use."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_consumer.metrics import Metrics
from cdc_consumer.ring.receiver import Receiver
from cdc_consumer.routes import Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.load import Loader
from cdc_consumer.wal.feedback import Feedback


@dataclass(frozen=True, slots=True)
class Ports:
    """The connections of one session, and the state that belongs to them."""

    receiver: Receiver
    feedback: Feedback
    sink: Sink
    routes: Routes
    captures: Captures
    loader: Loader
    schema_versions: SchemaVersions
    metrics: Metrics
