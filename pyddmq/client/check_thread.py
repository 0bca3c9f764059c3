"""Answers the node's checks in a thread: fetches them over a connection of its own, asks the listener, answers."""

from __future__ import annotations

import threading
from typing import Any

from pyddmq.client.calls import run_now
from pyddmq.client.checks import ProducerGroupChecks
from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.transactions import LocalState, TransactionListener, TransactionMessage

_CLOSE_STEP_SECONDS = 0.05


class AtOnce:
    """A listener whose methods block, as one that is awaited: it never waits for a loop."""

    def __init__(self, listener: TransactionListener) -> None:
        self._listener = listener

    async def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Run a local transaction."""
        return self._listener.execute(message, arg)

    async def check(self, message: TransactionMessage) -> LocalState | None:
        """Say what became of one."""
        return self._listener.check(message)


class CheckThread:
    """One background thread that answers the checks of a producer group.

    Args:
        connection: Its own; nobody else uses it.
        checks: What is asked and answered.
        listener: Knows what became of transactions.
    """

    def __init__(self, connection: Connection, checks: ProducerGroupChecks, listener: AtOnce) -> None:
        self._connection = connection
        self._checks = checks
        self._listener = listener
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"checks-of-{checks.group}", daemon=True)

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> bool:
        """Fetch no more, tell what has been answered, and wait for the thread.

        Returns:
            Whether it has ended in time; a listener that is still at work is left alone.

        Raises:
            ClientMisuse: Called by the listener itself.
        """
        if threading.current_thread() is self._thread:
            raise ClientMisuse("a listener cannot close its own producer; close it from another thread")
        self._closing.set()
        for _ in range(max(1, round(timeout_seconds / _CLOSE_STEP_SECONDS))):
            if self._checks.is_fetching:
                # Again and again: it may just be about to connect.
                self._connection.interrupt()
            self._thread.join(_CLOSE_STEP_SECONDS)
            if not self._thread.is_alive():
                return True
        return False

    def _run(self) -> None:
        run_now(self._checks.run(self._connection.conversation, self._listener, self._pause, self._closing.is_set))

    async def _pause(self, seconds: float) -> None:
        self._closing.wait(seconds)
