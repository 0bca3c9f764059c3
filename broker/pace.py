"""How much a step takes: about a millisecond's worth while others have something to do, its full size else.

What waits is delivered in steps, and the loop serves everybody else between two of them. A large step costs less per
message; a small one has others wait less. So the size follows from what the last steps took, by the clock that is
handed in; where that stands still, as in a simulation, a step has its full size. A step takes as long as its sync does,
if that is more: on a slow disk others wait for syncs anyway, and many of them would be no help.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.seams import Clock

STEP_SECONDS = 0.001
"""What a step takes while others have something to do."""
FIRST = 32
LEAST = 16
"""Messages of the first step of which nothing is known, and of any other."""
ALONE_STEPS = 64
"""After so many steps without a request of others a step has its full size."""


class Pace:
    """The size of the steps of one kind of work.

    Attributes:
        most: Messages of a step at full size.
        requests: Tells a number that grows with what others ask of the process.

    Args:
        clock: Tells what a step took.
        most: As the attribute.
    """

    def __init__(self, clock: Clock, most: int) -> None:
        self.most = most
        self.requests: Callable[[], int] = _none
        self._clock = clock
        self._seen = 0
        self._alone = ALONE_STEPS
        self._each = STEP_SECONDS / FIRST
        self._began = self._ended = 0.0
        self._sync = 0.0

    def begin(self) -> int:
        """Begin a step; return how many messages it may take."""
        seen, self._seen = self._seen, self.requests()
        self._alone = self._alone + 1 if seen == self._seen else 0
        self._began = self._clock.monotonic()
        seconds = max(STEP_SECONDS, self._sync)
        if self._alone > ALONE_STEPS or self._each * self.most <= seconds:
            return self.most
        return max(LEAST, int(seconds / self._each))

    def end(self, count: int) -> None:
        """End it, with so many messages taken."""
        self._ended = self._clock.monotonic()
        if count >= LEAST:
            # Of fewer it is the fixed costs that count.
            spent = self._ended - self._began
            self._each = (self._each + spent / count) / 2 if spent else 0.0

    def settled(self) -> None:
        """Note that what the last step took is durable."""
        self._sync = (self._sync + self._clock.monotonic() - self._ended) / 2


def _none() -> int:
    return 0
