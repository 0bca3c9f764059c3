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
        name: Group and topic.
        running: Threads that it has.
        users: Callers that may ask.
    """

    __slots__ = ("name", "running", "users", "waiting")

    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name
        self.running = 0
        self.users = 0
        self.waiting: deque[WorkSource] = deque()


class CallPool:
    """The threads of one node.

    What a call's end costs does not grow with the number of lines: of those that wait each has its own part in use.

    Attributes:
        calls_max: As in the module; a reload may change it.
        running: Threads that run a call.
    """

    def __init__(self, threads: Threads, calls_max: int) -> None:
        self.calls_max = calls_max
        self.running = 0
        self._threads = threads
        self._lines: dict[tuple[str, str], CallQueue] = {}
        self._turns: dict[CallQueue, None] = {}
        """Lines in which callers wait, the next one for a common thread first."""
        self._looks: deque[CallQueue] = deque()
        """Lines that may have a part of their own to use."""
        self._share = 1
        self._over = 0
        """Common threads in use: those that lines have above `_share`."""
        self._serving = False

    def line(self, group: str, topic: str) -> CallQueue:
        """Return the line of a subscription, for one more caller of it; `leave` is called with it once."""
        name = group, topic
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = CallQueue(name)
        line.users += 1
        return line

    def leave(self, line: CallQueue) -> None:
        """End a caller's use of a line: its share goes to the others when nothing of it runs any more."""
        line.users -= 1
        self._forget(line)
        self._serve()

    def request(self, line: CallQueue, caller: WorkSource) -> None:
        """Have a caller's calls made as threads are free: its `next_work` is called until it has none."""
        if caller not in line.waiting:
            line.waiting.append(caller)
        self._turns.setdefault(line)
        self._looks.append(line)
        self._serve()

    def share(self) -> int:
        """Return how many threads each line has for itself."""
        share = max(1, self.calls_max // 2 // max(1, len(self._lines)))
        if share != self._share:
            self._share = share
            self._over = sum(max(0, each.running - share) for each in self._lines.values())
            self._looks.extend(self._turns)
        return share

    def may_run(self, line: CallQueue) -> bool:
        """Whether a line may have one thread more."""
        return line.running < self.share() or self._has_common()

    def _has_common(self) -> bool:
        return self._over < self.calls_max - self.share() * len(self._lines)

    def _count(self, line: CallQueue, change: int) -> None:
        share = self.share()
        self._over -= max(0, line.running - share)
        line.running += change
        self.running += change
        self._over += max(0, line.running - share)

    def _serve(self) -> None:
        """Start calls as far as there are threads: of lines with a part of their own, then of the others in turn."""
        if self._serving:
            return
        self._serving = True
        try:
            while True:
                share = self.share()
                if self._looks:
                    line = self._looks.popleft()
                    if line not in self._turns or line.running >= share:
                        continue
                elif self._turns and self._has_common():
                    line = next(iter(self._turns))
                else:
                    return
                del self._turns[line]
                if (work := self._next_of(line)) is not None:
                    self._turns[line] = None
                    self._looks.append(line)
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
        self._count(line, 1)

        def done(result: object) -> None:
            self._count(line, -1)
            work.done(result)
            self._forget(line)
            self._looks.append(line)
            self._serve()

        try:
            self._threads.run(work.run, done)
        except RuntimeError as error:
            # The system has no more threads for this process.
            done(error)

    def _forget(self, line: CallQueue) -> None:
        if not (line.users or line.running) and self._lines.get(line.name) is line:
            del self._lines[line.name]
