"""Jobs on their way through the actions behind the order gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyddmq.actions import Status
from upstream.calls.answers import no_answer
from upstream.job import UpstreamJob
from upstream.running.calling import Calling
from upstream.running.pipeline import Pipeline
from upstream.state import JobEvent, JobState, next_state

if TYPE_CHECKING:
    from upstream.outcomes.outcomes import Outcomes

_RUNNING = next_state(JobState.READY, JobEvent.ADMIT)
_HELD = JobState.HELD
_CONTINUE = Status.CONTINUE
_ASYNCHRONIZED = Status.ASYNCHRONIZED


class Running:
    """Runs the jobs of one subscription."""

    def __init__(self, pipeline: Pipeline, calling: Calling, outcomes: Outcomes) -> None:
        self._pipeline = pipeline
        self._before, self._after = calling.before, calling.after
        self._outcomes = outcomes

    def run(self, jobs: list[UpstreamJob]) -> None:
        """Run RUNNING jobs through the actions behind the gate, rebuilding their data where it was dropped (D15)."""
        if self._pipeline.rebuilds:
            bare = [job for job in jobs if job.step < 0]
            for each in self._before if bare else ():
                bare = self._answered(bare, each.run(bare), each.action.name)
            jobs = [job for job in jobs if job.state is _RUNNING]
        self.run_from(0, jobs)

    def run_from(self, step: int, jobs: list[UpstreamJob]) -> None:
        """Run them through the actions from one behind the gate on; those that pass the last have succeeded."""
        steps = self._after
        many = len(steps) > 1
        while jobs and step < len(steps):
            for job in jobs if many else ():
                job.step = step
            each = steps[step]
            if each.caller is not None:
                each.caller.call(jobs)
                return
            answers = each.run(jobs)
            if answers.count(_ASYNCHRONIZED) == len(jobs):
                return
            jobs = self._answered(jobs, answers, each.action.name)
            step += 1
        for job in jobs:
            # R15: past the last action a job has succeeded.
            self._outcomes.succeed(job)

    def ended(self, step: int, jobs: list[UpstreamJob], answers: list[Status | Exception]) -> None:
        """Carry out what calls of one action decided."""
        self.run_from(step + 1, self._answered(jobs, answers, self._after[step].action.name))

    def is_last(self, step: int) -> bool:
        """Whether nothing comes behind an action."""
        return step == len(self._after) - 1

    def answered(self, job: UpstreamJob, answer: Status | Exception) -> None:
        """Carry out what an action decided of a job that it kept (`is_in_action`), by an answer but ASYNCHRONIZED."""
        # A single action leaves no step, and after a wait it is -1.
        step = max(job.step, 0)
        if onward := self._answered([job], [answer], self._after[step].action.name):
            job.step = step + 1
            self.run_from(step + 1, onward)

    def _answered(
        self, jobs: Sequence[UpstreamJob], answers: Sequence[Status | Exception], action: str
    ) -> list[UpstreamJob]:
        """Carry out what an action decided (R16); returns the jobs that continue."""
        onward = []
        for job, answer in zip(jobs, answers, strict=True):
            if job.state is not _RUNNING:
                # The action completed it itself, or a late success has finished it and its key waited for the action.
                if job.state is _HELD and job.delivery is None and answer is not _ASYNCHRONIZED:
                    self._outcomes.let_go(job)
                continue
            if answer is _CONTINUE:
                onward.append(job)
            elif answer is not _ASYNCHRONIZED:
                carry_out(self._outcomes, job, answer, action)
        return onward


def carry_out(outcomes: Outcomes, job: UpstreamJob, answer: object, action: str) -> None:
    """Do what an answer of the action of this name says that neither passes a job on nor keeps it (R16)."""
    if answer is Status.FINISH:
        outcomes.succeed(job)
    elif answer is Status.FAIL:
        outcomes.fail(job, "an action answered FAIL", action)
    elif isinstance(answer, Exception):
        outcomes.error(job, answer, action)
    else:
        outcomes.error(job, no_answer(answer), action)


def is_in_action(job: UpstreamJob) -> bool:
    """Whether an action has a job, also one that a late success has finished meanwhile."""
    return job.state is _RUNNING or (job.state is _HELD and job.delivery is None)
