"""What an action answered, held against its protocol: one answer per job, whatever the action did."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import cast

from pyddmq.actions import Action, Job, Status

Answer = Status | Exception
"""What becomes of a job, by a status or by what stands for an exception that was raised."""


class ActionMisbehaved(Exception):
    """An action broke its protocol; counts as an error of the jobs concerned."""


def run_action(action: Action, jobs: Sequence[Job]) -> Sequence[Answer]:
    """Run a plain action over a batch; the answer has one entry per job whatever the action does."""
    try:
        answers = cast("Sequence[Answer]", action.act_many(jobs))
        if len(answers) == len(jobs):
            return answers
        wrong = _miscounted(action, len(answers), len(jobs))
    except Exception as error:
        return [error] * len(jobs)
    return [wrong] * len(jobs)


def checked_many(action: Action, answers: object, count: int) -> Sequence[Answer]:
    """Return what `act_many` answered in a call of its own, one answer per job."""
    if isinstance(answers, Sequence) and not isinstance(answers, str | bytes):
        if len(answers) == count:
            return answers
        return [_miscounted(action, len(answers), count)] * count
    return [ActionMisbehaved(f"{type(action).__name__} answered {_shown(answers)}, not a list of statuses")] * count


def _miscounted(action: Action, found: int, wanted: int) -> ActionMisbehaved:
    return ActionMisbehaved(f"{type(action).__name__} answered {found} statuses for {wanted} jobs")


def no_answer(answer: object) -> ActionMisbehaved:
    """Return the error for what is neither a status nor an exception."""
    if inspect.iscoroutine(answer):
        answer.close()
        return ActionMisbehaved("an action that is no `async def` answered an awaitable: make act (or act_many) async")
    return ActionMisbehaved(f"an action answered {_shown(answer)}, not a Status")


def _shown(answer: object) -> str:
    return repr(answer)[:80]
