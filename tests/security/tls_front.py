"""A TLS proxy for a PostgreSQL server without TLS: it forwards the decrypted bytes on this machine."""

from __future__ import annotations

import asyncio
import ssl
import struct
import subprocess
import threading
from pathlib import Path

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""The first message of libpq when it requests TLS; a server replies with one letter."""


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for this machine, and its key."""
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    command: list[str | Path] = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", made]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


class TlsFront:
    """Listens on `port`; disconnects a client that does not request TLS."""

    def __init__(self, target_port: int, made: tuple[Path, Path]) -> None:
        self._target = target_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*made)
        self.port = 0
        self.served = 0
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="tls", daemon=True).start()
        ready.wait(10)

    async def _serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
                return
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(self._context)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self.served += 1
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
