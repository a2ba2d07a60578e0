"""The small HTTP server of a binary: `/metrics` (Prometheus), `/healthz` (the process lives), `/readyz` (it works)."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from shared_schema.errors import SettingsError


class StatusServer:
    """Serves on its own thread while the context is open; port 0 serves nothing."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._ready = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    def ready(self, is_ready: bool = True) -> None:
        """What /readyz says from now on."""
        if is_ready:
            self._ready.set()
        else:
            self._ready.clear()

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        match path:
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(REGISTRY)
            case "/healthz":
                return 200, "text/plain", b"alive\n"
            case "/readyz":
                return (200, "text/plain", b"ready\n") if self._ready.is_set() else (503, "text/plain", b"starting\n")
            case _:
                return 404, "text/plain", b"there is /metrics, /healthz and /readyz\n"

    def __enter__(self) -> StatusServer:
        if not self._port:
            return self
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, kind, body = answer(self.path)
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests of probes are no news."""

        try:
            self._server = ThreadingHTTPServer((self._host, self._port), Handler)
        except OSError as error:
            raise SettingsError(
                f"the metrics address {self._host}:{self._port} is not to be had: {error.strerror}",
                hint="set PG_TRICKLE_METRICS_PORT to a free port, or to 0 for none",
            ) from error
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
