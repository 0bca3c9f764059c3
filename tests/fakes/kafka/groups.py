"""What both coordinators of a Kafka in memory share: members with sessions, owners, what is committed, a fair share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from upstream.kafka.link import Commit, KafkaFailure, KafkaPartition

LOOKS = 8
"""So many times within a session it is looked who is silent."""


class Member(Protocol):
    """A member, as the coordinator sees it."""

    group_name: str
    instance_id: str

    def reads(self, topic: str) -> bool:
        """Whether it subscribes a topic."""

    def nudge(self) -> None:
        """There is news: it is told at its next heartbeat, which this may bring forward."""


class Home(Protocol):
    """The cluster, as its groups see it."""

    session_seconds: float
    offsets_seconds: float | None
    metadata_max: int

    @property
    def clock(self) -> Any:
        """Its clock."""

    def after(self, seconds: float, call: Any, *arguments: Any) -> None:
        """Call later, in the cluster's own context."""

    def found(self, place: KafkaPartition) -> object | None:
        """Return a partition, if it is there."""

    def places(self) -> Iterable[KafkaPartition]:
        """All partitions."""

    def owned(self, group: str, place: KafkaPartition, member: Member | None) -> None:
        """Note that a partition has another owner."""

    def noted(self, group: str, commit: Commit) -> None:
        """Note a commit."""

    def refused(self, group: str, member: Member, failure: KafkaFailure) -> None:
        """Note a commit that was refused."""

    def held(self, group: str, member: Member, holds: bool, /) -> None:
        """Note that commits of a member wait behind its join, or do not any more."""


class SimGroup:
    """What a coordinator has of one group.

    Attributes:
        members: In the order in which they joined.
        owners: Whose a partition is, until it was given up or its owner is no member any more.
        committed: Offsets with their texts.
        leader_epochs: Those that were committed with them.
    """

    is_settled = True
    """Whether nothing is shared out just now."""

    def __init__(self, home: Home, name: str) -> None:
        self.name = name
        self.members: list[Member] = []
        self.owners: dict[KafkaPartition, Member] = {}
        self.committed: dict[KafkaPartition, tuple[int, str]] = {}
        self.leader_epochs: dict[KafkaPartition, int] = {}
        self._home = home
        self._heard: dict[Member, float] = {}
        self._behind: dict[Member, list[Callable[[], None]]] = {}
        self._entered = 0

    def changed(self) -> None:
        """Share out anew: partitions, members or what they read have changed."""
        raise NotImplementedError

    def fence(self, member: Member, generation: int) -> KafkaFailure | None:
        """Return why a commit of a member is refused."""
        raise NotImplementedError

    def expel(self, member: Member) -> None:
        """Its session is over, or it left: its partitions are free."""
        if member in self.members:
            self.members.remove(member)
            self._heard.pop(member, None)
            self._gone(member)
            self._read_on(member)
            for place in [place for place, owner in self.owners.items() if owner is member]:
                self._own(place, None)
            self.changed()
            self._watch_offsets()

    def replace(self, old: Member, new: Member) -> None:
        """A member has joined with the instance id of another: what that has is its."""
        self.members[self.members.index(old)] = new
        self._heard.pop(old, None)
        self._gone(old)
        self._read_on(old)
        for place in [place for place, owner in self.owners.items() if owner is old]:
            self.owners[place] = new
            self._home.owned(self.name, place, new)
        self._entered += 1
        self._hear(new)
        self._home.after(self._home.session_seconds / LOOKS, self._look_after, new)

    def forget(self) -> None:
        """Expel all, without anybody to share out to."""
        for member in list(self.members):
            self._gone(member)
            self._behind.pop(member, None)
        self.members.clear()
        self._heard.clear()
        for place in list(self.owners):
            self._own(place, None)
        self._watch_offsets()

    def _watch_offsets(self) -> None:
        """Delete what a group committed that gets no member in time."""
        entered = self._entered

        def look() -> None:
            if self._entered == entered:
                self.committed.clear()

        if not self.members and self._home.offsets_seconds is not None:
            self._home.after(self._home.offsets_seconds, look)

    def commit(
        self, member: Member, generation: int, commits: Sequence[Commit], answer: Callable[[KafkaFailure | None], None]
    ) -> None:
        """Take commits; behind a question of the member's that is not answered yet they wait."""
        if self._is_awaited(member):
            if member not in self._behind:
                self._home.held(self.name, member, True)
            self._behind.setdefault(member, []).append(lambda: answer(self._commit(member, generation, commits)))
        else:
            answer(self._commit(member, generation, commits))

    def _read_on(self, member: Member) -> None:
        """Take what came from a member behind a question that is answered now."""
        if behind := self._behind.pop(member, []):
            self._home.held(self.name, member, False)
        for call in behind:
            call()

    def _commit(self, member: Member, generation: int, commits: Sequence[Commit]) -> KafkaFailure | None:
        """The coordinator looks at the generation alone."""
        failure = unknown() if member not in self.members else self.fence(member, generation)
        if failure is not None:
            self._home.refused(self.name, member, failure)
            return failure
        self._hear(member)
        missing = None
        for each in commits:
            if self._home.found(KafkaPartition(each.topic, each.partition)) is None:
                missing = KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"there is no topic {each.topic}")
                continue
            if len(each.metadata) > self._home.metadata_max:
                missing = KafkaFailure("OFFSET_METADATA_TOO_LARGE", "the text is above offset.metadata.max.bytes")
                continue
            self.committed[KafkaPartition(each.topic, each.partition)] = (each.offset, each.metadata)
            self.leader_epochs[KafkaPartition(each.topic, each.partition)] = each.leader_epoch
            self._home.noted(self.name, each)
        return missing

    def restarted(self) -> None:
        """The coordinator was away: sessions begin anew."""
        for member in self.members:
            self._heard[member] = self._home.clock.monotonic()
        for member in list(self._behind):
            self._home.held(self.name, member, False)
        self._behind.clear()

    def _gone(self, member: Member) -> None:
        """A member is none any more."""

    def _enter(self, member: Member) -> None:
        self.members.append(member)
        self._entered += 1
        self._hear(member)
        self._home.after(self._home.session_seconds / LOOKS, self._look_after, member)

    def _hear(self, member: Member) -> None:
        self._heard[member] = self._home.clock.monotonic()

    def _is_awaited(self, member: Member) -> bool:
        """Whether a member waits for the coordinator, which therefore does not miss it."""
        return False

    def _look_after(self, member: Member) -> None:
        if member not in self.members:
            return
        if self._is_awaited(member):
            self._hear(member)
        if self._home.clock.monotonic() - self._heard[member] > self._home.session_seconds:
            self.expel(member)
            return
        self._home.after(self._home.session_seconds / LOOKS, self._look_after, member)

    def _own(self, place: KafkaPartition, member: Member | None) -> None:
        if member is None:
            self.owners.pop(place, None)
        else:
            assert self.owners.get(place) in (None, member), "a partition has one owner"
            self.owners[place] = member
        self._home.owned(self.name, place, member)

    def share(self, claims: Mapping[KafkaPartition, Member]) -> dict[KafkaPartition, Member]:
        """Return whose each partition of the subscribed topics is to be: as even as can be, and sticky."""
        return shared(self.members, self._home.places(), claims)


def shared(
    members: Sequence[Member], places: Iterable[KafkaPartition], claims: Mapping[KafkaPartition, Member]
) -> dict[KafkaPartition, Member]:
    """Share partitions out among members, who keep what they have where that is fair."""
    wanted: dict[KafkaPartition, list[Member]] = {}
    for place in sorted(places):
        if able := [member for member in members if member.reads(place.topic)]:
            wanted[place] = able
    counts: Counter[Member] = Counter()
    target: dict[KafkaPartition, Member] = {}
    most = -(-len(wanted) // len(members)) if members else 0
    for place, able in wanted.items():
        owner = claims.get(place)
        if owner in able and counts[owner] < most:
            target[place] = owner
            counts[owner] += 1
    for place, able in wanted.items():
        if place not in target:
            target[place] = min(able, key=lambda each: (counts[each], members.index(each)))
            counts[target[place]] += 1
    return target


def unknown() -> KafkaFailure:
    """What one is told who is no member (any more)."""
    return KafkaFailure("UNKNOWN_MEMBER_ID", "not a member any more", fenced=True)
