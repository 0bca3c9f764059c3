"""Calls of blocking actions, in threads. One cannot be stopped: past its time limit it is shown until it returns (D45).

The thread has copies of the jobs (`job_copy`), made when it is there: a job that waits for a thread holds no body.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, cast

from pyddmq.actions import BodyUnprocessable, Message, MessageUnreadable, Outgoing, RetryLater, Status
from upstream.calls.answers import Answer, checked_many
from upstream.calls.caller import BATCH_CALLS, BATCH_JOBS, ActionFigures, Caller
from upstream.calls.modes import answers_many
from upstream.calls.node_calls import NodeCalls
from upstream.calls.pool import CallQueue, Work
from upstream.calls.user_code import ActionMisbehaved, as_exception
from upstream.history import JobHistory
from upstream.job import ActionCall, UpstreamJob
from upstream.state import JobState

# What a blocking call gets of a job: a copy, since only the loop's thread may touch the job itself.


NO_THREAD_MS = 1_000
"""How long a message waits where the system has no more threads."""

_ELSEWHERE = "a blocking action works on a copy of the job; return a status or raise an error instead"


class JobCopy:
    """A `pyddmq.actions.Job` in a thread, or in another process: plain facts, which can be pickled."""

    __slots__ = ("_given", "attempts", "data", "group", "history", "message", "offset", "outgoing", "qid", "topic")

    def __init__(self, job: UpstreamJob) -> None:
        """Read what an action may ask for.

        Raises:
            MessageUnreadable, BodyUnprocessable: As `Job.message`.
        """
        self.group = job.group
        self.topic = job.topic
        self.qid = job.qid
        self.offset = job.offset
        self.message: Message = job.message
        self.data: Any = job.data
        self._given = self.data
        self.outgoing: Outgoing = job.outgoing
        self.attempts = job.attempts
        self.history: JobHistory | None = job.history

    @property
    def body(self) -> memoryview:
        """The body as it was published."""
        return memoryview(self.message.body)

    def give_back(self, job: UpstreamJob) -> None:
        """Put what the call made of the data into the job."""
        if self.data is not self._given:
            job.data = self.data
        job.outgoing = self.outgoing

    def resume(self) -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError(_ELSEWHERE)

    def answer(self, answer: Status | Exception) -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError(f"{_ELSEWHERE}; {answer!r} was ignored")

    def finish(self, success: bool, reason: str = "") -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError(f"{_ELSEWHERE}; finish({success}, {reason!r}) was ignored")

    def __repr__(self) -> str:
        return f"<copy of job {self.topic} {self.qid}:{self.offset}>"


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
        self._calls.pool.request(self._line, self)

    def abandon(self) -> None:
        """Begin nothing any more; what is out continues."""
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
                # It has ended, or is finished by a late success and waits for its release.
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
        if isinstance(result, RuntimeError):
            result = [RetryLater(NO_THREAD_MS, f"no thread could be started: {result}")] * len(copies)
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
            self._calls.pool.request(self._line, self)
