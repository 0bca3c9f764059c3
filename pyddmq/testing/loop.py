"""An asyncio event loop whose time is a number: when nothing is ready, it jumps to the next timer.

Two hours of waiting take as long as the callbacks in them. The order of everything follows from the calls made, so
one seed gives one run: `call_soon` keeps its promised order, and whatever should be shuffled is shuffled by the
simulated network and disk, from their own seeded randomness.

A `Process` marks everything that one simulated process schedules, through a context variable that callbacks inherit.
Killing it makes all its pending and later callbacks vanish, as SIGKILL does, while its peers live on in the same loop.
While it is still (SIGSTOP) what is due waits, and happens in its order when it continues.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple, cast

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated_process", default=None)


class TurnsExceeded(AssertionError):
    """The loop turned more often than the run allows: something schedules itself without end."""


class Process:
    """What belongs to one simulated process: while `alive`, and not `still`, its callbacks run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.still = False
        self._waiting: list[tuple[contextvars.Context, Callable[[], object]]] = []
        self._woken: list[Callable[[], None]] = []
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._left: list[asyncio.Task[Any]] = []
        self._killed: list[Callable[[], None]] = []

    def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call `function(*args)` as this process: what it schedules belongs to it.

        May be called from inside a callback of another process, and from inside its own.
        """
        return self.context.copy().run(function, *args)

    def kill(self) -> None:
        """Drop everything the process has scheduled or will schedule; no clean-up of its own runs."""
        self.alive = False
        # Collected, they would run their clean-up after all, in the middle of the next process.
        self._left = list(self._tasks)
        for task in self._left:
            # A killed process leaves its tasks pending on purpose.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for killed in self._killed:
            killed()

    def stand_still(self) -> None:
        """Run nothing of it until `go_on`."""
        self.still = True

    def go_on(self, loop: VirtualLoop) -> None:
        """Run overdue callbacks in the next turn, and then later ones."""
        self.still = False
        waiting, self._waiting = self._waiting, []
        for context, call in waiting:
            loop.call_soon(call, context=context)
        for woken in self._woken:
            woken()

    def wait(self, call: Callable[[], object]) -> None:
        """Call something, in the present context, when it continues."""
        self._waiting.append((contextvars.copy_context(), call))

    def when_woken(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the process continues: data that the kernel kept for it."""
        self._woken.append(callback)

    def when_killed(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the process dies: what the kernel closes for it."""
        self._killed.append(callback)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Remember a task of this process."""
        self._tasks.add(task)


class _JumpSelector:
    """Stands where the loop expects its selector; is asked once per turn how long to wait, and never waits."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Move the loop's time on by `timeout` (None: nothing is scheduled) or stop the run."""
        self._loop._between_turns(timeout)
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop in virtual time: with nothing ready it jumps to the next timer.

    It has no sockets, threads and subprocesses.

    Args:
        start: Value of `time()` at the beginning, in seconds.

    Attributes:
        turns: Turns so far, over all runs.
        errors: Contexts of unhandled exceptions of callbacks and tasks; a test asserts that it is empty.
    """

    def __init__(self, start: float = 1_000.0) -> None:
        super().__init__()
        self._selector = _JumpSelector(self)
        self._clock_resolution = 1e-9
        self._now = start
        self._until: Callable[[], bool] | None = None
        self._deadline: float | None = None
        self._turns_left = 0
        self._exceeded = False
        self.turns = 0
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        self.set_task_factory(_process_task)

    def __del__(self) -> None:
        # It holds no socket and no thread, so one that is simply dropped is no leak to warn of.
        pass

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def run(
        self,
        until: Callable[[], bool] | None = None,
        *,
        seconds: float | None = None,
        turns_max: int = 1_000_000,
    ) -> bool:
        """Run until `until()` returns True, `seconds` of virtual time have passed, or no callback and no timer is left.

        Args:
            until: Called before each turn; without it only the other two end the run.
            seconds: Virtual seconds.
            turns_max: Limit for a program that schedules itself forever.

        Returns:
            The value of `until()` at the end; True without `until`.

        Raises:
            TurnsExceeded: `turns_max` turns were made.
        """
        self._until = until
        self._deadline = None if seconds is None else self._now + seconds
        self._turns_left = turns_max
        self._exceeded = False
        self.run_forever()
        if self._exceeded:
            raise TurnsExceeded(f"{turns_max} turns at time {self._now}")
        return until is None or until()

    def run_task(self, coroutine: Coroutine[Any, Any, Result], *, seconds: float | None = None) -> Result:
        """Run a coroutine to its end and return its result; what it raises is raised here.

        Raises:
            TimeoutError: It did not end within `seconds` of virtual time, or waits for an event that never comes.
        """
        task = self.create_task(coroutine)
        self.run(task.done, seconds=seconds)
        if not task.done():
            task.cancel()
            self.run(task.done, seconds=0)
            raise TimeoutError(f"not done at {self._now}")
        return task.result()

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call back in the next turn, as asyncio does; not if the process that asks is killed before."""
        guarded = _guarded(callback, context)
        handle = super().call_soon(guarded, *args, context=context)
        if isinstance(guarded, _Guarded):
            guarded.handle = handle
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time in seconds; not if the process that asks is killed before."""
        guarded = _guarded(callback, context)
        handle = super().call_at(when, guarded, *args, context=context)
        if isinstance(guarded, _Guarded):
            guarded.handle = handle
        return handle

    def run_in_executor(
        self, executor: Any, func: Callable[[*Arguments], Result], *args: *Arguments
    ) -> asyncio.Future[Result]:
        """Refuse: a thread would make the run differ from its seed.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("a thread would make the run differ from its seed")

    def _between_turns(self, timeout: float | None) -> None:
        """Decide, once per turn, whether the run ends here and what time it is."""
        self.turns += 1
        self._turns_left -= 1
        if self._until is not None and self._until():
            self.stop()
        elif self._turns_left <= 0:
            self._exceeded = True
            self.stop()
        elif timeout is None:
            if self._deadline is not None:
                self._now = max(self._now, self._deadline)
            self.stop()
        elif timeout > 0:
            # The exact due time of the first timer, rather than now + timeout, which rounding could leave short.
            due: float = self._scheduled[0].when()  # type: ignore[attr-defined]
            if self._deadline is not None and due > self._deadline:
                self._now = max(self._now, self._deadline)
                self.stop()
            else:
                self._now = max(self._now, due)

    def pass_time(self, seconds: float) -> None:
        """Move the time without running anything, as a callback does that takes `seconds`."""
        self._now += seconds

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nothing to wake."""


class VirtualClock:
    """`broker.runtime.seams.Clock` over a virtual loop; the wall clock can be stepped either way.

    Args:
        loop: Gives the monotonic time.
        wall_ms: Wall clock now, in milliseconds since the Unix epoch.
    """

    def __init__(self, loop: VirtualLoop, wall_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._wall_base_ms = wall_ms - self._whole_ms()

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as last stepped."""
        return self._wall_base_ms + self._whole_ms()

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch, as last stepped."""
        return self._wall_base_ms * 1000 + self._whole_us()

    def monotonic(self) -> float:
        """Seconds: the loop's time."""
        return self._loop.time()

    def since_boot(self) -> float:
        """As `monotonic`: this machine is never suspended."""
        return self._loop.time()

    def sleep(self, seconds: float) -> None:
        """Advance the loop's time; callbacks due in that time run afterwards, as after a long callback."""
        self._loop.pass_time(seconds)

    def step(self, delta_ms: int) -> None:
        """Set the wall clock forward, or back with a negative `delta_ms`; the monotonic clock does not notice."""
        self._wall_base_ms += delta_ms

    def _whole_ms(self) -> int:
        # By way of microseconds, so that a time one rounding error short of a millisecond is that millisecond.
        return self._whole_us() // 1000

    def _whole_us(self) -> int:
        return round(self._loop.time() * 1_000_000)


def current_process() -> Process | None:
    """Return the process that the running callback belongs to, or None outside of any."""
    return _process.get()


class _Guarded:
    """A callback of a process: made to do nothing once that is dead, and to wait while it is still.

    Attributes:
        handle: Cancelled, it is not called, also where it waits.
    """

    __slots__ = ("_callback", "_process", "handle")

    def __init__(self, callback: Callable[..., object], process: Process) -> None:
        self._callback = callback
        self._process = process
        self.handle: asyncio.Handle | None = None

    def __call__(self, *args: Any) -> None:
        if not self._process.alive or (self.handle is not None and self.handle.cancelled()):
            return
        if self._process.still:
            self._process.wait(lambda: self(*args))
        else:
            self._callback(*args)


def _guarded(
    callback: Callable[[*Arguments], object], context: contextvars.Context | None
) -> Callable[[*Arguments], object]:
    """Return `callback`, guarded for the process that schedules it."""
    process = _process.get() if context is None else context.get(_process)
    return callback if process is None else cast("Callable[[*Arguments], object]", _Guarded(callback, process))


def _process_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    context: contextvars.Context | None = None,
) -> asyncio.Task[Any]:
    """Make a task and register it with its process."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    process = _process.get()
    if process is not None:
        process.adopt(task)
    return task
