"""What a fetcher has in hand, without I/O: positions, messages that are not done, and what may be acked.

A position says of all messages below it that they are done. So it is at the first one that is not, however many
behind it are: what failed, or was passed over, is never acked with them (W94).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyddmq.client.errors import ClientMisuse

Queue = tuple[str, str]
"""Topic and qid."""


class FetchedMessage(NamedTuple):
    """One message that was fetched.

    `topic`, `qid` and `offset` identify it; `key` and `tag` are None when the message has none; `body` holds the bytes
    that were published; `properties` the user properties. `stored_ms` is when the node stored it, `born_ms` when its
    producer says that it was made; both are ms since the epoch.
    """

    topic: str
    qid: str
    offset: int
    key: str | None
    tag: str | None
    body: bytes
    properties: Mapping[str, str]
    stored_ms: int
    born_ms: int


class FetchedQueue(NamedTuple):
    """What a fetch found in one queue: its messages, oldest first, and where the next fetch continues."""

    topic: str
    qid: str
    next_offset: int
    messages: list[FetchedMessage]


class _InHand:
    """What of one queue is in hand."""

    def __init__(self, start: int) -> None:
        self.open: deque[int] = deque()
        """Offsets that were fetched, from the first one on that is not done; done ones among them are in `done`."""
        self.done: set[int] = set()
        self.next = start
        self.acked = start
        """The position that the node has, as far as this client knows."""

    @property
    def position(self) -> int:
        """Up to where all is done."""
        return self.open[0] if self.open else self.next

    def add(self, messages: list[FetchedMessage], next_offset: int) -> None:
        """Take what was fetched; from further back than asked, it is as if nothing had been fetched before."""
        if messages and messages[0].offset < self.next:
            self.open.clear()
            self.done.clear()
            self.acked = min(self.acked, messages[0].offset)
        self.open.extend(message.offset for message in messages)
        self.next = next_offset

    def finish(self, offset: int) -> bool:
        """Note that a message is done; whether it was in hand."""
        if not self.open or not self.open[0] <= offset <= self.open[-1]:
            return False
        self.done.add(offset)
        while self.open and self.open[0] in self.done:
            self.done.discard(self.open.popleft())
        return True


class Hand:
    """What a fetcher has in hand, by queue."""

    def __init__(self) -> None:
        self._queues: dict[Queue, _InHand] = {}

    def positions(self) -> dict[str, dict[str, int]]:
        """Return what to send as fetchOffset: by topic and qid."""
        return offsets_of({queue: each.next for queue, each in self._queues.items()})

    def seek(self, positions: Mapping[Queue, int]) -> None:
        """Go on from these offsets; of queues that are given, what was in hand is not any more."""
        for queue, offset in positions.items():
            self._queues[queue] = _InHand(offset)

    def rewind(self) -> None:
        """Go on from the first message of each queue that is not done: those that are come again too, behind it."""
        self.seek({queue: each.position for queue, each in self._queues.items()})

    def take(self, queues: list[FetchedQueue], *, keeps_others: bool) -> None:
        """Take a reply. Queues that are not in it belong to another client now, unless they were not asked for."""
        kept = dict(self._queues) if keeps_others else {}
        for each in queues:
            name = each.topic, each.qid
            first = each.messages[0].offset if each.messages else each.next_offset
            in_hand = self._queues.get(name)
            if in_hand is None:
                in_hand = _InHand(first)
            in_hand.add(each.messages, each.next_offset)
            kept[name] = in_hand
        self._queues = kept

    def finish(self, message: FetchedMessage) -> bool:
        """Note that a message is done; False if its queue belongs to another client by now."""
        in_hand = self._queues.get((message.topic, message.qid))
        return in_hand is not None and in_hand.finish(message.offset)

    def due(self) -> dict[Queue, int]:
        """Return the positions that moved since they were acked last."""
        return {name: each.position for name, each in self._queues.items() if each.position > each.acked}

    def acked(self, positions: Mapping[Queue, int]) -> None:
        """Note that the node has these positions."""
        for name, offset in positions.items():
            in_hand = self._queues.get(name)
            if in_hand is not None:
                in_hand.acked = max(in_hand.acked, offset)


def offsets_of(positions: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """Return positions as the wire has them. Raises ClientMisuse: one is below 0."""
    found: dict[str, dict[str, int]] = {}
    for (topic, qid), offset in positions.items():
        if offset < 0:
            raise ClientMisuse(f"offset {offset} of {topic} {qid}: offsets begin at 0")
        found.setdefault(topic, {})[qid] = offset
    return found


def queues_of(response: Any) -> list[FetchedQueue]:
    """Return what a FetchResponse holds."""
    return [
        FetchedQueue(
            row.topic,
            row.qid,
            row.nextRequestOffset or 0,
            [
                FetchedMessage(
                    row.topic,
                    row.qid,
                    message.offset,
                    message.key,
                    message.tag,
                    message.value,
                    message.properties or {},
                    message.storeTimestamp or 0,
                    message.bornTimestamp or 0,
                )
                for message in row.messages
            ],
        )
        for row in response.results
    ]
