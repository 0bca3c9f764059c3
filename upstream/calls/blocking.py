"""Calls of blocking actions, in threads. One cannot be stopped: past its time limit it is shown until it returns (D45).

The thread has copies of the jobs (`job_copy`), made when it is there: a job that waits for a thread holds no body.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from pyddmq.actions import BodyUnprocessable, MessageUnreadable, Status
from upstream.calls.answers import Answer, checked_many
from upstream.calls.caller import BATCH_CALLS, BATCH_JOBS, ActionCall, ActionFigures, Caller
from upstream.calls.job_copy import JobCopy
from upstream.calls.modes import answers_many
from upstream.calls.node_calls import NodeCalls
from upstream.calls.pool import CallQueue, Work
from upstream.calls.user_code import ActionMisbehaved, as_exception
from upstream.job import UpstreamJob
from upstream.state import JobState

_RUNNING = JobState.RUNNING


class BlockingCaller(Caller):
    """Makes the calls of one blocking action, in the threads of its subscription's line."""

    def __init__(
        self, action: Any, calls: NodeCalls, figures: ActionFigures, *, limit_ms: Callable[[], int], line: CallQueue
    ) -> None:
        super().__init__(action, calls, figures, limit_ms=limit_ms)
        self._line = line
        self._many = answers_many(type(action))
        self._calls_max = action.calls_max or (BATCH_CALLS if self._many else None)
        self._waiting: deque[UpstreamJob] = deque()

    @property
    def waiting(self) -> int:
        """Jobs that wait for a thread."""
        return len(self._waiting)

    def call(self, jobs: list[UpstreamJob]) -> None:
        """Have a call made for each, or for all together as far as the action takes batches."""
        self._waiting.extend(jobs)
        self._calls.pool.ask(self._line, self)

    def abandon(self) -> None:
        """Begin nothing any more; what is out goes on."""
        self._waiting.clear()
        super().abandon()

    def next_work(self) -> Work | None:
        """Return the next call; see `upstream.calls.pool`."""
        if self._calls_max is not None and len(self.out) >= self._calls_max:
            return None
        jobs: list[UpstreamJob] = []
        copies: list[JobCopy] = []
        while self._waiting and len(jobs) < (BATCH_JOBS if self._many else 1):
            job = self._waiting.popleft()
            if job.state is not _RUNNING:
                # It is over, or finished by a late success and waits to be let go.
                self._leave(job, Status.CONTINUE)
                continue
            try:
                copies.append(JobCopy(job))
            except (MessageUnreadable, BodyUnprocessable) as error:
                self._leave(job, error)
            else:
                jobs.append(job)
        if not jobs:
            return None
        call = self._begin(jobs, self._clock.monotonic(), self._limit_ms())
        return Work(partial(self._run, copies), partial(self._done, call, copies))

    def _run(self, copies: Sequence[JobCopy]) -> Sequence[Answer]:
        """Run the action; in the thread."""
        try:
            if self._many:
                return checked_many(self.action, self.action.act_many(copies), len(copies))
            return [cast("Status", self.action.act(copies[0]))]
        except BaseException as error:
            return [as_exception(error)] * len(copies)

    def _done(self, call: ActionCall, copies: Sequence[JobCopy], result: object) -> None:
        answers: list[Answer] = []
        for job, copy, answer in zip(call.jobs, copies, cast("Sequence[Answer]", result), strict=True):
            if answer is Status.ASYNCHRONIZED:
                answers.append(
                    ActionMisbehaved("a blocking action returned ASYNCHRONIZED, which only async actions may return")
                )
                continue
            if answer is Status.CONTINUE and job.state is _RUNNING:
                copy.give_back(job)
            answers.append(answer)
        self._end(call, answers)
        if self._waiting:
            self._calls.pool.ask(self._line, self)
