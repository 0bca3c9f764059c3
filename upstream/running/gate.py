"""The order gate of a JSON-path key: runs the actions before it in reading order and finds each job's key (D14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyddmq.actions import Status
from upstream.calls.user_code import ActionMisbehaved
from upstream.job import UpstreamJob
from upstream.running.calling import Calling
from upstream.running.pipeline import Pipeline
from upstream.running.running import carry_out
from upstream.state import JobState
from upstream.waiting.order import compile_path

if TYPE_CHECKING:
    from upstream.outcomes.outcomes import Outcomes


class OrderKeyGate:
    """The gate before the order queue when the key is inside the body.

    Attributes:
        closed: A job failed before its key was known and waits for its retry; reading stops until it has passed,
            because a later job might have the same key.
        backlog: That job and those read with it, in order, while the gate is closed.
    """

    def __init__(self, outcomes: Outcomes, pipeline: Pipeline, calling: Calling, path: str) -> None:
        self._outcomes = outcomes
        self._steps = calling.before
        self._keeps_data = pipeline.rebuilds
        self._get = compile_path(path)
        self.closed = False
        self.backlog: list[UpstreamJob] = []

    def pass_on(self, jobs: Sequence[UpstreamJob]) -> list[UpstreamJob]:
        """Run the actions and set the keys; returns the jobs that passed, in order."""
        passing = list(jobs)
        for each in self._steps:
            if passing:
                passing = self._answered(passing, each.run(passing), each.action.name)
        get, keeps = self._get, self._keeps_data
        for job in passing:
            job.key = get(job.data)
            if not keeps:
                job.drop_data()
        return passing

    def reopen(self) -> list[UpstreamJob]:
        """End the wait and return the backlog, to be passed on again."""
        self.closed = False
        jobs, self.backlog = self.backlog, []
        return [job for job in jobs if job.state is JobState.READ]

    def _answered(self, jobs: list[UpstreamJob], answers: Sequence[object], action: str) -> list[UpstreamJob]:
        onward = []
        for place, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
            if answer is Status.CONTINUE:
                onward.append(job)
                continue
            if answer is Status.ASYNCHRONIZED:
                misbehaved = ActionMisbehaved("an action before the order gate returned ASYNCHRONIZED")
                self._outcomes.error(job, misbehaved, action)
            else:
                carry_out(self._outcomes, job, answer, action)
            if job.state is JobState.READ:
                # It will be tried again. Nothing that was read after it may pass it, for its key is not known; jobs
                # held by an earlier pass of this batch come after these.
                self.closed = True
                for each in jobs[place:]:
                    each.drop_data()
                self.backlog[:0] = jobs[place:]
                break
        return onward
