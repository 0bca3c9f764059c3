"""A producer of transactions: a message is stored half, the program's own transaction runs, its outcome decides."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from pyddmq.client.calls import run_now
from pyddmq.client.checks import CLOSE_SECONDS, ProducerGroupChecks, run_transaction
from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.producer import Producer
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import OutgoingMessage
from pyddmq.client.settings import TransactionSending
from pyddmq.client.transactions import LocalState, TransactionListener, TransactionMessage, TransactionResult

# Answers the node's checks in a thread: fetches them over a connection of its own, asks the listener, answers.


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
        try:
            return self._listener.check(message)
        except BaseException as error:
            if isinstance(error, Exception):
                raise
            # As SystemExit, with which the thread would end, silently, and with it all checks.
            raise RuntimeError(f"it raised {type(error).__name__}: {error}") from error


class CheckThread:
    """One background thread that answers the checks of a producer group.

    Args:
        connection: Its own; not shared.
        checks: What is asked and answered.
        listener: Knows what became of transactions.
        closing: Set when no more is to be fetched; all threads of a producer share it.
    """

    def __init__(
        self, connection: Connection, checks: ProducerGroupChecks, listener: AtOnce, closing: threading.Event
    ) -> None:
        self._connection = connection
        self._checks = checks
        self._listener = listener
        self._closing = closing
        self._thread = threading.Thread(target=self._run, name=f"checks-of-{checks.group}", daemon=True)

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def let_go(self) -> None:
        """Close the copy of the connection in a forked process."""
        self._connection.close()

    @property
    def is_current(self) -> bool:
        """Whether the caller is the listener."""
        return threading.current_thread() is self._thread

    def close(self, timeout_seconds: float) -> bool:
        """Fetch no more, send the answers given so far, and wait for the thread.

        Returns:
            Whether it has ended in time; a listener that is still at work is left alone.
        """
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


T = TypeVar("T")


class TransactionProducer(TransactionSending[TransactionListener], Producer):
    """Sends messages in transactions, as RocketMQ's TransactionMQProducer does; a context manager.

    `start`, or entering the context, begins to answer the node's checks in a background thread with a connection of
    its own. Every process of a producer group answers checks of the whole group, so that another one decides when this
    one has died. Threads may share it: `execute` runs in the thread that sends, `check` in the background.
    """

    def _begin_checks(
        self, listener: TransactionListener, checks: Sequence[tuple[Connection, ProducerGroupChecks]]
    ) -> None:
        self._asked = listener
        self._listener = AtOnce(listener)
        closing = threading.Event()
        self._threads = [CheckThread(connection, each, self._listener, closing) for connection, each in checks]
        self._checks_end = closing
        self._started = threading.Event()

    def _begin_in_child(self) -> None:
        """Let go the parent's fetches, too: a fork copies no threads. The next transaction, or `start`, begins anew."""
        super()._begin_in_child()
        if not self._closing.is_set():
            for each in self._threads:
                each.let_go()
            self._begin_checks(self._asked, self._make_checks())

    def start(self) -> None:
        """Begin to answer checks; harmless the second time."""
        if not self._started.is_set():
            self._started.set()
            for each in self._threads:
                each.start()

    def send_in_transaction(
        self, message: OutgoingMessage, arg: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and send its outcome to the node.

        Once the half is stored, only an interrupt (not an `Exception`) is raised. A failure of `execute` is the state
        UNKNOWN with its text as remark. If the decision could not be sent, the result's `problem` says why, and the
        node checks the transaction.

        Args:
            message: What is delivered on commit. A delay begins with the commit.
            arg: Handed to `execute`.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; if `sent` is true, the half may be stored: `check` is then called with an id that
                `execute` never saw.
            SendRefused: The node refused the half; `execute` has not run.
        """
        if self._closing.is_set():
            raise ClientMisuse("this producer is closed; create a new one")
        self.start()
        timeout_ms = timeout_ms or self._timeout_ms
        steps = run_transaction(
            self._idl, self.group, message, arg, timeout_ms, listener=self._listener, call=self._call_at_once
        )
        return run_now(steps)

    async def _call_at_once(self, request: NodeRequest[T]) -> T:
        return self._call(request)

    def close(self) -> None:
        """End the background threads, once the checks they are at have been answered, and close all connections.

        Raises:
            ClientMisuse: Called from `check`.
        """
        if any(each.is_current for each in self._threads):
            raise ClientMisuse("a listener cannot close its own producer; close it from another thread")
        self._checks_end.set()
        if self._started.is_set():
            for each in self._threads:
                each.close(CLOSE_SECONDS)
        super().close()

    def __enter__(self) -> Self:
        self.start()
        return self
