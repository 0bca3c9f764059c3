"""Calls of `async def` actions: a task each, cancelled and awaited at its time limit (D45)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from pyddmq.actions import Status, TimedOut
from upstream.calls.answers import Answer, checked_many
from upstream.calls.caller import BATCH_CALLS, BATCH_JOBS, ActionFigures, Caller
from upstream.calls.modes import answers_many
from upstream.calls.node_calls import NodeCalls
from upstream.calls.user_code import as_exception, described, is_own_cancellation
from upstream.job import ActionCall, UpstreamJob
from upstream.state import JobState

_RUNNING = JobState.RUNNING


class AwaitingCaller(Caller):
    """Makes the calls of one async action."""

    def __init__(self, action: Any, calls: NodeCalls, figures: ActionFigures, *, limit_ms: Callable[[], int]) -> None:
        super().__init__(action, calls, figures, limit_ms=limit_ms)
        self._many = answers_many(type(action))
        self._gathered: deque[UpstreamJob] = deque()

    def call(self, jobs: list[UpstreamJob]) -> None:
        """Begin a call for each, or for all together as far as the action takes batches."""
        if self._many:
            self._gathered.extend(jobs)
            self._call_many()
            return
        now, limit_ms = self._clock.monotonic(), self._limit_ms()
        create_task, begin, run = self._calls.tasks.create_task, self._begin, self._run
        for job in jobs:
            call = begin((job,), now, limit_ms)
            call.task = create_task(run(call, job))

    def abandon(self) -> None:
        """Cancel what is out."""
        self._gathered.clear()
        super().abandon()

    def _cancel(self, call: ActionCall) -> bool:
        assert call.task is not None, "it has one from its beginning on"
        call.task.cancel()
        if not call.begun:
            # What is cancelled before its first step never runs at all.
            self._end(call, [_cancelled(call)] * len(call.jobs))
        return True

    async def _run(self, call: ActionCall, job: UpstreamJob) -> None:
        answer: Answer
        call.begun = True
        try:
            answer = await cast("Any", self.action.act(job))
        except BaseException as error:
            answer = _raised(call, error)
        # An ended call keeps no task, which would keep it.
        call.task = None
        self._end(call, (answer,))

    async def _run_many(self, call: ActionCall, jobs: Sequence[UpstreamJob]) -> None:
        answers: Sequence[Answer]
        call.begun = True
        try:
            answers = checked_many(self.action, await cast("Any", self.action.act_many(jobs)), len(jobs))
        except BaseException as error:
            answers = [_raised(call, error)] * len(jobs)
        call.task = None
        self._end(call, answers)
        self._call_many()

    def _call_many(self) -> None:
        gathered = self._gathered
        while gathered and len(self.out) < BATCH_CALLS:
            jobs: list[UpstreamJob] = []
            while gathered and len(jobs) < BATCH_JOBS:
                job = gathered.popleft()
                if job.state is _RUNNING:
                    jobs.append(job)
                else:
                    # It has ended, or is finished by a late success and waits for its release.
                    self._leave(job, Status.CONTINUE)
            if jobs:
                call = self._begin(jobs, self._clock.monotonic(), self._limit_ms())
                call.task = self._calls.tasks.create_task(self._run_many(call, jobs))


def _cancelled(call: ActionCall) -> TimedOut:
    return TimedOut(f"no answer within {call.limit_ms} ms" if call.late else "the call was cancelled")


def _raised(call: ActionCall, error: BaseException) -> Exception:
    """Return the answer for what a call raised: at its time limit it is that, whatever it raised on the way out."""
    if is_own_cancellation(error):
        return _cancelled(call)
    if not call.late:
        return as_exception(error)
    return TimedOut(f"{_cancelled(call)}; when cancelled it raised {described(error)}")
