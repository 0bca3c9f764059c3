"""The fetchers of one group on this node, and which queues each owns.

A fetcher is a name (consumerId) that clients give, not a connection: it stays while its client connects again. It joins
with its first fetch and leaves when it has neither fetched nor moved a position for EXPIRY_SECONDS. DDMQ counts fetches
alone, so that a client at work on a long batch loses its queues amid it (as W34); and an ack that says nothing new
proves no work: a timer in a hung client sends such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from broker.runtime.seams import Clock
from upstream.job import Generation, GroupQueue
from upstream.views import FetcherView

# Which fetcher owns which queue of a topic: even, sticky, and the same for the same input.

Name = TypeVar("Name")


def assign(
    queues: Sequence[Name], members: Sequence[str], before: Mapping[Name, str], load: Mapping[str, int]
) -> dict[Name, str]:
    """Give every queue of a topic an owner.

    No member owns more than one queue above another. A queue changes hands only where that needs it: a member keeps as
    many of its own as it may have, those first in `queues`; the rest go, in order, to those who have too few.

    Args:
        queues: The queues, in their order.
        members: Who fetches, in the order in which they came. Nobody: nothing is owned.
        before: Owners so far; some may be gone.
        load: Queues of other topics that each has. Where some get one more than others, those who own more of this
            topic so far come first, then those with the lower load, then those who came first.

    Returns:
        Owner by queue.
    """
    if not members:
        return {}
    had = Counter(before.get(queue) for queue in queues)
    least, more = divmod(len(queues), len(members))
    ranked = sorted(members, key=lambda each: (-had[each], load.get(each, 0)))
    quota = {each: least + (place < more) for place, each in enumerate(ranked)}
    owners: dict[Name, str] = {}
    for queue in queues:
        owner = before.get(queue)
        if owner is not None and quota.get(owner, 0) > 0:
            owners[queue] = owner
            quota[owner] -= 1
    # Members in the order in which they came, each as often as it lacks a queue.
    lacking = (each for each in members for _ in range(quota[each]))
    for queue in queues:
        if queue not in owners:
            owners[queue] = next(lacking)
    return owners


EXPIRY_SECONDS = 30.0
"""R83."""
FETCHERS_MAX = 1_024
"""Fetchers of one group; what has more clients than queues needs none of the rest."""


class FetchersFull(Exception):
    """A group has as many fetchers as it may have."""


class FetcherQueue:
    """What a fetcher was given of one queue.

    Attributes:
        generation: The one that it was given by.
        given: One past the highest offset that it was given; only grows within a generation.
        is_bound: Its acks count up to `given` only. Set when the queue began again beneath it, or when a reset is newer
            than what it may still have in hand.
    """

    __slots__ = ("generation", "given", "is_bound")

    def __init__(self, generation: Generation, given: int, *, is_bound: bool) -> None:
        self.generation = generation
        self.given = given
        self.is_bound = is_bound


class FetcherClient:
    """One client of a low-level group.

    Attributes:
        id: Its name.
        address: Address of its last fetch.
        joined: Monotonic seconds of its first fetch.
        fetched: Of its last one.
        seen: When it last proved to be alive.
        waiting: Its fetches that wait at the node; while there is one it does not expire.
        turn: How often it fetched: each time another of its queues comes first.
        standings: By queue, what it was given.
    """

    def __init__(self, name: str, address: str, now: float) -> None:
        self.id = name
        self.address = address
        self.joined = self.fetched = self.seen = now
        self.waiting = 0
        self.turn = 0
        self.standings: dict[GroupQueue, FetcherQueue] = {}


class Fetchers:
    """Who fetches for one group.

    Attributes:
        by_id: In the order in which they came.
        owners: By queue the id of who owns it.
    """

    def __init__(self, clock: Clock) -> None:
        self.by_id: dict[str, FetcherClient] = {}
        self.owners: dict[GroupQueue, str] = {}
        self._clock = clock
        self._topics: list[list[GroupQueue]] = []

    def seen(self, name: str, address: str) -> tuple[FetcherClient, bool]:
        """Note a fetch. Returns the fetcher, and whether it is new.

        Raises:
            FetchersFull: It is new, and there are FETCHERS_MAX others.
        """
        now = self._clock.monotonic()
        fetcher = self.by_id.get(name)
        is_new = fetcher is None
        if fetcher is None:
            if len(self.by_id) >= FETCHERS_MAX:
                raise FetchersFull(f"the group has {FETCHERS_MAX} fetchers")
            fetcher = self.by_id[name] = FetcherClient(name, address, now)
        fetcher.address = address
        fetcher.seen = fetcher.fetched = now
        return fetcher, is_new

    def worked(self, name: str) -> None:
        """Note that an ack of a fetcher moved a position."""
        fetcher = self.by_id.get(name)
        if fetcher is not None:
            fetcher.seen = self._clock.monotonic()

    def expire(self) -> list[FetcherClient]:
        """Let those go that were not seen for too long; who owns their queues is `rebalance`'s."""
        before = self._clock.monotonic() - EXPIRY_SECONDS
        gone = [each for each in self.by_id.values() if not each.waiting and each.seen <= before]
        for each in gone:
            del self.by_id[each.id]
        return gone

    def rebalance(self, topics: Mapping[str, Sequence[GroupQueue]]) -> bool:
        """Share out the queues of all topics; whether any changed hands."""
        self._topics = [list(queues) for queues in topics.values()]
        owners: dict[GroupQueue, str] = {}
        load: Counter[str] = Counter()
        members = list(self.by_id)
        for queues in self._topics:
            given = assign(queues, members, self.owners, load)
            load.update(given.values())
            owners.update((queue, given[queue]) for queue in queues if queue in given)
        changed = owners != self.owners
        self.owners = owners
        for fetcher in self.by_id.values():
            for group_queue in [each for each in fetcher.standings if each not in owners]:
                del fetcher.standings[group_queue]
        return changed

    def fits(self, topics: Mapping[str, Sequence[GroupQueue]]) -> bool:
        """Whether the queues are those that were shared out last."""
        return self._topics == list(topics.values())

    def owned(self, fetcher: FetcherClient) -> list[GroupQueue]:
        """Return a fetcher's queues, by topic and number."""
        return [group_queue for group_queue, owner in self.owners.items() if owner == fetcher.id]

    def views(self) -> list[FetcherView]:
        """Return them as operators see them, by name."""
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        owned: dict[str, list[str]] = {}
        for group_queue, owner in self.owners.items():
            owned.setdefault(owner, []).append(f"{group_queue.topic} {group_queue.qid}")
        return [
            FetcherView(
                id=each.id,
                address=each.address,
                since_ms=wall_ms - round((now - each.joined) * 1000),
                fetched_ms=wall_ms - round((now - each.fetched) * 1000),
                queues=owned.get(each.id, []),
            )
            for _, each in sorted(self.by_id.items())
        ]
