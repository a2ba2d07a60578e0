"""Prometheus metrics and the small HTTP server that shows them: /metrics, /healthz, /readyz."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shared_schema.change_row import ChangeRow
from shared_schema.errors import SettingsError
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId

ALIVE_WITHIN_S = 30.0
"""The loop turns many times a second; one that has not for this long is stuck."""


class Metrics:
    """What the consumer counts; one object per process, passed down."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.ready = False
        self._beat = time.monotonic()
        name, registry = "pg_trickle_cdc", self.registry
        self._rows = Counter(f"{name}_rows", "Change rows produced", ["table", "op"], registry=registry)
        self._children: dict[tuple[TableId, str], Counter] = {}
        self.transactions = Counter(f"{name}_transactions", "Source commits published", registry=registry)
        self.publications = Counter(f"{name}_publishes", "Kafka transactions committed", registry=registry)
        self.deduplicated = Counter(
            f"{name}_deduplicated", "Source commits dropped because the topics held them", registry=registry
        )
        self.captured_rows = Counter(f"{name}_captured_rows", "Rows copied by captures", ["table"], registry=registry)
        self.captures = Gauge(f"{name}_captured_tables", "Tables captured", registry=registry)
        self.reconnects = Counter(f"{name}_reconnects", "Sessions begun again after an error", registry=registry)
        self.publish_seconds = Histogram(
            f"{name}_publish_seconds",
            "From the end of a batch to its Kafka commit",
            buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1, 5),
            registry=registry,
        )
        self.server_position = Lsn(0)
        """Where the server's log ended when it was last looked at."""
        self._lag_bytes = Gauge(f"{name}_lag_bytes", "Log not yet on the topics", registry=registry)
        self._received = Gauge(f"{name}_received_lsn", "Everything before it was received", registry=registry)
        self._published = Gauge(f"{name}_published_lsn", "Frontier of the topics", registry=registry)
        self._acknowledged = Gauge(f"{name}_acknowledged_lsn", "Flush position the server knows", registry=registry)

    def row(self, table: TableId, row: ChangeRow) -> None:
        """Count one produced row."""
        place = (table, row.op.value)
        child = self._children.get(place)
        if child is None:
            child = self._children[place] = self._rows.labels(str(table), row.op.value)
        child.inc()

    def positions(self, received: Lsn, published: Lsn, acknowledged: Lsn) -> None:
        """Where the stream stands."""
        self._lag_bytes.set(max(0, max(self.server_position, received).value - published.value))
        self._received.set(received.value)
        self._published.set(published.value)
        self._acknowledged.set(acknowledged.value)

    def beat(self) -> None:
        """The loop is alive."""
        self._beat = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop turned lately."""
        return time.monotonic() - self._beat < ALIVE_WITHIN_S


class MetricsServer:
    """Serves one Metrics object until closed; port 0 means no server at all."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self._server: ThreadingHTTPServer | None = None
        if port == 0:
            return
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(metrics))
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {host}:{port}: {error.strerror}", hint="set PG_TRICKLE_METRICS_PORT to a free port"
            ) from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)
                case "/healthz":
                    self._state(metrics.alive, "alive")
                case "/readyz":
                    self._state(metrics.ready and metrics.alive, "ready")
                case _:
                    self._answer(404, b"see /metrics, /healthz, /readyz\n", "text/plain")

        def _state(self, good: bool, word: str) -> None:
            self._answer(200 if good else 503, f"{'' if good else 'not '}{word}\n".encode(), "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not worth a log line."""

    return Handler
