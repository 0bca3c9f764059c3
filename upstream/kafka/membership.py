"""When a node is a member of its group (D56), and that it becomes one again where its member has ended by a fault.

    out --somebody pulls--> in --nobody pulls or holds a message for 60 s--> leaving --left--> out
    in  --the member has ended by a fault--> out, for a while that doubles with each fault
    in  --its client reads nothing of a partition that has more--> leaving --left--> out, and in again
    out --for six hours--> in, until its partitions are committed again--> leaving

A node without pulls would hold partitions whose messages then wait there. So it joins while a client pulls, or
has messages of it, and leaves a minute after both ended; a group that pushes is always a member. After a fault it
waits a second, then two, at most a minute; a member that held for ten minutes has the next fault count as a first.

Kafka deletes the offsets of a group that had no member for `offsets.retention.minutes` (7 days). So a node that is out
joins every six hours, which commits where the group is, and leaves again.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from broker.runtime.later import Repeated
from broker.runtime.metrics import declare
from upstream.kafka.link import GroupMember, KafkaFailure
from upstream.kafka.partitions import Partitions

LEAVE_SECONDS = 60.0
"""After so long without a pull, and without a message that is out, a node leaves."""
LOOK_SECONDS = 0.25
KEEP_SECONDS = 6 * 3_600.0
"""After so long without membership a node joins to keep the group's offsets."""
KEEP_SECONDS_MAX = 60.0
"""It leaves after so long at the latest."""
AGAIN_SECONDS_MAX = 60.0
HELD_SECONDS = 600.0

RESTARTS = declare(
    "pyddmq_kafka_member_restarts_total",
    "Members of a Kafka group that ended by a fault and were replaced.",
    ("group",),
)


class Membership:
    """That of one node in one group.

    Attributes:
        is_in: Whether it is a member, or about to be.
    """

    def __init__(
        self, group: str, first: GroupMember, make: Callable[[], GroupMember], enters: Partitions, runtime: Runtime
    ) -> None:
        """Set up; nothing is joined before `begin`.

        Args:
            group: Its name.
            first: A member that has not joined; made at once, so that settings which are refused are known.
            make: Makes another; raises KafkaFailure, or what else keeps it from being made.
            enters: What joins.
            runtime: Time, loop, counts and log lines.
        """
        self._group = group
        self._next: GroupMember | None = first
        self._make = make
        self._enters = enters
        self._runtime = runtime
        self._wanted: Callable[[], bool] = lambda: True
        self._looks = Repeated(runtime.scheduler, LOOK_SECONDS, self.look)
        self.is_in = False
        self._leaving = False
        self._over = False
        self._entered_at = 0.0
        self._left_at = runtime.clock.monotonic()
        self._keeping = False
        self._not_before = 0.0
        self._faults = 0

    def begin(self, wanted: Callable[[], bool]) -> None:
        """Join when, and for as long as, it is wanted."""
        self._wanted = wanted
        self._looks.begin()
        self.look()

    def look(self) -> None:
        """Join or leave, if it is time."""
        if self._over or self._leaving:
            return
        if self.is_in:
            self._enters.look()
        now = self._runtime.clock.monotonic()
        wanted = self._wanted()
        if wanted:
            self._keeping = False
        if not self.is_in and now >= self._not_before and (wanted or now >= self._left_at + KEEP_SECONDS):
            self._keeping = not wanted
            self._enter(now)
        elif self.is_in and ((not wanted and not self._keeps(now)) or self._enters.needs_new_client()):
            self._leaving = True
            self._enters.leave(self._left)

    def end(self, done: Callable[[], None]) -> None:
        """Leave for good."""
        self._over = True
        self._looks.end()
        self._enters.leave(done)

    def broken(self, failure: KafkaFailure) -> None:
        """Note that the member has ended by a fault."""
        now = self._runtime.clock.monotonic()
        self._faults = 1 if now - self._entered_at > HELD_SECONDS else self._faults + 1
        self._wait(now, failure)
        self.is_in = False

    def _keeps(self, now: float) -> bool:
        """Whether it has joined for the group's offsets, which are not committed again yet."""
        return self._keeping and not self._enters.is_settled and now < self._entered_at + KEEP_SECONDS_MAX

    def _enter(self, now: float) -> None:
        try:
            member, self._next = self._next or self._make(), None
        except Exception as error:
            self._faults += 1
            self._wait(now, error)
            return
        if self._faults:
            self._runtime.metrics.counter(RESTARTS, self._group).add()
        self.is_in = True
        self._entered_at = now
        self._enters.enter(member)

    def _wait(self, now: float, error: Exception) -> None:
        seconds = min(2.0 ** (min(self._faults, 10) - 1), AGAIN_SECONDS_MAX)
        self._not_before = now + seconds
        self._runtime.limited_log.note(
            "kafka_member_broken", self._group, error=str(error), again_seconds=seconds, faults=self._faults
        )

    def _left(self) -> None:
        self._leaving = False
        self.is_in = self._keeping = False
        self._left_at = self._runtime.clock.monotonic()
        self.look()
