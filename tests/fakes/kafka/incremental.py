"""The coordinator of KIP-848 (`group.protocol: consumer`): it shares out itself, and tells each member by heartbeats.

A member is told first what it is to give up; once its heartbeats name that no more the next owner may have it. There is
no barrier: members that keep what they have notice nothing. A commit counts with the member's present epoch alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tests.fakes.kafka.groups import Member, SimGroup
from upstream.kafka.link import KafkaFailure, KafkaPartition


class Reported(NamedTuple):
    """What a heartbeat is answered: the member's epoch, and all that it is to have."""

    epoch: int
    places: list[KafkaPartition]


class IncrementalGroup(SimGroup):
    """One group."""

    epoch = 0

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.target: dict[KafkaPartition, Member] = {}
        self._epochs: dict[Member, int] = {}
        self._reported: dict[Member, set[KafkaPartition]] = {}

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether each has what it is to have."""
        return self.owners == self.target

    def changed(self) -> None:
        """Share out anew; members hear of it one by one."""
        self.epoch += 1
        self.target = self.share(self.owners)
        for member in self.members:
            member.nudge()

    def heartbeat(self, member: Member, owned: Collection[KafkaPartition], *, joins: bool) -> Reported | None:
        """Take a heartbeat; None: the member is none.

        Args:
            member: Whose.
            owned: What it has, with what it is about to give up.
            joins: It begins anew, and has nothing.
        """
        if joins and member not in self.members:
            self._enter(member)
            self._reported[member] = set()
            self.changed()
        if member not in self.members:
            return None
        self._hear(member)
        reported = self._reported[member]
        for place in sorted(reported - set(owned)):
            if self.target.get(place) is not member:
                reported.discard(place)
                self._own(place, None)
                if (heir := self.target.get(place)) is not None:
                    heir.nudge()
        mine = {place for place, owner in self.target.items() if owner is member}
        for place in sorted(mine - reported):
            if place not in self.owners:
                reported.add(place)
                self._own(place, member)
        if reported <= mine:
            # With nothing to give up any more it is where the group is.
            self._epochs[member] = self.epoch
        return Reported(self._epochs.get(member, 0), sorted(reported & mine))

    def fence(self, member: Member, generation: int) -> KafkaFailure | None:
        """By the member's epoch."""
        if generation != self._epochs.get(member, 0):
            return KafkaFailure("STALE_MEMBER_EPOCH", "the member's epoch is another one", fenced=True)
        return None

    def _gone(self, member: Member) -> None:
        self._epochs.pop(member, None)
        self._reported.pop(member, None)
