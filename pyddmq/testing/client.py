"""A scripted peer for tests of programs that use the client: it answers, refuses, hangs up or stays silent.

It shows networks and nodes in states that a healthy node cannot be brought into. It decodes with thriftpy2's own
processor parts, not with the client's code.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pyddmq import idl

__all__ = ["HANG_UP", "SILENCE", "Script", "ScriptedNode", "application_exception"]

Script = Callable[[str, Any], Any]
"""Method name and decoded arguments to the value of the result, an Exception for the error reply, or one of below."""

HANG_UP = object()
"""Close the connection instead of answering."""
SILENCE = object()
"""Never answer."""


class ScriptedNode:
    """Listens on a free loopback port; each call of a client is handed to `script` and noted in `calls`.

    A script may return bytes, which are sent as they are.
    """

    def __init__(self, name: str, script: Script, *, protocol: str = "binary") -> None:
        module = idl.load(name)
        self._service: Any = module.ConsumerService if name == "consumer" else module.TransactionProducerService
        self._script = script
        self._compact = protocol == "compact"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.calls: list[tuple[str, Any]] = []
        self.connections = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads[0].start()

    def __enter__(self) -> ScriptedNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def hang_up(self) -> None:
        """Close every connection; the listener stays."""
        for each in self._sockets:
            _close(each)

    def stop(self) -> None:
        """Close everything and wait for the threads."""
        _close(self._listener)
        self.hang_up()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                while True:
                    (size,) = struct.unpack(">i", _exactly(connection, 4))
                    answer = self._answer(_exactly(connection, size))
                    if answer is HANG_UP:
                        return
                    if isinstance(answer, bytes):
                        connection.sendall(answer)
        except OSError:
            return

    def _answer(self, frame: bytes) -> object:
        protocol = self._protocol(frame)[1]
        method, _, sequence = protocol.read_message_begin()
        arguments = getattr(self._service, method + "_args")()
        protocol.read_struct(arguments)
        self.calls.append((method, arguments))
        answer = self._script(method, arguments)
        if answer is HANG_UP or answer is SILENCE or isinstance(answer, bytes):
            return answer
        buffer, protocol = self._protocol(b"")
        result = self._result(method, answer)
        protocol.write_message_begin(method, 3 if _is_application_exception(result) else 2, sequence)
        protocol.write_struct(result)
        protocol.write_message_end()
        body: bytes = buffer.getvalue()
        return struct.pack(">i", len(body)) + body

    def _result(self, method: str, answer: object) -> Any:
        if _is_application_exception(answer):
            return answer
        if isinstance(answer, Exception):
            return getattr(self._service, method + "_result")(error=answer)
        return getattr(self._service, method + "_result")(success=answer)

    def _protocol(self, content: bytes) -> tuple[Any, Any]:
        from thriftpy2 import protocol as protocols
        from thriftpy2 import transport as transports

        kinds: Any = (
            transports.TMemoryBuffer,
            protocols.TCompactProtocol if self._compact else protocols.TBinaryProtocol,
        )
        buffer = kinds[0](content)
        return buffer, kinds[1](buffer)


def application_exception(kind: int, text: str) -> Exception:
    """Build a TApplicationException reply."""
    from thriftpy2 import thrift

    build: Any = thrift.TApplicationException
    error: Exception = build(kind, text)
    return error


def _is_application_exception(answer: object) -> bool:
    from thriftpy2 import thrift

    return isinstance(answer, thrift.TApplicationException)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("end of stream")
        data += chunk
    return data


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
