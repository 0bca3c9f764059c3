"""Bodies that a pipeline made, for the pull clients of a group that asks for them (`PullServer: {body: transformed}`).

A buffered job holds no body (D15), for the log has it. One that was made is nowhere else, so it is kept with its
job until the job ends: a delivery that comes again has it without running the actions again. After a restart or a
reload the message is read and its actions run again, so nothing of this is stored.

What is kept is counted: against the node's memory, and against a share of its ceiling for each subscription. At that
share nothing more is admitted until some of it has gone.

The account follows the life of the objects. A job ends in a dozen ways, one of them a loop in C over acknowledged
offsets, and none of them has to know of its body: when the job goes, `MadeBody.__del__` says so. That may be in any
thread, where the collector of cycles runs, so it only appends to a deque, and the loop's thread does the sums.
"""

from __future__ import annotations

from collections import deque

from upstream.budget import Budget
from upstream.job import Slices, UpstreamJob
from upstream.message_holder import BODY_BYTES, MadeBody

SHARES = 16
"""Of the memory ceiling one subscription may have one for its bodies."""


class MadeBodies:
    """The bodies of one subscription's jobs.

    Attributes:
        bytes: What they take, by the last count.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._freed: deque[int] = deque()
        budget.settlers.append(self.settle)
        self.bytes = 0

    def keep(self, job: UpstreamJob, body: bytes) -> None:
        """Keep the body of a job; one that it had is forgotten."""
        job.made = MadeBody(body, self._freed)
        size = len(body) + BODY_BYTES
        self.bytes += size
        self._budget.add(size)

    def settle(self) -> None:
        """Take off what has gone since."""
        freed = self._freed
        while freed:
            size = freed.popleft()
            self.bytes -= size
            self._budget.used -= size

    @property
    def has_room(self) -> bool:
        """Whether another job may be admitted."""
        if self.bytes * SHARES < self._budget.limit:
            return True
        self.settle()
        return self.bytes * SHARES < self._budget.limit

    def close(self) -> None:
        """Take everything off: the subscription has ended, and its jobs with it."""
        self.settle()
        self._budget.used -= self.bytes
        self.bytes = 0
        self._budget.settlers.remove(self.settle)
        self._freed = deque()


def with_body(slices: Slices, body: bytes) -> Slices:
    """Return slices of a message with another body."""
    view, _, _, block_at, end = slices
    size = len(body)
    return memoryview(body + view[block_at:end]), 0, size, size, size + end - block_at
