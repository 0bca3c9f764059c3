"""What a blocking call gets of a job: a copy, since only the loop's thread may touch the job itself."""

from __future__ import annotations

from typing import Any, NoReturn

from pyddmq.actions import Message, Outgoing, Status
from upstream.history import JobHistory
from upstream.job import UpstreamJob

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
