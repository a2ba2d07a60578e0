"""The HTTP server of a binary: `/metrics`, `/healthz` (is it alive), `/readyz` (is it ready) and `/status`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shared_schema.errors import SettingsError


class Condition(Protocol):
    """The health of a binary; read at every request."""

    @property
    def alive(self) -> bool:
        """Whether its loop ran recently."""

    @property
    def ready(self) -> bool:
        """Whether it is ready, that is, doing its work."""

    @property
    def reason(self) -> str:
        """Why it is not ready, in a few words."""


Report = Callable[[], dict[str, Any]]
"""Returns the content of `/status`, which is sent as JSON."""


class StatusServer:
    """Serves on a separate thread while the context is open; port 0 disables it."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, condition: Condition, report: Report = dict
    ) -> None:
        self._server: ThreadingHTTPServer | None = None
        if port == 0:
            return
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(registry, condition, report))
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {host}:{port}: {error.strerror}",
                hint="set PG_TRICKLE_METRICS_PORT to a free port, or to 0 to disable the server",
            ) from error
        self._server.daemon_threads = True

    def __enter__(self) -> StatusServer:
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _handler(registry: CollectorRegistry, condition: Condition, report: Report) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                case "/healthz":
                    self._state(condition.alive, "alive", "the main loop has not run recently")
                case "/readyz":
                    self._state(condition.ready and condition.alive, "ready", condition.reason)
                case "/status":
                    self._answer(200, json.dumps(report()).encode(), "application/json")
                case _:
                    self._answer(404, b"see /metrics, /healthz, /readyz, /status\n", "text/plain")

        def _state(self, good: bool, word: str, reason: str) -> None:
            text = word if good else f"not {word}: {reason}"
            self._answer(200 if good else 503, f"{text}\n".encode(), "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: a scrape is not worth a log line."""

    return Handler
