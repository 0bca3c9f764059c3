"""PullServer: put the job into the group's pull buffer, from where pull clients take it (R37).

Clients get the body as it was published (R29), or the one that the pipeline made of it, which DDMQ cannot: the bytes
that an action left in `job.data`, or its parsed data written as JSON (`actions.transform.exact_json`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from actions.tombstones import is_tombstone
from actions.transform.exact_json import encode
from conf.base import Model, Reload, setting
from pyddmq.actions import Action, Job, Status
from upstream.job import UpstreamJob


class PullServerOptions(Model):
    """Options of PullServer."""

    body: Literal["original", "transformed"] = setting(
        "original",
        "The body that clients receive: as published, or as the actions changed it (a parsed body is "
        "written as JSON again). The changed body stays in memory until the message is finished, and "
        "counts against `memoryMax`.",
        reload=Reload.GENERATION,
    )


class PullServerAction(Action):
    """Offer jobs to pulls. A job leaves the buffer by the client's answer, which finishes it."""

    may_be_last = True
    options_model = PullServerOptions
    options: PullServerOptions
    is_timed = False

    @property
    def needs_data(self) -> bool:  # type: ignore[override]
        """Whether a job that waited has to run the actions before again."""
        return self.options.body == "transformed"

    @property
    def keeps_bodies(self) -> bool:
        """Whether its jobs hold bodies while they are in the buffer and out."""
        return self.options.body == "transformed"

    @property
    def writes_numbers(self) -> bool:
        """Whether it writes parsed bodies."""
        return self.options.body == "transformed"

    def act(self, job: Job) -> Status:
        answer = self.act_many([job])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        # All jobs of a pipeline belong to one subscription, which knows the buffer of its group.
        own = cast("Sequence[UpstreamJob]", jobs)
        if self.options.body == "original":
            own[0].subscription.offer(own)
            return [Status.ASYNCHRONIZED] * len(jobs)
        answers: list[Status | Exception] = []
        made = []
        for job in own:
            try:
                data = b"" if is_tombstone(job) else job.data
                is_raw = isinstance(data, bytes | bytearray | memoryview)
                job.subscription.keep_body(job, bytes(data) if is_raw else encode(data))
                made.append(job)
                answers.append(Status.ASYNCHRONIZED)
            except Exception as error:
                answers.append(error)
        if made:
            own[0].subscription.offer(made)
        return answers
