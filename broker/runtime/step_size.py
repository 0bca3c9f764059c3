"""How much a step takes: a fraction of a millisecond while others have something to do, its full size else.

What waits is delivered in steps, and the loop serves others between two of them. A large step costs less per
message; a small one has others wait less. So the size follows from what the last steps took, by the clock that is
handed in; where that is still, as in a simulation, a step has its full size. The disk works meanwhile: up to
STEPS_MAX steps are taken before the first of them is durable, so that a slow one is not drawn out by small syncs.
"""

from __future__ import annotations

from broker.runtime.bundle import Runtime

STEPS_MAX = 8
"""Steps of one kind of work that are not durable at a time."""
STEP_SECONDS = 0.0002
"""What a step takes while others have something to do."""
FIRST = 32
LEAST = 32
"""Messages of the first step of which nothing is known, and of any other."""
ALONE_STEPS = 256
"""After so many steps without a request of others a step has its full size."""


class StepSize:
    """The size of the steps of one kind of work.

    Attributes:
        most: Messages of a step at full size.

    Args:
        runtime: Its clock measures what a step took, its `requests` whether others ask something.
        most: As the attribute.
    """

    def __init__(self, runtime: Runtime, most: int) -> None:
        self.most = most
        self._requests = runtime.requests
        self._clock = runtime.clock
        self._seen = 0
        self._alone = ALONE_STEPS
        self._each = STEP_SECONDS / FIRST
        self._began = 0.0

    def begin(self) -> int:
        """Begin a step; return how many messages it may take."""
        seen, self._seen = self._seen, self._requests()
        self._alone = self._alone + 1 if seen == self._seen else 0
        self._began = self._clock.monotonic()
        if self._alone > ALONE_STEPS or self._each * self.most <= STEP_SECONDS:
            return self.most
        return max(LEAST, int(STEP_SECONDS / self._each))

    def end(self, count: int) -> None:
        """End it, with so many messages taken."""
        if count >= LEAST:
            # Of fewer it is the fixed costs that count.
            spent = self._clock.monotonic() - self._began
            self._each = (self._each + spent / count) / 2 if spent else 0.0
