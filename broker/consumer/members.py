"""Who consumes for which group: the members of all groups of one store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol

from broker.consumer.tags import TagExpression
from broker.queues.queue_locks import Place, QueueLocks


class ConsumerMember(Protocol):
    """What a group asks of a member."""

    kind: ClassVar[str]
    locks_queues: ClassVar[bool]

    @property
    def group(self) -> str:
        """Its group."""
        ...

    @property
    def client_id(self) -> str:
        """Its name within the group."""
        ...

    @property
    def tags(self) -> Mapping[str, TagExpression]:
        """The topics that it subscribes."""
        ...

    def ask_rebalance(self) -> None:
        """Compute the allocation again in the next turn."""
        ...

    def stop(self) -> None:
        """Leave the group: queues are given up, those in which a listener runs when it returns."""
        ...

    def abandon(self) -> None:
        """Commit nothing any more, whatever its listeners answer."""
        ...

    def persist(self) -> None:
        """Write what this member alone keeps."""
        ...


class Members:
    """The members of all groups, and those that left and still give up their queues.

    Args:
        locks: The store's; they show members outside of the program.
    """

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks
        self._members: dict[str, dict[str, ConsumerMember]] = {}
        self._present: dict[str, dict[str, ConsumerMember]] = {}
        self._closed = False

    def join(self, member: ConsumerMember, places: Iterable[Place]) -> None:
        """Make a consumer a member; the others hear of it.

        Raises:
            ValueError, QueuesOwned: As `Consumer.start`.
        """
        group = member.group
        present = self._present.get(group, {})
        if member.client_id in present:
            raise ValueError(f"group {group!r} already has a member {member.client_id!r}; each member needs its own id")
        for other in present.values():
            if other.kind != member.kind:
                raise ValueError(f"group {group!r} has {other.kind} members; a {member.kind} one cannot join it")
        if member.locks_queues:
            strangers = [place for place in places if not self.knows(group, self._locks.owner(group, place) or "")]
            refusal = self._locks.refusal(group, member.client_id, strangers)
            if refusal is not None:
                raise refusal
        self._members.setdefault(group, {})[member.client_id] = member
        self._present.setdefault(group, {})[member.client_id] = member
        self.changed(group)

    def leave(self, member: ConsumerMember) -> None:
        """Take a consumer out of the allocation; it may still hold queues."""
        self._members.get(member.group, {}).pop(member.client_id, None)
        self.changed(member.group)

    def left(self, member: ConsumerMember) -> None:
        """Forget a consumer that holds nothing any more."""
        present = self._present.get(member.group, {})
        if present.get(member.client_id) is member:
            if not self._closed:
                member.persist()
            del present[member.client_id]

    def changed(self, group: str) -> None:
        """Have all members of a group compute the allocation again."""
        for member in self._members.get(group, {}).values():
            member.ask_rebalance()

    def clients(self, group: str, topic: str) -> list[str]:
        """Return the client ids of the members that subscribe a topic, sorted."""
        return sorted(name for name, each in self._members.get(group, {}).items() if topic in each.tags)

    def knows(self, group: str, client_id: str) -> bool:
        """Whether this is a member of the group, or one that left and still gives up its queues."""
        return client_id in self._present.get(group, {})

    def persist(self) -> None:
        """Write what each of them keeps for itself."""
        for present in self._present.values():
            for member in present.values():
                member.persist()

    def stop(self) -> None:
        """Stop all of them; one whose listener still runs keeps its queue, and what it answers does not count."""
        for members in list(self._members.values()):
            for member in list(members.values()):
                member.stop()
        for present in self._present.values():
            for member in present.values():
                member.abandon()

    def close(self) -> None:
        """Stop all writes."""
        self._closed = True
