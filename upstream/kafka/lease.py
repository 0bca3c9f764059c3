"""Whose a partition is for certain: the lease (D54).

Kafka gives the partitions of a member that is silent for longer than its session to others, and that member hears of it
last: a process that was stopped and continues finds, in its client's buffers, records and an assignment that are not
its own any more. What Kafka does fence are commits: one of a member that is none is refused. So a node hands a message
out only while a commit that succeeded was *sent* less than a session time ago, less a margin; idle ones are made for
that. Who was stopped for longer than that finds its lease over, whatever its client says, and delivers nothing until
the next commit has succeeded or the loss of the partitions was reported. The same holds for a machine that was
suspended: the lease's clock counts that, which the one of the event loop does not.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.seams import Clock

MARGIN = 0.2
"""Part of the session time that is kept back: what may pass from the look at the clock to the client's receipt."""


class Lease:
    """The lease of one member of a group. `holds` may be read in any thread.

    Attributes:
        seconds: How long after a commit it holds.
    """

    def __init__(self, clock: Clock, session_seconds: float, *, regained: Callable[[], None]) -> None:
        """Set up; it does not hold yet.

        Args:
            clock: Says how long.
            session_seconds: Silence after which the cluster gives the member's partitions to others.
            regained: Called when it holds and did not before.
        """
        self._clock = clock
        self._regained = regained
        self.seconds = session_seconds * (1 - MARGIN)
        self._until = -1.0

    def now(self) -> float:
        """Return the present moment on the lease's clock."""
        return self._clock.since_boot()

    @property
    def renew_after(self) -> float:
        """Seconds after a commit was sent when the next one is due, if only for the lease."""
        return self.seconds / 4

    @property
    def holds(self) -> bool:
        """Whether what this member was given is its own, now."""
        return self.now() < self._until

    def extend(self, sent: float) -> None:
        """A commit that was sent at this moment (`now`) has succeeded."""
        held = self.holds
        self._until = max(self._until, sent + self.seconds)
        if self.holds and not held:
            self._regained()

    def shorten(self, session_seconds: float) -> None:
        """Count with a session of the cluster's that is shorter than the one that was known."""
        self.seconds = min(self.seconds, session_seconds * (1 - MARGIN))
        self._until = min(self._until, self.now() + self.seconds)

    def end(self) -> None:
        """It has ended: the member is none any more."""
        self._until = -1.0
