"""Blocking actions in processes of their own, which are killed at the time limit: the option `process: true` (D45).

Each call is made by a thread of the subscription's share, which hands it to a worker process (`actions.process_serve`)
and waits. A worker has the action, its options and plain facts of the jobs. What a call does to its job's data comes
back with the answer, and what it counts. A worker that is killed, or that ends by itself, is replaced with the next
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actions.client_factories import OutsideAction
from pyddmq.actions import Action, Job, Status, TimedOut
from upstream.calls.child_process import ChildProcess
from upstream.calls.modes import answers_many

PROCESSES_MAX = 4
"""Worker processes of one action in one subscription: each is an interpreter, of about 40 MB."""
START_SECONDS = 60.0
"""How long a worker may take to import and open its action."""
GRACE_MS = 5_000
"""Beyond the time limit, until a call that was to be killed is shown as stuck."""


class WorkerEnded(Exception):
    """A worker process ended in the middle of a call; counts as an error of the job."""


def place_of(action: type[Action]) -> str:
    """Return where another process finds an action, as `module:name`.

    Raises:
        TypeError: It cannot be found there.
    """
    found = getattr(action, "function", action)
    place = f"{found.__module__}:{found.__qualname__}"
    if "<" in place or place.startswith("__main__:"):
        raise TypeError(f"process: true needs an action that can be imported, and {place} cannot")
    return place


class ProcessAction(Action):
    """Stands for a blocking action, which it has in worker processes."""

    blocking = True
    calls_max = PROCESSES_MAX

    def __init__(self, action: type[Action], options: dict[str, Any]) -> None:
        """Set up; `open` starts the first worker.

        Args:
            action: The class.
            options: What its own options are made from.

        Raises:
            TypeError: Other processes cannot import it.
        """
        self._place = place_of(action)
        self._given = options
        self._idle: list[Worker] = []
        self._closed = False
        self.limit_ms: int | None = action.time_limit_ms
        if issubclass(action, OutsideAction):
            raise TypeError("process: true is not supported for this action: its connections belong to the node")
        for name in ("needs_data", "needs_json", "provides_json", "may_be_last", "changes_body"):
            setattr(self, name, getattr(action, name))

    @property
    def time_limit_ms(self) -> int:  # type: ignore[override]
        """When a call is shown as stuck: it should have been killed long before."""
        return self._limit_in_force() + GRACE_MS

    def _limit_in_force(self) -> int:
        return self.limit_ms or self.context.timeout_ms

    def open(self) -> None:
        """Start one worker, which opens the action: what that raises is raised here."""
        self._idle.append(self._start())

    def close(self) -> None:
        """Have the workers close the action and end."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()

    def act(self, job: Job) -> Status:
        """Have a worker do it.

        Raises:
            TimedOut: It was killed at the time limit.
            WorkerEnded: It ended.
            Exception: What the action raised.
        """
        answer = self._call([job])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _call(self, jobs: Sequence[Any]) -> list[Status | Exception]:
        worker = self._idle.pop() if self._idle else self._start()
        answers, results, events = worker.call(jobs, self._limit_in_force())
        if self._closed:
            worker.end()
        else:
            self._idle.append(worker)
        for job, (data, outgoing) in zip(jobs, results, strict=True):
            job.data, job.outgoing = data, outgoing
        for kind, event, facts in events:
            if kind == "count":
                self.context.count(event, facts)
            else:
                self.context.note(event, **facts)
        found: list[Status | Exception] = answers
        return found

    def _start(self) -> Worker:
        context = self.context
        return Worker(
            {
                "place": self._place,
                "name": self.name,
                "options": self._given,
                "group": context.group,
                "topic": context.topic,
                "timeout_ms": context.timeout_ms,
                "tps_max": context.tps_max,
            }
        )


class ProcessBatchAction(ProcessAction):
    """Likewise of an action that takes batches."""

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        """Have a worker do it; raises as `act`."""
        return self._call(jobs)


def in_processes(action: type[Action], options: dict[str, Any], limit_ms: int | None) -> ProcessAction:
    """Return the action that replaces one whose option `process` is true. Raises TypeError, as `ProcessAction`."""
    made = (ProcessBatchAction if answers_many(action) else ProcessAction)(action, options)
    made.limit_ms = limit_ms or made.limit_ms
    return made


class Worker:
    """One worker process; used by one thread at a time."""

    def __init__(self, setup: dict[str, Any]) -> None:
        """Start it and have it open its action.

        Raises:
            Exception: What importing or opening it raised.
            TimedOut: That took longer than START_SECONDS.
            WorkerEnded: It ended before.
        """
        # The node's own output may be read by a program: what a worker prints goes to the error output.
        self._process = ChildProcess("actions.process_serve", output=2)
        error = self._request(setup, START_SECONDS)
        if error is not None:
            self._process.kill()
            raise error

    def call(self, jobs: Sequence[Any], limit_ms: int) -> tuple[Any, Any, Any]:
        """Return answers, data and what was gathered of each job, and events; raises TimedOut and WorkerEnded."""
        found: tuple[Any, Any, Any] = self._request(list(jobs), limit_ms / 1000)
        return found

    def end(self) -> None:
        """Have it close its action and end, within START_SECONDS."""
        self._process.finish(START_SECONDS)

    def _request(self, what: Any, seconds: float) -> Any:
        try:
            return self._process.call(what, seconds)
        except TimeoutError:
            self._process.kill()
            raise TimedOut(f"no answer within {round(seconds * 1000)} ms; its process was killed") from None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.kill()
            raise WorkerEnded(f"the process ended with code {self._process.exit_code} during the call") from None
