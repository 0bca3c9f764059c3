"""What imitated clients were promised, and whether what they see keeps to it.

Everything is in the order in which it happened at the clients: each entry is a mark. What an answer holds can have been
decided by the node at any time since its call was sent, so a delivery is held against what its client knew then.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """What a delivered message is known by."""

    topic: str
    qid: str
    offset: int


class Message(NamedTuple):
    """What a published message is known by: its key and its number among those of the key."""

    key: str
    number: int


@dataclass(slots=True)
class _Stored:
    """A message at a place: `fate` is what became of its last delivery; `answered` the mark of an answered success."""

    message: Message
    fate: str
    answered: int | None = None


class Account:
    """The history of one group on topics whose messages have keys and numbers.

    Attributes:
        acknowledged: Messages whose send was answered with 0.
        told: Messages a success of which was sent, answered or not.
        events: What happened, by name.
        repeats: Deliveries of a place that had been delivered before, by what became of the delivery before:
            `in hand` (its client died, or the node did, before it was answered), `failed`, `skipped`, `unanswered` (its
            call got no answer), `thrown away` (the library forgot it).
        faults: Sentences about what a promise forbids, the first hundred.
        counts: How often each promise was broken: `lost`, `out of order`, `acked again`.
    """

    def __init__(self) -> None:
        self.acknowledged: set[Message] = set()
        self.reported: set[Message] = set()
        self.events: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self._marks = itertools.count(1)
        self._places: dict[Place, _Stored] = {}
        self._copies: Counter[Message] = Counter()
        self._offsets: dict[tuple[str, str], tuple[int, int]] = {}
        """Of a queue and a key, the highest offset delivered and the mark at which it was first read."""
        self._numbers: dict[str, tuple[int, int]] = {}
        """Of a key, the highest number delivered and when it was first read."""

    def mark(self) -> int:
        """Take the next place in the order of events."""
        return next(self._marks)

    def delivered(self, place: Place, message: Message, asked: int) -> None:
        """Enter a delivery, read now, whose call was sent at the mark `asked`."""
        now = self.mark()
        self.events["delivered"] += 1
        stored = self._places.get(place)
        if stored is None:
            self._places[place] = _Stored(message, "in hand")
            self._copies[message] += 1
            self._check_number(place, message, asked, now)
        else:
            self.repeats[stored.fate] += 1
            if stored.message != message:
                self._fault("lost", f"{place} was {stored.message} and is {message}")
            if stored.answered is not None and stored.answered < asked:
                self._fault("acked again", f"{message} at {place} came after its success was answered")
            stored.fate = "in hand"
        queue = place.qid, message.key
        offset, first_read = self._offsets.get(queue, (-1, 0))
        if place.offset > offset:
            self._offsets[queue] = place.offset, now
        elif place.offset < offset and first_read < asked:
            self._fault("out of order", f"{message} at {place} came after offset {offset} of its key")

    def _check_number(self, place: Place, message: Message, asked: int, now: int) -> None:
        number, first_read = self._numbers.get(message.key, (-1, 0))
        if message.number > number:
            self._numbers[message.key] = message.number, now
        elif message.number < number and self._copies[message] == 1 and first_read < asked:
            self._fault("out of order", f"{message} at {place} came first after number {number} of its key")

    def completed(self, place: Place, fate: str) -> None:
        """Enter what became of a delivery: `failed`, `skipped`, `unanswered`, `thrown away` or `in hand`."""
        stored = self._places[place]
        if stored.answered is None:
            stored.fate = fate
        if fate == "unanswered":
            self.reported.add(stored.message)
        self.events[f"result {fate}"] += 1

    def answered(self, place: Place) -> None:
        """Enter that a call with a success was answered: it is promised."""
        stored = self._places[place]
        if stored.answered is None:
            stored.answered = self.mark()
        stored.fate = "answered"
        self.reported.add(stored.message)
        self.events["result answered"] += 1

    def sent(self, message: Message) -> None:
        """Enter that a send was answered with 0."""
        self.acknowledged.add(message)

    @property
    def unfinished(self) -> set[Message]:
        """Acknowledged messages of which no success was sent yet."""
        return self.acknowledged - self.reported

    @property
    def duplicates(self) -> int:
        """Copies of a message beyond its first: its producer sent it again."""
        return sum(self._copies.values()) - len(self._copies)

    def close(self) -> None:
        """Judge the end, when the group has nothing left: what was acknowledged has been delivered and finished."""
        for message in sorted(self.unfinished):
            self._fault("lost", f"{message} was acknowledged and never came to a client that finished it")

    def lines(self) -> list[str]:
        """Return the figures for people."""
        lost, order, again = (self.counts[name] for name in ("lost", "out of order", "acked again"))
        causes = ", ".join(f"{name} {count}" for name, count in sorted(self.repeats.items())) or "none"
        happened = ", ".join(f"{name} {count}" for name, count in sorted(self.events.items()))
        return [
            f"{len(self.acknowledged)} messages acknowledged, {self.events['delivered']} deliveries: "
            f"lost {lost}, out of order {order}, acked again {again}",
            f"delivered again, by what became of the delivery before: {causes}",
            f"copies that producers made by sending again (duplicates): {self.duplicates}",
            f"what happened: {happened}",
            *self.faults,
        ]

    def _fault(self, name: str, text: str) -> None:
        self.counts[name] += 1
        if len(self.faults) < 100:
            self.faults.append(f"{name}: {text}")
