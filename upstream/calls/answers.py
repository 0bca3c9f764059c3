"""What an action answered, held against its protocol: one answer per job, whatever the action did."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import cast

from pyddmq.actions import Action, Job, Status
from upstream.calls.modes import answers_many
from upstream.calls.user_code import ActionMisbehaved, as_exception, shown

Answer = Status | Exception
"""What becomes of a job, by a status or by the reason for an exception that was raised."""


def run_action(action: Action, jobs: Sequence[Job]) -> Sequence[Answer]:
    """Run a plain action over a batch; the answer has one entry per job whatever the action does."""
    if not answers_many(type(action)):
        return [_answer_of(action, job) for job in jobs]
    try:
        return checked_many(action, action.act_many(jobs), len(jobs))
    except BaseException as error:
        return [as_exception(error)] * len(jobs)


def _answer_of(action: Action, job: Job) -> Answer:
    try:
        return cast("Status", action.act(job))
    except BaseException as error:
        return as_exception(error)


def checked_many(action: Action, answers: object, count: int) -> Sequence[Answer]:
    """Return what `act_many` answered in a call of its own, one answer per job."""
    if isinstance(answers, Sequence) and not isinstance(answers, str | bytes):
        answers = list(answers)
        if len(answers) == count:
            return answers
        return [_miscounted(action, len(answers), count)] * count
    return [ActionMisbehaved(f"{type(action).__name__} returned {shown(answers):.80}, not a list of statuses")] * count


def _miscounted(action: Action, found: int, wanted: int) -> ActionMisbehaved:
    return ActionMisbehaved(f"{type(action).__name__} returned {found} statuses for {wanted} jobs")


def no_answer(answer: object) -> Exception:
    """Return the error for what is neither a status nor an exception."""
    if inspect.iscoroutine(answer):
        answer.close()
        return ActionMisbehaved("an action that is not `async def` returned an awaitable: make act (or act_many) async")
    if isinstance(answer, BaseException):
        return as_exception(answer)
    return ActionMisbehaved(f"an action returned {shown(answer):.80}, not a Status")
