"""What a consumer and a fetcher share: one call at a time, patience with failures, and message after message."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import ClassVar, Generic, TypeVar

from pyddmq.client.calls import run_now
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.pulling.pulls import LINGER_MS_MIN, patiently

M = TypeVar("M")


class Taking(Generic[M]):
    """Takes messages from a node, in one thread at a time; `stop` and what is noted of messages may come from any."""

    _name: ClassVar[str]
    """What it is called in errors."""
    _others: ClassVar[str]
    """What to do where several threads want one."""
    _current: M | None
    """The message in hand."""

    def _begin(self) -> None:
        """Set up."""
        self._stopping = threading.Event()
        self._calling = threading.Lock()
        self._closed = False

    def stop(self) -> None:
        """Let `messages` and `run` end after the present message; may be called from any thread."""
        self._stopping.set()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep other threads from making a call meanwhile. Raises ClientMisuse: one of them is, or it is closed."""
        if self._closed:
            raise ClientMisuse(f"this {self._name} is closed; create a new one")
        if not self._calling.acquire(blocking=False):
            raise ClientMisuse(f"this {self._name} is making a call in another thread: {self._others}")
        try:
            yield
        finally:
            self._calling.release()

    def _patiently(self, pull: Callable[[], list[M]], patience_ms: int) -> list[M]:
        async def pulling() -> list[M]:
            return pull()

        return run_now(patiently(pulling, patience_ms, self._is_stopped_within))

    async def _is_stopped_within(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def _one_by_one(
        self, take: Callable[[], list[M]], done: Callable[[M], object], *, idle_ms: int | None, linger_ms: int
    ) -> Iterator[M]:
        """Yield message after message; `done` is called for each that is in hand when the next one is wanted."""
        idle_left_ms = idle_ms
        while not self._stopping.is_set():
            batch = take()
            for message in batch:
                self._current = message
                yield message
                if self._current is message:
                    done(message)
                if self._stopping.is_set():
                    return
            if batch:
                idle_left_ms = idle_ms
            elif idle_left_ms is not None:
                idle_left_ms -= max(linger_ms, LINGER_MS_MIN)
                if idle_left_ms <= 0:
                    return
