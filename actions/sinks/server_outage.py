"""Waiting for a server that is away: one wait for all messages of a sink (docs/sinks.md)."""

from __future__ import annotations

from collections.abc import Callable

from pyddmq.actions import Context, RetryLater
from upstream.views import SinkView

FIRST_MS = 200
LONGEST_MS = 15_000
ALONE_MS = 5_000
"""How long a message waits that alone lacks room or a permission."""

FORGET_SECONDS = 60.0
"""How long a wait is shown after its end while no message tries the server."""


class Away:
    """Whether a server is away, and how long to leave it alone; the wait doubles while it stays so.

    Args:
        server: How people know it.
        context: Clock, counts and log lines of the action.
    """

    def __init__(self, server: str, context: Callable[[], Context]) -> None:
        self._server = server
        self._context = context
        self._wait_ms = 0
        self._until = 0.0
        self._reason = ""
        self._since_ms = 0
        self._alone: tuple[int, float, str] | None = None
        """Since when messages wait alone, until when the last one does, and why."""

    def refusal(self) -> RetryLater | None:
        """Return what a message is answered without a try; None when it is time for one."""
        left_ms = round((self._until - self._context().monotonic()) * 1000)
        return RetryLater(left_ms, self._reason) if self._wait_ms and left_ms > 0 else None

    def failed(self, reason: str) -> RetryLater:
        """Note a failed try; returns what its messages are answered: again, without counting an attempt."""
        context = self._context()
        if not self._wait_ms:
            self._since_ms = context.wall_ms()
        self._wait_ms = min(LONGEST_MS, self._wait_ms * 2 or FIRST_MS)
        self._until = context.monotonic() + self._wait_ms / 1000
        self._reason = f"{self._server} does not respond: {reason}"
        context.count("server_away")
        context.note("sink_server_away", server=self._server, reason=reason, again_ms=self._wait_ms)
        return RetryLater(self._wait_ms, self._reason)

    def alone(self, reason: str) -> RetryLater:
        """Return what one message is answered that lacks room or a permission; other messages are still tried."""
        context = self._context()
        since_ms = context.wall_ms() if self._alone is None or self._has_passed(self._alone[1]) else self._alone[0]
        self._alone = since_ms, context.monotonic() + ALONE_MS / 1000, reason
        context.count("message_waits")
        return RetryLater(ALONE_MS, f"{self._server} refuses this message for now: {reason}")

    def view(self, action: str) -> SinkView | None:
        """Return what an operator is shown; None while nothing waits.

        Args:
            action: Name of the sink.
        """
        if self._wait_ms and not self._has_passed(self._until):
            reason = self._reason.partition(" does not respond: ")[2]
            return SinkView(action=action, server=self._server, since_ms=self._since_ms, reason=reason)
        if self._alone is not None and not self._has_passed(self._alone[1]):
            since_ms, _, reason = self._alone
            return SinkView(action=action, server=self._server, since_ms=since_ms, reason=reason, messages_alone=True)
        return None

    def _has_passed(self, at: float) -> bool:
        """Whether no message came for a while after its wait: the group is paused, or the message ended."""
        return self._context().monotonic() > at + FORGET_SECONDS

    def answered(self) -> None:
        """Note that it answered."""
        if self._wait_ms:
            self._wait_ms = 0
            self._context().count("server_back")
            self._context().note("sink_server_back", server=self._server)
