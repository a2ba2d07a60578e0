"""Simulates a binary: it is ready after a moment, prints its settings and ends on SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        settings = {name: value for name, value in os.environ.items() if name.startswith("PG_TRICKLE_")}
        self.wfile.write(json.dumps(settings).encode())

    def log_message(self, format: str, *args: object) -> None:
        return


if __name__ == "__main__":
    print(" ".join(sys.argv[1:]), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    HTTPServer(("127.0.0.1", int(os.environ["PG_TRICKLE_METRICS_PORT"])), Pages).serve_forever()
