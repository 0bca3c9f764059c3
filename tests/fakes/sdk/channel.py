"""One connection of an imitated client: a call at a time, as DDMQ's libraries do it, with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proxy.wire.call import BINARY, COMPACT
from tests.fakes.codec import Reply, decode_reply, encode_call

Address = tuple[str, int]
Connect = Callable[[asyncio.Protocol, Address], Awaitable[bool]]
"""Opens a connection; False when nobody listens there."""


class Gone(Exception):
    """The connection ended, or no answer came in time: what became of the call is not known."""


class Channel(asyncio.Protocol):
    """A connection; `call` is not for two at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, compact: bool) -> None:
        self._loop = loop
        self._protocol = COMPACT if compact else BINARY
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._lost = False
        self._sequence = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand over the answer when it is whole."""
        self._data += data
        if len(self._data) < 4:
            return
        end = 4 + int.from_bytes(self._data[:4], "big")
        if len(self._data) < end:
            return
        payload = bytes(self._data[4:end])
        del self._data[:end]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call that waits."""
        self._lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Gone())

    async def call(
        self,
        method: str,
        arguments: Mapping[str, Any],
        *,
        seconds: float,
        stall: float = 0.0,
        odd: tuple[bytes, bytes] | None = None,
    ) -> Reply:
        """Call and wait for the answer.

        Args:
            method: Its name.
            arguments: By name.
            seconds: How long it may take.
            stall: Seconds for which nothing is read first.
            odd: Bytes of the call, and as many others that are sent in their place.

        Raises:
            Gone: No answer; the connection is of no more use.
        """
        self.send(method, arguments, odd=odd)
        answer = self._answer = self._loop.create_future()
        assert self._transport is not None
        if stall:
            self._transport.pause_reading()
            await asyncio.sleep(stall)
            if not self._lost:
                self._transport.resume_reading()
        timer = self._loop.call_later(seconds, self._expire, answer)
        try:
            return decode_reply(await answer)
        finally:
            timer.cancel()

    def send(self, method: str, arguments: Mapping[str, Any], *, odd: tuple[bytes, bytes] | None = None) -> None:
        """Write a call without waiting for its answer. Raises Gone."""
        if self._lost or self._transport is None or self._transport.is_closing():
            raise Gone
        self._sequence += 1
        frame = encode_call(self._protocol, method, self._sequence, arguments)
        self._transport.write(frame.replace(*odd) if odd else frame)

    def close(self) -> None:
        """Close after what was written has left."""
        if self._transport is not None and not self._lost:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None and not self._lost:
            self._transport.abort()

    @staticmethod
    def _expire(answer: asyncio.Future[bytes]) -> None:
        if not answer.done():
            answer.set_exception(Gone())


async def connect_sockets(protocol: asyncio.Protocol, address: Address) -> bool:
    """Connect over a real socket."""
    try:
        await asyncio.get_running_loop().create_connection(lambda: protocol, *address)
    except OSError:
        return False
    return True
