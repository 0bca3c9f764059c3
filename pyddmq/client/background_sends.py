"""Sends of a synchronous producer that are not waited for one by one: a thread with an event loop carries them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from pyddmq.client.aio.async_producer import LoopSends
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.ordered_sends import Send
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import SendReceipt

_CLOSE_STEP_SECONDS = 0.05
_FAILED_MAX = 1000
"""Failures that are kept for `flush`: where there are more, it still has one to raise."""


class SendFuture(Future[SendReceipt]):
    """A receipt to come. Cannot be cancelled: the message may have gone out.

    Attributes:
        is_read: The program asks for its result, so that `Producer.flush` need not raise it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_read = False
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> SendReceipt:
        """As of any future: wait for the receipt, or raise what `Producer.send` raises."""
        self.is_read = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future: wait, and return what went wrong."""
        self.is_read = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[SendReceipt]], object]) -> None:
        """As of any future; `fn` is called in the background."""
        self.is_read = True
        super().add_done_callback(fn)


class SoonSends:
    """Runs `LoopSends` in a thread of its own.

    Args:
        make: Makes them.
        in_flight_max: Sends that have not ended, at most; who hands over more waits.
    """

    def __init__(self, make: Callable[[], LoopSends], *, in_flight_max: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._sends = make()
        self._room = threading.Semaphore(in_flight_max)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._under_way: set[SendFuture] = set()
        self._failed: list[SendFuture] = []
        self._thread = threading.Thread(target=self._run, name="sends-soon", daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is called by a send of this: it must not wait for one."""
        return threading.current_thread() is self._thread

    def submit(self, request: NodeRequest[SendReceipt]) -> SendFuture:
        """Hand a call over, behind those before it; waits for room. Raises ClientMisuse: it is closed."""
        # A callback of a future is called in the thread that makes room: there a wait would have no end.
        has_room = self._room.acquire(blocking=False)
        while not (has_room or self.is_own_thread):
            self._check_open()
            has_room = self._room.acquire(timeout=_CLOSE_STEP_SECONDS)
        future = SendFuture()

        def done(result: Any, attempts: int, error: BaseException | None) -> None:
            with self._lock:
                self._under_way.discard(future)
                if error is not None:
                    self._note_failure(future)
            if has_room:
                self._room.release()
            if error is None:
                future.set_result(request.made(result, attempts))
            else:
                future.set_exception(error)

        send = Send(request, done)
        with self._lock:
            # Two threads hand over in the order in which they come by this lock.
            self._check_open()
            self._under_way.add(future)
            self._loop.call_soon_threadsafe(self._take, send)
        return future

    def wait(self) -> None:
        """Wait until all that was handed over before has ended."""
        with self._lock:
            pending = tuple(self._under_way)
        wait(pending)

    def raise_failure(self) -> None:
        """Raise the first failure that the program has not asked for, and forget them all."""
        with self._lock:
            failed, self._failed = self._failed, []
        for future in failed:
            if not future.is_read and (error := future.exception()) is not None:
                raise error

    def _note_failure(self, future: SendFuture) -> None:
        if len(self._failed) >= _FAILED_MAX:
            self._failed = [each for each in self._failed if not each.is_read]
        if len(self._failed) < _FAILED_MAX:
            self._failed.append(future)

    def close(self) -> None:
        """Give up what is under way and end the thread."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        asyncio.run_coroutine_threadsafe(self._sends.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ClientMisuse("this producer is closed; create a new one")

    def _take(self, send: Send) -> None:
        try:
            self._sends.submit(send)
        except ClientMisuse as error:
            send.done(None, 0, error)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.closing(self._loop):
            self._loop.run_forever()
