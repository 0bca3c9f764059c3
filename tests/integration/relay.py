"""A network between a client and a node that loses answers when it is told to, and survives the node."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from tests.patient import PATIENCE_SECONDS


class Relay:
    """Hands bytes on in both directions; a client of it keeps its address while nodes come and go.

    Attributes:
        backend: Where the node is, `host:port`; None: nobody is there.
        lose: Asked when an answer has arrived: True closes both connections in the place of handing it on.
        address: Where clients connect.
    """

    def __init__(self, backend: str | None) -> None:
        self.backend = backend
        self.lose: Callable[[], bool] = lambda: False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._listener)
        for each in list(self._open):
            _close(each)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.backend is None:
                    raise ConnectionRefusedError
                host, port = self.backend.split(":")
                node = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
                node.settimeout(None)
            except OSError:
                _close(client)
                continue
            self._open += [client, node]
            for source, target, answers in ((client, node, False), (node, client, True)):
                thread = threading.Thread(target=self._pump, args=(source, target, answers), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if answers and self.lose():
                    break
                target.sendall(data)
        _close(source)
        _close(target)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
