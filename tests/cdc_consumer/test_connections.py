"""Connecting as psql does: SCRAM (required by every test server), password and service files, TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import make_conninfo

from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, refused

TABLE = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER PUBLICATION pg_trickle ADD TABLE t"


def test_a_service_file_and_a_password_file(consumer: Consumer, db: Connection, tmp_path: Path) -> None:
    url = urlsplit(consumer.url)
    service, passwords = tmp_path / "services", tmp_path / "passwords"
    service.write_text(
        f"[cdc]\nhost={url.hostname}\nport={url.port}\nuser={url.username}\ndbname={url.path.removeprefix('/')}\n"
    )
    passwords.write_text(f"{url.hostname}:{url.port}:*:{url.username}:{url.password}\n")
    passwords.chmod(0o600)
    consumer.environment |= {
        "PG_TRICKLE_DATABASE_URL": "service=cdc",
        "PGSERVICEFILE": str(service),
        "PGPASSFILE": str(passwords),
    }
    db.execute(TABLE.encode())
    consumer.start()
    check(consumer, ["public.t"])
    assert consumer.stop() == 0
    passwords.write_text(f"{url.hostname}:{url.port}:*:{url.username}:wrong\n")
    text = refused(consumer)
    assert "authentication" in text and "wrong" not in text


@contextmanager
def tls_in_front(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """Run a proxy with PostgreSQL's TLS handshake, for servers that were built without TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    stop = threading.Event()

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client:
            assert client.recv(8) == b"\x00\x00\x00\x08\x04\xd2\x16\x2f", "only TLS comes in"
            client.sendall(b"S")
            with (
                context.wrap_socket(client, server_side=True) as inside,
                socket.create_connection(("127.0.0.1", port)) as server,
            ):
                threading.Thread(target=pump, args=(server, inside), daemon=True).start()
                pump(inside, server)

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while not stop.is_set():
            with suppress(TimeoutError):
                client, _ = listener.accept()
                client.settimeout(None)
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        thread.join()
        listener.close()


def self_signed(folder: Path) -> tuple[Path, Path]:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl here to make a certificate with")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    line = [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    line += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    return certificate, key


def test_tls_with_a_verified_certificate(consumer: Consumer, db: Connection, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = self_signed(tmp_path / "other")
    url = urlsplit(consumer.url)
    db.execute(TABLE.encode())
    with tls_in_front(url.port or 0, certificate, key) as port:
        secure = url._replace(netloc=f"{url.username}:{url.password}@127.0.0.1:{port}").geturl()
        consumer.environment["PG_TRICKLE_DATABASE_URL"] = f"{secure}?sslmode=verify-full&sslrootcert={certificate}"
        consumer.start()
        db.execute("INSERT INTO t VALUES (2)")
        check(consumer, ["public.t"])
        assert consumer.stop() == 0
        consumer.environment["PG_TRICKLE_DATABASE_URL"] = f"{secure}?sslmode=verify-full&sslrootcert={other}"
        assert "certificate" in refused(consumer)


def test_time_limits_of_the_role_end_neither_copies_nor_the_stream(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(copy_chunk_pages=100_000, heartbeat_ms=60_000)
    role = f"hurried_{consumer.prefix}"
    limits = {"statement_timeout": 10, "idle_in_transaction_session_timeout": 50, "idle_session_timeout": 300}
    if db.info.server_version >= 170_000:
        limits["transaction_timeout"] = 50
    db.execute(f"CREATE ROLE {role} LOGIN SUPERUSER REPLICATION PASSWORD 'x'".encode())
    try:
        for name, limit_ms in limits.items():
            db.execute(f"ALTER ROLE {role} SET {name} = {limit_ms}".encode())
        consumer.environment["PG_TRICKLE_DATABASE_URL"] = make_conninfo(consumer.url, user=role, password="x")
        db.execute("CREATE TABLE large AS SELECT g AS id, repeat('x', 1500) AS v FROM generate_series(1, 15000) g")
        db.execute("ALTER TABLE large REPLICA IDENTITY FULL; ALTER PUBLICATION pg_trickle ADD TABLE large")
        consumer.start()
        db.execute("UPDATE large SET v = 'y' WHERE id <= 200")
        # The sessions that look at the catalog are idle between two looks.
        time.sleep(0.5)
        check(consumer, ["public.large"])
        assert consumer.metric("pg_trickle_cdc_reconnects_total") == 0
        assert consumer.metric('pg_trickle_cdc_retries_total{what="capture"}') == 0
    finally:
        consumer.end()
        db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
