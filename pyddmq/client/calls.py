"""Calls and answers over one framed Thrift connection, without I/O: the core of the clients of both kinds.

Its methods are coroutines over a `NodeByteStream`. With one of an event loop they wait in that loop. Those of a stream
of blocking sockets never wait for a loop, so `run_now` runs such a call like any function.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from pyddmq.client.codec import reason_of
from pyddmq.client.errors import CallTimedOut, CannotConnect, ConnectionLost, NotThrift, Unreachable
from pyddmq.client.tls import Endpoint, Tls, endpoint, failure
from pyddmq.client.tokens import METHOD as TOKEN_METHOD
from pyddmq.client.tokens import SigningIn

T = TypeVar("T")


class NodeByteStream(Protocol):
    """The network: bytes to and from one node, and the clock of their deadlines."""

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as is known without asking the system."""

    @property
    def peer(self) -> object:
        """Address of the other end, as `socket.getpeername` has it."""

    def time(self) -> float:
        """Seconds on the clock of deadlines."""

    def has_ended(self) -> bool:
        """Whether the other side has closed it meanwhile; it is open."""

    async def connect(self, place: Endpoint, context: ssl.SSLContext | None, seconds: float) -> None:
        """Connect, by TLS where there is a context. Raises OSError."""

    def write(self, data: bytes, seconds: float) -> None:
        """Send bytes, all of them. Raises OSError."""

    async def read(self, size_of: Callable[[bytes], int], deadline: float) -> bytes:
        """Return the next frame without its head, which `size_of` reads. Raises OSError, TimeoutError among them."""

    def close(self) -> None:
        """Close; harmless the second time."""


class Frames(Protocol):
    """Makes frames of calls, and reads those of answers: by thriftpy2, or where it is not installed by other means."""

    def encode(self, method: str, arguments: Any, sequence: int, /) -> bytes:
        """Return the frame of a call. Raises ClientMisuse."""

    def size_of(self, head: bytes, /) -> int:
        """Return the length of an answer that begins so. Raises NotThrift."""

    def decode(self, method: str, sequence: int, reply: bytes, /) -> Any:
        """Return what a call is answered with. Raises NotThrift, and what the answer says."""


def run_now(call: Coroutine[Any, Any, T]) -> T:
    """Run a call over a stream of blocking sockets to its end, and return or raise what it does."""
    try:
        call.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise AssertionError("a call over blocking sockets has no event loop to wait for")


class Conversation:
    """Opened by `open`, and again after a failure: what fails closes it.

    Attributes:
        address: The node's `host:port`, or `tls://host:port`.
        stream: What it goes over.
        time: Seconds on the clock of deadlines.
    """

    def __init__(
        self,
        stream: NodeByteStream,
        address: str,
        codec: Frames,
        *,
        tls: Tls | None = None,
        signing_in: SigningIn | None = None,
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            stream, address: As the attributes.
            codec: Makes frames of calls, and reads those of answers.
            tls: For `tls://`; the system's CAs and no certificate of one's own when left out.
            signing_in: The first call of each connection; None: there is none.

        Raises:
            ClientMisuse: A malformed address.
        """
        self.address = address
        self.stream = stream
        self.time = stream.time
        self._endpoint = endpoint(address, tls)
        self._codec = codec
        self._signing_in = signing_in
        self._sequence = 0

    async def open(self, *, timeout_ms: int) -> None:
        """Connect, unless that is done; raises as `Connection.open`."""
        stream = self.stream
        if stream.is_open and not stream.has_ended():
            return
        stream.close()
        tls = self._endpoint.tls
        context = None if tls is None else tls.context()
        try:
            await stream.connect(self._endpoint, context, timeout_ms / 1000)
            peer = stream.peer
        except OSError as error:
            stream.close()
            raise failure(self.address, error) or CannotConnect(self.address, reason_of(error)) from error
        try:
            await self._sign_in(peer, context is not None, timeout_ms)
        except BaseException:
            stream.close()
            raise

    async def _sign_in(self, peer: object, is_encrypted: bool, timeout_ms: int) -> None:
        signing_in = self._signing_in
        token = None if signing_in is None else signing_in.token(peer, is_encrypted=is_encrypted)
        if signing_in is None or token is None:
            return
        codec = signing_in.codec()
        deadline = self.stream.time() + timeout_ms / 1000
        try:
            self._write(codec.encode(TOKEN_METHOD, {"token": token}, 1), TOKEN_METHOD, timeout_ms)
            await self.answer(TOKEN_METHOD, 1, deadline, timeout_ms, codec)
        except Exception as error:
            reported = signing_in.refused(error)
            if reported is error:
                raise
            raise reported from error

    def write(self, method: str, arguments: Any, timeout_ms: int) -> int:
        """Send a call and return its number; its answer comes when those before it were taken by `answer`.

        Raises:
            Unreachable: It may have gone out; the connection is closed.
            ClientMisuse: An argument does not fit its field; nothing was sent.
        """
        self._sequence = sequence = self._sequence % 0x7FFFFFFF + 1
        self._write(self._codec.encode(method, arguments, sequence), method, timeout_ms)
        return sequence

    async def answer(
        self, method: str, sequence: int, deadline: float, timeout_ms: int, codec: Frames | None = None
    ) -> Any:
        """Wait for the answer to the oldest call that has none.

        Args:
            method, sequence: Of that call.
            deadline: When it is abandoned, and the connection with it, by `time`.
            timeout_ms: How long that was, for people.
            codec: Of that call; None: as of all others.

        Returns:
            The value of field 0 of the result struct.

        Raises:
            ConnectionLost, CallTimedOut, NotThrift, CallRejected, Exception: As `Connection.call`.
        """
        stream, reads = self.stream, codec or self._codec
        try:
            reply = await stream.read(reads.size_of, deadline)
        except OSError as error:
            raise self._lost(error, method, timeout_ms) from error
        except BaseException:
            # An interrupt or a foreign answer leaves the stream in the middle of something.
            stream.close()
            raise
        try:
            return reads.decode(method, sequence, reply)
        except NotThrift:
            stream.close()
            raise

    async def call(self, method: str, arguments: Any, timeout_ms: int) -> Any:
        """Call one method over a connection with no other call under way; as `Connection.call`."""
        self._sequence = sequence = self._sequence % 0x7FFFFFFF + 1
        request = self._codec.encode(method, arguments, sequence)
        await self.open(timeout_ms=timeout_ms)
        deadline = self.stream.time() + timeout_ms / 1000
        self._write(request, method, timeout_ms)
        return await self.answer(method, sequence, deadline, timeout_ms)

    def close(self) -> None:
        """Close; `open` opens another one."""
        self.stream.close()

    def _write(self, request: bytes, method: str, timeout_ms: int) -> None:
        try:
            self.stream.write(request, timeout_ms / 1000)
        except OSError as error:
            raise self._lost(error, method, timeout_ms) from error
        except BaseException:
            # An interrupt leaves the stream in the middle of something.
            self.stream.close()
            raise

    def _lost(self, error: OSError, method: str, timeout_ms: int) -> Unreachable:
        """Close after a failure, and return what it means."""
        self.stream.close()
        if isinstance(error, TimeoutError):
            return CallTimedOut(self.address, method, timeout_ms)
        return failure(self.address, error) or ConnectionLost(self.address, method, reason_of(error))
