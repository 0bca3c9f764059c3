"""The classic coordinator with cooperative-sticky: members join at a barrier, and one of them shares out.

    stable --a member comes or goes--> preparing --all have joined: next generation--> completing --the leader--> stable

Each claims what it has when it joins; what goes to another is not given in the same round, its owner gives it up first
and joins again. A member that stands still holds the barrier up until its session is over. A commit counts with the
present generation, and while a leader is awaited none does. A broker reads on from a connection when it has answered: a
member's commits wait behind its join.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from tests.fakes.kafka.groups import Member, SimGroup, shared, unknown
from upstream.kafka.link import KafkaFailure, KafkaPartition


class Joined(NamedTuple):
    """What a join is answered: to the leader what all claim, to others nothing."""

    generation: int
    claims: dict[KafkaPartition, Member] | None


Assigned = dict[Member, list[KafkaPartition]]


class ClassicGroup(SimGroup):
    """One group."""

    generation = 0
    state = "stable"

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._joining: dict[Member, tuple[set[KafkaPartition], Callable[[Joined], None]]] = {}
        self._syncing: dict[Member, Callable[[list[KafkaPartition] | KafkaFailure], None]] = {}
        self._assigned: Assigned = {}
        self._leader: Member | None = None
        self._replaced: set[Member] = set()

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether no round is open."""
        return self.state == "stable" or not self.members

    def changed(self) -> None:
        """Begin a round."""
        if self.state != "preparing":
            self.state = "preparing"
            again = KafkaFailure("REBALANCE_IN_PROGRESS", "the group is shared out anew")
            syncing, self._syncing = self._syncing, {}
            for answer in syncing.values():
                answer(again)
            for member in self.members:
                member.nudge()
        self._go_on()

    def join(self, member: Member, claims: Collection[KafkaPartition], answer: Callable[[Joined], None]) -> None:
        """Take a join; answered once all have joined."""
        if member not in self.members:
            old = next(
                (each for each in self.members if each.instance_id and each.instance_id == member.instance_id), None
            )
            if old is not None and self.state == "stable":
                # Nothing is shared out anew.
                self.replace(old, member)
                self._assigned[member] = self._assigned.pop(old, [])
                self._replaced.add(old)
                answer(Joined(self.generation, None))
                return
            if old is not None:
                self._replaced.add(old)
                self.expel(old)
            self._enter(member)
            claims = ()
        self._hear(member)
        for place in [place for place, owner in self.owners.items() if owner is member and place not in claims]:
            self._own(place, None)
        self._joining[member] = (set(claims), answer)
        self.changed()

    def sync(
        self,
        member: Member,
        generation: int,
        assigned: Assigned | None,
        answer: Callable[[list[KafkaPartition] | KafkaFailure], None],
    ) -> None:
        """Take a sync, the leader's with what each is to have; answered once the leader's is there."""
        if member not in self.members:
            answer(unknown())
        elif self.state == "preparing" or generation != self.generation:
            answer(KafkaFailure("REBALANCE_IN_PROGRESS", "the group is shared out anew"))
        elif self.state == "stable":
            answer(self._assigned.get(member, []))
        else:
            self._hear(member)
            self._syncing[member] = answer
            if assigned is not None:
                self._settle(assigned)

    def heartbeat(self, member: Member, generation: int) -> KafkaFailure | None:
        """Take a heartbeat; answers that a round has begun, or that the member is none."""
        if member in self._replaced:
            return KafkaFailure("FENCED_INSTANCE_ID", f"another member is {member.instance_id}", fenced=True)
        if member not in self.members:
            return unknown()
        self._hear(member)
        if generation != self.generation:
            return KafkaFailure("ILLEGAL_GENERATION", "the generation is over", fenced=True)
        if self.state == "preparing" and member not in self._joining:
            return KafkaFailure("REBALANCE_IN_PROGRESS", "the group is shared out anew")
        return None

    def fence(self, member: Member, generation: int) -> KafkaFailure | None:
        """By the generation; while the leader is awaited not at all."""
        if generation != self.generation:
            return KafkaFailure("ILLEGAL_GENERATION", "the generation is over", fenced=True)
        if self.state == "completing":
            return KafkaFailure("REBALANCE_IN_PROGRESS", "the group is shared out anew")
        return None

    def assign(self, claims: dict[KafkaPartition, Member]) -> Assigned:
        """Share out, as the leader does: what another still claims is given to nobody in this round."""
        members = list(self.members)
        found: Assigned = {member: [] for member in members}
        for place, member in shared(members, self._home.places(), claims).items():
            if claims.get(place) in (None, member):
                found[member].append(place)
        return found

    def _go_on(self) -> None:
        if self.state != "preparing" or not self.members or any(each not in self._joining for each in self.members):
            return
        self.generation += 1
        self.state = "completing"
        claims = {
            place: member for member in self.members for place in self._joining[member][0] if member in self.members
        }
        self._leader = self.members[0]
        joining, self._joining = self._joining, {}
        for member, (_, answer) in joining.items():
            self._hear(member)
            answer(Joined(self.generation, claims if member is self._leader else None))
            self._read_on(member)

    def _settle(self, assigned: Assigned) -> None:
        self.state = "stable"
        self._assigned = assigned
        for member, places in assigned.items():
            for place in places:
                if member in self.members:
                    self._own(place, member)
        syncing, self._syncing = self._syncing, {}
        for member, answer in syncing.items():
            answer(assigned.get(member, []))

    def restarted(self) -> None:
        """Joins that were waiting went with their connections."""
        super().restarted()
        self._joining.clear()

    def _is_awaited(self, member: Member) -> bool:
        return member in self._joining

    def _gone(self, member: Member) -> None:
        self._joining.pop(member, None)
        self._syncing.pop(member, None)
