"""A member of one group that is always there: another one takes the place of one that has ended."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from upstream.kafka.link import GroupMember, KafkaFailure, MemberListener, TopicSubscription


class Seat:
    """That of one group.

    Args:
        make: Makes a member; raises where there can be none now.
        topic: What it reads.
        hears: Told what becomes of it; when one has ended, or none can be made, it says when the next one joins.
        runtime: Timers.

    Attributes:
        member: The present one; None: there is none.
    """

    def __init__(self, make: Callable[[], GroupMember], topic: str, hears: MemberListener, runtime: Runtime) -> None:
        self._make = make
        self._topic = topic
        self._hears = hears
        self._again = Later(runtime.scheduler, self.join)
        self.member: GroupMember | None = None

    def join(self) -> None:
        """Join by a new member."""
        try:
            member = self._make()
        except Exception as error:
            self._hears.broken(KafkaFailure("NO_CLIENT", str(error)))
            return
        self.member = member
        member.join(self._hears, [TopicSubscription(self._topic)])

    @property
    def assigned(self) -> GroupMember:
        """The member; of one that was assigned something."""
        assert self.member is not None, "a member was assigned it"
        return self.member

    def anew(self, seconds: float) -> None:
        """Be without a member, and join again after a while."""
        self.member = None
        self._again.after(seconds)

    def end(self, done: Callable[[], None]) -> None:
        """Leave for good."""
        self._again.cancel()
        member, self.member = self.member, None
        if member is None:
            done()
        else:
            member.leave(done)
