"""The pull consumer of an event loop: results on the next pull, as `Consumer` has it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.errors import ClientError, ClientMisuse
from pyddmq.client.pulling.pulls import LINGER_MS_MIN, GroupStats, PulledMessage, Pulls, patiently


class AsyncConsumer(Pulls):
    """As `Consumer`, for asyncio: an asynchronous context manager and iterator, for one task at a time.

    Other tasks may call `ack`, `fail` and `stop`. A pull whose task is cancelled (by `asyncio.wait_for`, say)
    continues, and the next pull returns its messages: none is lost to the timeout of its group.
    """

    _connection: AsyncConnection
    _connection_class = AsyncConnection

    def _begin(self) -> None:
        self._stopping = asyncio.Event()
        self._is_calling = False
        self._pulling: asyncio.Task[list[PulledMessage]] | None = None

    async def connect(self) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: it is closed, or in use."""
        async with self._in_use():
            await self._connection.open(timeout_ms=self._timeout_ms)

    async def pull(self, *, count_max: int | None = None, patience_ms: int = 0) -> list[PulledMessage]:
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
            ClientMisuse: The consumer is closed, or another task is making a call.
        """
        return await patiently(
            lambda: self._pull_once(count_max or self._batch_size), patience_ms, self._is_stopped_within
        )

    async def flush(self) -> bool:
        """Submit what is noted now.

        Returns:
            False when the node used none of the results (W2): late, already finished, or never delivered.

        Raises:
            Unreachable: No answer; the results are kept.
            Refused: The node failed on the call; the results are kept unless it is a PullRefused.
        """
        async with self._in_use():
            return await self._submit()

    async def stats(self, *, topic: str | None = None) -> list[GroupStats]:
        """Ask for the group's offsets, per topic; see `Consumer.stats`.

        Raises:
            Unreachable: No answer.
            PullRefused: The node is starting.
        """
        async with self._in_use():
            return await self._fetch_stats(topic)

    def __aiter__(self) -> AsyncIterator[PulledMessage]:
        return self.messages()

    async def messages(self, *, idle_ms: int | None = None) -> AsyncIterator[PulledMessage]:
        """Deliver message after message, pulling as needed; see `Consumer.messages`.

        Args:
            idle_ms: End after this long without a message; None for never (until `stop`).

        Raises:
            Unreachable: No answer for `patience_ms`.
            PullRefused: The node cannot serve the group, and waiting did not or will not change that.
        """
        loop, idle_left_ms = asyncio.get_running_loop(), idle_ms
        while not self._stopping.is_set():
            asked = loop.time()
            batch = await self.pull(patience_ms=self._patience_ms)
            for message in batch:
                self._current = message
                yield message
                if self._current is message:
                    self.ack(message)
                if self._stopping.is_set():
                    return
            if batch:
                idle_left_ms = idle_ms
                continue
            if idle_left_ms is not None:
                idle_left_ms -= max(self._linger_ms, LINGER_MS_MIN)
                if idle_left_ms <= 0:
                    return
            # A node that answers empty at once is not hammered.
            await self._is_stopped_within(asked + self._linger_ms / 1000 - loop.time())

    def stop(self) -> None:
        """Let an iteration end after the present message."""
        self._stopping.set()

    async def close(self) -> None:
        """Submit what is noted, in up to `submit_tries` tries, and close the connection (S4).

        Raises:
            ClientError: The last attempt failed too: those messages will be redelivered.
            ClientMisuse: Another task is making a call; `stop` ends its loop.
        """
        self._stopping.set()
        if self._closed:
            return
        self._check_free()
        try:
            await self._give_up_pull()
            await self._submit_rest(self.flush)
        finally:
            self._closed = True
            await self._connection.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        try:
            await self.close()
        except ClientError as closing:
            self._note_unsent(error, closing)

    async def _pull_once(self, count_max: int) -> list[PulledMessage]:
        """Pull, or take what an abandoned pull brings."""
        self._check_free()
        self._is_calling = True
        pulling = self._pulling or asyncio.get_running_loop().create_task(self._pull_now(count_max))
        self._pulling = pulling
        try:
            return await asyncio.shield(pulling)
        finally:
            self._is_calling = False
            if pulling.done():
                self._pulling = None

    async def _give_up_pull(self) -> None:
        """End an abandoned pull; the node gives its messages to other clients."""
        pulling, self._pulling = self._pulling, None
        if pulling is not None:
            pulling.cancel()
            await asyncio.wait([pulling])
            if not pulling.cancelled():
                # It has ended, with or without an error that no caller waits for.
                pulling.exception()

    async def _is_stopped_within(self, seconds: float) -> bool:
        """Wait so long, or until the consumer is stopped; returns whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stopping.wait()
        return self._stopping.is_set()

    @contextlib.asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        """Keep other tasks from making a call meanwhile; an abandoned pull comes before this one."""
        self._check_free()
        self._is_calling = True
        try:
            if self._pulling is not None:
                await asyncio.wait([self._pulling])
            yield
        finally:
            self._is_calling = False

    def _check_free(self) -> None:
        """Raise ClientMisuse where the consumer is closed, or another task is making a call."""
        if self._closed:
            raise ClientMisuse("this consumer is closed; create a new one")
        if self._is_calling:
            raise ClientMisuse(
                "this consumer is making a call in another task; give each task its own consumer. Only ack, fail and "
                "stop may be called from any task"
            )
