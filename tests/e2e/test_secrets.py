"""Passwords do not leave the settings, and programs listen on the loopback address only unless configured."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import urllib.request
from pathlib import Path

import psycopg
import pytest

from deploy.local.binary import APPLIER, CDC
from deploy.local.stack import Stack
from shared_schema.connections import parse_conninfo

LISTEN = "0A"


def family(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _sockets(pid: int) -> set[str]:
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(descriptor))
        except OSError:
            continue
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def _listening(pid: int) -> list[tuple[str, int]]:
    """Return the addresses and ports on which a process accepts connections."""
    own, found = _sockets(pid), []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in own:
                address, _, port = fields[1].partition(":")
                raw = bytes.fromhex(address)
                words = struct.unpack(f">{len(raw) // 4}I", raw)
                found.append((socket.inet_ntop(family, struct.pack(f"<{len(words)}I", *words)), int(port, 16)))
    return found


def _ask_spark(port: int) -> bytes:
    """Send a request of Spark's RPC without a secret; return the answer. Empty when the connection is closed."""
    # No sender, no receiver, no name of an endpoint, and then an object.
    body = b"\0\0\0\0" + b"no serialized object"
    frame = struct.pack(">BqI", 3, 42, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(struct.pack(">q", len(frame) + 8) + frame)
        with contextlib.suppress(OSError):
            return connection.recv(65_536)
    return b""


def test_secrets_are_not_shown_and_only_loopback_listens(stack: Stack) -> None:
    if not Path("/proc/self/net/tcp").exists():
        pytest.skip("needs Linux's /proc")
    password = parse_conninfo(stack.binaries["applier"].settings["PG_TRICKLE_DATABASE_URL"])["password"]
    assert password == parse_conninfo(stack.binaries["cdc"].settings["PG_TRICKLE_DATABASE_URL"])["password"]
    for name, binary in stack.binaries.items():
        heard: list[tuple[str, int]] = []
        for pid in family(binary.pid):
            # A descendant may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                assert password not in Path(f"/proc/{pid}/cmdline").read_text(), f"{name}: in ps"
                heard += _listening(pid)
        assert all(address in ("127.0.0.1", "::1", "::ffff:127.0.0.1") for address, _ in heard), f"{name}: {heard}"
        for answer in (_ask_spark(port) for _, port in heard):
            # Without authentication Spark reads the object in the request, and says what is wrong with it.
            assert b"StreamCorrupted" not in answer and b"readObject" not in answer, f"{name}: {answer!r}"
        assert heard, "the metrics page at least"
        assert password not in binary.log.read_text(errors="replace")
        with urllib.request.urlopen(binary.metrics, timeout=10) as page:
            assert password not in page.read().decode()
    with psycopg.connect(stack.addresses.database_url) as connection:
        shown = connection.execute("SELECT string_agg(t::text, ' ') FROM pgtrickle.settings() t").fetchone()
    assert shown is not None and password not in str(shown[0])


@pytest.mark.parametrize("program", [APPLIER, CDC], ids=lambda program: program.name)
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush@127.0.0.1:notaport/db",
        "postgresql://u:hush@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=u password=hush oops",
        "postgresql://u:hush%zz@127.0.0.1/db",
    ],
)
def test_a_wrong_address_is_reported_without_its_password(program: object, url: str, tmp_path: Path) -> None:
    assert program in (APPLIER, CDC)
    command = APPLIER.command("check") if program is APPLIER else CDC.command("status")
    environment = os.environ | {"PG_TRICKLE_DATABASE_URL": url, "PG_TRICKLE_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=90, check=False, cwd=tmp_path
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert "hush" not in said and "Traceback" not in said
    assert said.startswith("error: ")
