"""Who gets a thread next: a share for every subscription, so that a slow topic keeps no other waiting.

Of `calls_max` threads one half is shared out: every subscription with blocking actions has an equal part of it for
itself, one thread at least. The other half is taken by who needs it first. So a subscription whose calls all hang takes
half of the threads and its own part, and any other still has its part at once. With very many subscriptions their parts
are one thread each, and there may be more than `calls_max` threads.

Plain bookkeeping in the loop's thread; the threads are handed in (`upstream.calls.seams`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from upstream.calls.seams import Threads


class Work(NamedTuple):
    """One call: `run` in a thread, then `done` in the loop's thread with what that returned.

    Where there can be no thread, `done` is called at once with a RuntimeError.
    """

    run: Callable[[], object]
    done: Callable[[object], None]


class WorkSource(Protocol):
    """Who has calls to be made."""

    def next_work(self) -> Work | None:
        """Return the next call, or None when none is wanted any more."""


class CallQueue:
    """Those of one subscription, over all of its generations.

    Attributes:
        running: Threads that it has.
        users: Callers that may ask.
    """

    __slots__ = ("running", "users", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.users = 0
        self.waiting: deque[WorkSource] = deque()


class CallPool:
    """The threads of one node.

    Attributes:
        calls_max: As in the module; a reload may change it.
        running: Threads that run a call.
    """

    def __init__(self, threads: Threads, calls_max: int) -> None:
        self.calls_max = calls_max
        self.running = 0
        self._threads = threads
        self._lines: dict[tuple[str, str], CallQueue] = {}
        self._turns: deque[CallQueue] = deque()
        self._serving = False

    def line(self, group: str, topic: str) -> CallQueue:
        """Return the line of a subscription, for one more caller of it; `leave` is called with it once."""
        line = self._lines.setdefault((group, topic), CallQueue())
        line.users += 1
        return line

    def leave(self, line: CallQueue) -> None:
        """End a caller's use of a line: its share goes to the others when nothing of it runs any more."""
        line.users -= 1
        self._forget_unused()
        self._serve()

    def request(self, line: CallQueue, caller: WorkSource) -> None:
        """Have a caller's calls made as threads are free: its `next_work` is called until it has none."""
        if caller not in line.waiting:
            line.waiting.append(caller)
        if line not in self._turns:
            self._turns.append(line)
        self._serve()

    def share(self) -> int:
        """Return how many threads each line has for itself."""
        return max(1, self.calls_max // 2 // max(1, len(self._lines)))

    def may_run(self, line: CallQueue) -> bool:
        """Whether a line may have one thread more."""
        share = self.share()
        if line.running < share:
            return True
        common = self.calls_max - share * len(self._lines)
        return sum(max(0, each.running - share) for each in self._lines.values()) < common

    def _serve(self) -> None:
        """Start calls, of the lines in turn, as far as there are threads."""
        if self._serving:
            return
        self._serving = True
        try:
            refused = 0
            while refused < len(self._turns):
                line = self._turns.popleft()
                if not line.waiting:
                    continue
                self._turns.append(line)
                if not self.may_run(line):
                    refused += 1
                elif (work := self._next_of(line)) is not None:
                    refused = 0
                    self._start(line, work)
        finally:
            self._serving = False

    def _next_of(self, line: CallQueue) -> Work | None:
        while line.waiting:
            caller = line.waiting.popleft()
            work = caller.next_work()
            if work is not None:
                line.waiting.append(caller)
                return work
        return None

    def _start(self, line: CallQueue, work: Work) -> None:
        line.running += 1
        self.running += 1

        def done(result: object) -> None:
            line.running -= 1
            self.running -= 1
            work.done(result)
            self._forget_unused()
            self._serve()

        try:
            self._threads.run(work.run, done)
        except RuntimeError as error:
            # The system has no more threads for this process.
            done(error)

    def _forget_unused(self) -> None:
        for name in [name for name, line in self._lines.items() if not line.users and not line.running]:
            del self._lines[name]
