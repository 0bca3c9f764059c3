"""Order per key: jobs of one key run one at a time, in the order of their submission (R32-R34, D14).

Each active key has a chain of jobs linked by `successor`; the table holds the chain's tail, so submitting and
releasing cost one look-up each. Keys are compared by their whole text, not by a hash (W55), and the scope of a queue
is one subscription: a group on a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conf.json_path import compile_getter
from upstream.job import OrderKey, UpstreamJob
from upstream.state import JobEvent, JobState, move, next_state
from upstream.waiting import job_loops

_WAITING = next_state(JobState.READ, JobEvent.QUEUE_BEHIND)
_RELEASED = next_state(JobState.WAITING, JobEvent.RELEASE)
_FINISHED = JobState.FINISHED


class OrderQueue:
    """Chains of jobs per key.

    Attributes:
        tails: The last job of each key that is active.
        waiting: Jobs behind another one of their key, among them those that a late success finished in the meantime.
    """

    __slots__ = ("tails", "waiting")

    def __init__(self) -> None:
        self.tails: dict[OrderKey, UpstreamJob] = {}
        self.waiting = 0

    def __len__(self) -> int:
        return len(self.tails)

    def submit_many(self, jobs: Sequence[UpstreamJob], ready: Callable[[UpstreamJob], None]) -> int:
        """Queue jobs in order; those that may run at once become READY and go to `ready`.

        Returns:
            How many of them have no key (unordered).
        """
        unordered, behind = job_loops.submit(self.tails, jobs, ready)
        self.waiting += behind
        return unordered

    def release(self, job: UpstreamJob) -> UpstreamJob | None:
        """End the first job of a key: make its next one READY and return it, or None when the key is free now.

        The caller has seen that `job` has a key and comes first.
        """
        following = job.successor
        if following is not None and following.state is _WAITING:
            # The plain case, inline.
            self.waiting -= 1
            following.state = _RELEASED
            job.successor = None
            return following
        passed = 0
        while following is not None:
            passed += 1
            if following.state is not _FINISHED:
                break
            following = following.successor
        self.waiting -= passed
        job.successor = None
        if following is None:
            assert job.key is not None, "a job without a key holds nothing up"
            del self.tails[job.key]
            return None
        move(following, JobEvent.RELEASE)
        return following

    def clear(self) -> None:
        """Forget all chains, at the end of a generation."""
        self.tails.clear()
        self.waiting = 0


def compile_path(path: str) -> Callable[[Any], str | None]:
    """Make the getter of a JSON-path order key (`conf.json_path`).

    Args:
        path: Starts with `$` and names one value, as the configuration has checked.

    Returns:
        A function from parsed data to the key's text, or None where it is missing, null or composite: such a message
        is unordered (D14).
    """
    get_value = compile_getter(path)

    def get(data: Any) -> str | None:
        return key_text(get_value(data))

    return get


def key_text(value: Any) -> str | None:
    """Text by which JSON values are compared as keys: 1 and "1" are one key; None for null, objects and lists."""
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return None
