"""Slots: the places of unanswered requests in their connection's order of replies (D18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.wire.call import COMPACT, Call

Lost = Callable[[], bytes | None]
"""Called when a reply is known never to have reached the client; may return what to answer in its place."""


class Leased:
    """A `Lost` of a reply whose messages may leave for as long as the group's lease holds: asked when it is written.

    A process that was stopped in the middle of a turn continues with the replies that it had made.
    """

    __slots__ = ("_give_back", "holds")

    def __init__(self, give_back: Lost, holds: Callable[[], bool]) -> None:
        self._give_back = give_back
        self.holds = holds

    def __call__(self) -> bytes | None:
        """Give the messages back."""
        return self._give_back()


SLOT_BYTES = 2 * 1024
"""What a request takes that waits for its answer, as a parked pull does: its object, the timer and its place."""


NO_CALL = Call(COMPACT, "", 0, 0, b"")


class ReplySlot:
    """The place of one unanswered request in its connection's order of replies.

    Attributes:
        connection: Whose; a `proxy.port.connection.Connection`, which is above this module.
        call: What a pass is to handle (`proxy.port.calls_pass`); without its frame once it waits. `NO_CALL` of a
            request that was handled when it came.
        heard: The connection's `heard` when the request was read.
    """

    __slots__ = (
        "call",
        "connection",
        "data",
        "heard",
        "kept_bytes",
        "lost",
        "number",
        "received_at",
        "start",
        "withdraw",
    )

    def __init__(self, connection: Any, call: Call = NO_CALL) -> None:
        self.connection = connection
        self.call = call
        self.heard = 0
        self.number = connection.requests
        """Which of the connection's replies is its: each request has one."""
        self.received_at = connection.received_at
        """Monotonic seconds when the request was received."""
        self.data: bytes | None = None
        self.kept_bytes = 0
        """Bytes of an answer that waits for those before it."""
        self.lost: Lost | None = None
        self.start: Callable[[], None] | None = None
        """Run once when every earlier request is answered and the peer reads: a pull takes messages only then."""
        self.withdraw: Callable[[], None] | None = None
        """Run when the client is gone or sends no more: a parked pull leaves its queue; with the end of file it
        answers empty."""

    def wait(self) -> None:
        """Keep the frame of the call no longer: its answer takes its time."""
        self.call = self.call.header()

    def answer(self, data: bytes, lost: Lost | None = None) -> None:
        """Give the reply, once.

        Args:
            data: The frame, length included.
            lost: Called if it is known that no byte of the reply reached the peer, or that no client is there to read
            it.
        """
        assert self.data is None, "a request is answered once"
        self.data = data
        self.lost = lost
        self.withdraw = None
        connection = self.connection
        if connection.closed:
            if lost is not None:
                lost()
            return
        connection.answered(self, data, lost)
