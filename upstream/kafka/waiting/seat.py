"""A member of one group that is always there: another one takes the place of one that has ended."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from upstream.kafka.link import GroupMember, KafkaFailure, MemberListener, TopicSubscription
from upstream.kafka.silence import Silence

SESSION_SECONDS = 6.0
"""After so much silence of a member others get its partitions."""
_JOIN_SECONDS = 12.0
"""What a join may take besides the sessions that `Silence` waits for: others end what they write."""


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
        self._silence = Silence(runtime.clock, SESSION_SECONDS, _JOIN_SECONDS)
        self._is_in = False
        self.member: GroupMember | None = None

    def join(self) -> None:
        """Join by a new member."""
        try:
            member = self._make()
        except Exception as error:
            self._hears.broken(KafkaFailure("NO_CLIENT", str(error)))
            return
        self.member = member
        self.lost()
        member.join(self._hears, [TopicSubscription(self._topic)])

    def given(self) -> None:
        """The cluster has said what the member has, be it nothing."""
        self._is_in = True

    def lost(self) -> None:
        """The member has nothing until the cluster says what."""
        self._is_in = False
        self._silence.begin()

    def look(self) -> None:
        """Replace a member whose join the coordinator does not answer, although the cluster responds. Each second."""
        member = self.member
        if member is None or self._is_in:
            return
        if self._silence.is_over:
            text = "the group's coordinator has not responded, although the cluster responds, so the member is replaced"
            self._hears.broken(KafkaFailure("STANDS", text))
            member.abandon()
        else:
            member.topics([self._topic], lambda *_: self._silence.cluster_heard())

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
