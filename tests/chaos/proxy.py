"""A TCP proxy that can drop its connections without a reset, like a machine that loses power."""

from __future__ import annotations

import selectors
import socket
import threading

TCP_REPAIR = 19
"""A Linux socket option: a socket closed in this mode sends nothing, so its peer believes it is still connected."""


class Proxy:
    """Forwards connections from `port` to a target on the loopback address, on one thread."""

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peer: dict[socket.socket, socket.socket] = {}
        self._silent: list[socket.socket] = []
        self._lock = threading.Lock()
        self._cut = False
        threading.Thread(target=self._run, name="proxy", daemon=True).start()

    def cut(self) -> None:
        """Drop every connection without notice to either side; accept new ones without a reply."""
        with self._lock:
            self._cut = True
            for one in list(self._peer):
                self._selector.unregister(one)
                one.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
                one.close()
            self._peer.clear()

    def heal(self) -> None:
        """Forward connections again."""
        with self._lock:
            self._cut = False
            for one in self._silent:
                one.close()
            self._silent.clear()

    def _run(self) -> None:
        while True:
            events = self._selector.select(0.2)
            with self._lock:
                for key, _ in events:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peer:
                        self._pass_on(key.fileobj)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        if self._cut:
            self._silent.append(near)
            return
        try:
            far = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peer[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, one: socket.socket) -> None:
        try:
            if data := one.recv(1 << 16):
                self._peer[one].sendall(data)
                return
        except OSError:
            pass
        for end in (one, self._peer[one]):
            self._selector.unregister(end)
            del self._peer[end]
            end.close()
