"""Queue locks: who may consume a queue for a group (RocketMQ: RebalanceLockManager, reference 6.2).

A lock is a lease of 60 s that its owner renews. The table is in memory only: after a restart no consumer holds a lock,
and none consumes either. One thread uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.errors import QueuesOwned
from broker.runtime.seams import Clock

EXPIRY_SECONDS = 60.0
"""RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime."""
RENEWAL_SECONDS = 20.0
"""How often an owner renews: rocketmq.client.rebalance.lockInterval."""

assert RENEWAL_SECONDS * 2 < EXPIRY_SECONDS

Place = tuple[str, int]
"""Topic and queue id."""


class HeldLock(NamedTuple):
    """One lock as `QueueLocks.held` returns it; `age_seconds` since it was taken or renewed."""

    group: str
    topic: str
    queue_id: int
    client_id: str
    age_seconds: float


class _Lease(NamedTuple):
    client_id: str
    renewed: float


class QueueLocks:
    """The locks of one store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Place, _Lease]] = {}

    def lock_batch(self, group: str, client_id: str, places: Iterable[Place]) -> set[Place]:
        """Take or renew locks; a lock that is free, expired or one's own is granted (LOCK_BATCH_MQ).

        Returns:
            Those of `places` that the client holds now.
        """
        table = self._groups.setdefault(group, {})
        now = self._clock.monotonic()
        held = set()
        for place in places:
            lease = table.get(place)
            if lease is None or lease.client_id == client_id or now - lease.renewed > EXPIRY_SECONDS:
                table[place] = _Lease(client_id, now)
                held.add(place)
        if not table:
            del self._groups[group]
        return held

    def unlock_batch(self, group: str, client_id: str, places: Iterable[Place]) -> None:
        """Give locks back; those of others stay (UNLOCK_BATCH_MQ)."""
        table = self._groups.get(group, {})
        for place in places:
            lease = table.get(place)
            if lease is not None and lease.client_id == client_id:
                del table[place]
        if group in self._groups and not table:
            del self._groups[group]

    def owner(self, group: str, place: Place) -> str | None:
        """Return the owner of a queue's lock; None without one or when it has expired."""
        lease = self._groups.get(group, {}).get(place)
        if lease is None or self._clock.monotonic() - lease.renewed > EXPIRY_SECONDS:
            return None
        return lease.client_id

    def refusal(self, group: str, client_id: str, places: Iterable[Place]) -> QueuesOwned | None:
        """Return the error that names the first other owner among these queues, None when there is none."""
        for place in places:
            owner = self.owner(group, place)
            if owner is not None and owner != client_id:
                return QueuesOwned(group, owner, place)
        return None

    def held(self) -> list[HeldLock]:
        """Return all locks that have not expired, by group, topic and queue id."""
        now = self._clock.monotonic()
        return sorted(
            HeldLock(group, topic, queue_id, lease.client_id, now - lease.renewed)
            for group, table in self._groups.items()
            for (topic, queue_id), lease in table.items()
            if now - lease.renewed <= EXPIRY_SECONDS
        )
