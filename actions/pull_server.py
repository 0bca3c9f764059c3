"""PullServer: put the job into the group's pull buffer, from where pull clients take it (R37)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pyddmq.actions import Action, Job, Status
from upstream.job import UpstreamJob


class PullServerAction(Action):
    """Offer jobs to pulls. A job leaves the buffer by the client's answer, which finishes it."""

    may_be_last = True
    needs_data = False
    is_timed = False

    def act(self, job: Job) -> Status:
        return self.act_many([job])[0]

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status]:
        # All jobs of a pipeline belong to one subscription, which knows the buffer of its group.
        own = cast("Sequence[UpstreamJob]", jobs)
        own[0].subscription.offer(own)
        return [Status.ASYNCHRONIZED] * len(jobs)
