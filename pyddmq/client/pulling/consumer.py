"""A synchronous pull consumer: one connection, one thread, results on the next pull, as DDMQ's SDKs do it (S1-S4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from pyddmq.client.calls import run_now
from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientError, ClientMisuse
from pyddmq.client.pulling.pull_loop import Taking
from pyddmq.client.pulling.pulls import GroupStats, PulledMessage, Pulls, reason_of


class Consumer(Taking[PulledMessage], Pulls):
    """Pulls from one node for one group; a context manager.

    Results of `ack` and `fail` are sent with the next pull; `flush` and `close` submit what is left. After a failed
    call they are kept and sent again over a new connection (S2): the node counts a result once. Only one thread at a
    time may make calls; another one raises `ClientMisuse`. `ack`, `fail` and `stop` may be called from any thread.
    """

    _name = "consumer"
    _others = "give each thread its own consumer; only ack, fail and stop may be called from any thread"
    _connection: Connection
    _connection_class = Connection

    def connect(self) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: it is closed, or in use."""
        with self._in_use():
            self._connection.open(timeout_ms=self._timeout_ms)

    def pull(self, *, count_max: int | None = None, patience_ms: int = 0) -> list[PulledMessage]:
        """Report what is due and take one batch.

        Args:
            count_max: In the place of the consumer's batch_size.
            patience_ms: How long to retry after failures that may be temporary; 0 raises the first.

        Returns:
            Messages of one queue, oldest first; empty when none came within the linger.

        Raises:
            Unreachable: No answer; the results are kept for the next call.
            PullRefused: The node cannot serve the group; it has taken the results.
            CallRejected: The node failed on the call; the results are kept.
            ClientMisuse: The consumer is closed, or another thread is making a call.
        """
        return self._patiently(lambda: self._pull_once(count_max or self._batch_size), patience_ms)

    def _pull_once(self, count_max: int) -> list[PulledMessage]:
        with self._in_use():
            return run_now(self._pull_now(count_max))

    def flush(self) -> bool:
        """Submit what is noted now.

        Returns:
            False when the node used none of the results (W2): late, already finished, or never delivered.

        Raises:
            Unreachable: No answer; the results are kept.
            Refused: The node failed on the call; the results are kept unless it is a PullRefused.
        """
        with self._in_use():
            return run_now(self._submit())

    def stats(self, *, topic: str | None = None) -> list[GroupStats]:
        """Ask for the group's offsets, per topic.

        Args:
            topic: Only this topic; None for the consumer's own topic, or all topics when it has none.

        Raises:
            Unreachable: No answer.
            PullRefused: The node is starting.
        """
        with self._in_use():
            return run_now(self._fetch_stats(topic))

    def __iter__(self) -> Iterator[PulledMessage]:
        return self.messages()

    def messages(self, *, idle_ms: int | None = None) -> Iterator[PulledMessage]:
        """Deliver message after message, pulling as needed.

        Advancing to the next message acks the one before, unless `ack`, `fail` or `skip` was called for it. Leaving a
        `with` block with an exception fails the present message. Messages of the last batch that were not reached are
        not reported (S8): the node's timeout returns them. Calls that fail are tried again for `patience_ms`.

        Args:
            idle_ms: End after this long without a message; None for never (until `stop`).

        Raises:
            Unreachable: No answer for `patience_ms`.
            PullRefused: The node cannot serve the group, and waiting did not or will not change that.
        """

        def take() -> list[PulledMessage]:
            asked = time.monotonic()
            batch = self.pull(patience_ms=self._patience_ms)
            if not batch:
                # A node that answers empty at once (draining, or a DDMQ proxy with too many waiting) is not hammered.
                self._stopping.wait(max(0.0, asked + self._linger_ms / 1000 - time.monotonic()))
            return batch

        return self._one_by_one(take, self.ack, idle_ms=idle_ms, linger_ms=self._linger_ms)

    def run(
        self,
        handler: Callable[[PulledMessage], object],
        *,
        on_error: Callable[[PulledMessage, Exception], object] | None = None,
    ) -> None:
        """Call `handler` for each message until `stop`: a return acks, an `Exception` fails the message and continues.

        Args:
            handler: Does the work.
            on_error: Called with each failed message and its exception, which is not reported elsewhere. An exception
                of it ends the loop.

        Raises:
            ClientError: As `messages` does.
        """
        for message in self.messages():
            try:
                handler(message)
            except Exception as error:
                self.fail(message, reason_of(error))
                if on_error is not None:
                    on_error(message, error)

    def close(self) -> None:
        """Submit what is noted, in up to `submit_tries` tries, and close the connection (S4).

        Raises:
            ClientError: The last attempt failed too: those messages will be redelivered.
            ClientMisuse: Another thread is making a call; `stop` ends its loop.
        """
        self._stopping.set()
        if self._closed:
            return
        try:
            run_now(self._submit_rest(self._flush_now))
        except ClientMisuse:
            raise
        except BaseException:
            self._end()
            raise
        self._end()

    async def _flush_now(self) -> bool:
        return self.flush()

    def _end(self) -> None:
        self._closed = True
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        try:
            self.close()
        except ClientError as closing:
            self._note_unsent(error, closing)
