"""Answers the node's checks in a thread: fetches them over a connection of its own, asks the listener, answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyddmq.client.checks import Checks, checked_message
from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientError, ClientMisuse, Unreachable
from pyddmq.client.transactions import TransactionListener

_CLOSE_STEP_SECONDS = 0.05


class CheckThread:
    """One background thread that answers the checks of a producer group.

    Args:
        connection: Its own; nobody else uses it.
        checks: What is asked and answered.
        listener: Knows what became of transactions.
        on_error: Told of each fetch that failed; called in the thread.
    """

    def __init__(
        self,
        connection: Connection,
        checks: Checks,
        listener: TransactionListener,
        *,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self._connection = connection
        self._checks = checks
        self._listener = listener
        self._on_error = on_error
        self._closing = threading.Event()
        self._fetching = False
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
            raise ClientMisuse("a listener cannot close its own producer: close it from another thread")
        self._closing.set()
        for _ in range(max(1, round(timeout_seconds / _CLOSE_STEP_SECONDS))):
            if self._fetching:
                # Again and again: it may just be about to connect.
                self._connection.interrupt()
            self._thread.join(_CLOSE_STEP_SECONDS)
            if not self._thread.is_alive():
                return True
        return False

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                checks = self._fetch()
            except ClientError as error:
                if self._closing.is_set():
                    break
                if self._on_error is not None:
                    self._on_error(error)
                self._closing.wait(self._checks.pause_seconds())
                continue
            for check in checks:
                self._checks.answered(check, self._answer(check))
                if self._closing.is_set():
                    # The node asks another process, or this one again, once the lease has passed.
                    break
        self._tell_rest()

    def _fetch(self) -> list[Any]:
        self._fetching = True
        try:
            timeout_ms = self._checks.fetch_timeout_ms
            return self._checks.fetched(
                self._connection.call("fetchChecks", self._checks.fetch(), timeout_ms=timeout_ms)
            )
        finally:
            self._fetching = False

    def _answer(self, check: Any) -> object:
        try:
            return self._listener.check(checked_message(check))
        except Exception as error:
            # Whatever the program's own code raises is an answer.
            return error

    def _tell_rest(self) -> None:
        """Tell the last answers one by one: a fetch might bring new checks that nobody would answer."""
        for answer in self._checks.answers:
            try:
                self._tell(answer)
            except ClientError as error:
                if self._on_error is not None:
                    self._on_error(error)
                break
        self._connection.close()

    def _tell(self, answer: Any) -> None:
        timeout_ms = self._checks.tell_timeout_ms
        try:
            self._connection.call("endTransaction", {"decision": answer}, timeout_ms=timeout_ms)
        except Unreachable:
            # The connection may have been the one that `close` interrupted.
            self._connection.call("endTransaction", {"decision": answer}, timeout_ms=timeout_ms)
