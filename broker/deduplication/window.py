"""Which messages of deduplicating producers are stored, and where: bounded, in memory. No I/O.

For each producer an array of commit-log offsets, one for each number from `low` on without a gap; the next number is
the one behind. Producers stand in the order of their last message: the one that was silent longest is the first.

A producer numbers its messages without a gap, so a place in the array is the number: no key is kept, and a message
costs eight bytes. To be wrong in one direction is dear: a message that is taken for stored and is not is lost, while
one that is stored twice is what would happen without all this. So what is not known for certain is never answered as
stored: a number that damage may have cost stays MISSING, however old it is, and a producer that was forgotten begins
again only with its first number.

All that peers can make grow is bounded: producers, places of each, and places of all together, since a name costs a
peer nothing. Above a bound the owner with most names or places loses those of its producers that were silent longest:
names that one principal makes up cost no other principal its own.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.deduplication import metrics as counted
from broker.deduplication.numbers import first_number
from broker.runtime.metrics import Metrics

MISSING = -1
"""No record of this number is known: its message is to be stored."""
OLDER = -2
"""It is stored, and where is not known any more."""
ELSEWHERE = -3
"""It is stored, but not in this log: who put it there knows where, as long as that lasts (upstream.kafka)."""

RECEIPTS_MAX = 1 << 19
"""Offsets of all producers together."""
FREED_SHARE = 100
"""A hundredth of a bound is freed at once where owners are known."""
HOLE_MAX = 100_000
"""Numbers in a row that damage may have cost; no batch is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """How much is remembered.

    Attributes:
        silence_ms: A producer is forgotten after this time without a message.
        messages: Last messages of a producer whose places are known; its last call in any case.
        producers: Producers that are known.
    """

    silence_ms: int = 600_000
    messages: int = 1024
    producers: int = 10_000


class ProducerWindow:
    """What is known of one producer.

    Attributes:
        low: Number of the first message whose place is known.
        places: Commit-log offset of each message from there on, or MISSING.
        last_ms: Store timestamp of the last one.
        last_place: The highest of the offsets.
    """

    __slots__ = ("last_ms", "last_place", "low", "places")

    def __init__(self, low: int, places: array[int], last_ms: int) -> None:
        self.low = low
        self.places = places
        self.last_ms = last_ms
        self.last_place = max(places, default=MISSING)

    @property
    def next(self) -> int:
        """The number that is expected."""
        return self.low + len(self.places)


class DeduplicationWindow:
    """The producers of one store.

    Args:
        limits: Fixed while it lives.
        metrics: Counts what is forgotten.

    Attributes:
        owner_of: Returns the principal that a name belongs to. None: owners are not known, so all names have one owner.
        evicted_ms: Store timestamp of the last message of any producer that was forgotten before its time.
    """

    def __init__(self, limits: WindowLimits, metrics: Metrics) -> None:
        self.owner_of: Callable[[bytes], str | None] | None = None
        self.limits = limits
        self.evicted_ms = -1
        self.producers: OrderedDict[bytes, ProducerWindow] = OrderedDict()
        self._receipts = 0
        self._metrics = metrics
        self._known = metrics.counter(counted.KNOWN)

    def look(self, name: bytes, number: int, count: int) -> Sequence[int] | None:
        """Say what is known of messages with numbers in a row.

        Returns:
            None: a gap, one before them is missing, or the producer was forgotten. Nothing (an empty sequence): they
            are the next ones, or lost. Else for each the commit-log offset of its record, OLDER or MISSING.
        """
        producer = self.producers.get(name)
        if producer is None:
            return () if number == first_number(name) else None
        at = number - producer.low
        places = producer.places
        known = len(places)
        if at == known:
            return ()
        if at > known:
            return None
        found = [OLDER] * min(max(-at, 0), count) + places[max(at, 0) : max(at + count, 0)].tolist()
        found += [MISSING] * (count - len(found))
        return () if found.count(MISSING) == count else found

    def stored(self, name: bytes, number: int, places: Sequence[int], now_ms: int) -> None:
        """Enter messages with numbers in a row that `look` knew nothing of; `places` are their commit-log offsets."""
        producer = self.producers.get(name)
        if producer is None or number != producer.next:
            for each, place in enumerate(places, number):
                self._enter(name, each, place, now_ms, len(places))
            return
        producer.places.extend(places)
        producer.last_place = places[-1]
        producer.last_ms = now_ms
        self.producers.move_to_end(name)
        self._receipts += len(places)
        self._trim(producer, len(places))

    def seen(self, name: bytes, number: int, place: int, now_ms: int) -> None:
        """Enter the record at a commit-log offset; numbers before it that are not known were lost to damage."""
        self._enter(name, number, place, now_ms, 1)

    def begun(self, name: bytes, number: int, places: Sequence[int], now_ms: int) -> None:
        """Enter messages with numbers in a row of which some are under way to another log, their places MISSING."""
        for each, place in enumerate(places, number):
            self._enter(name, each, place, now_ms, len(places))

    def next_of(self, name: bytes) -> int | None:
        """Return the number that is expected of a producer; None: it is not known."""
        producer = self.producers.get(name)
        return None if producer is None else producer.next

    def _enter(self, name: bytes, number: int, place: int, now_ms: int, call: int) -> None:
        """`seen`, of a call of so many messages."""
        producer = self.producers.get(name)
        if producer is None:
            first = first_number(name)
            low = first if number - first <= HOLE_MAX else number
            producer = self.producers[name] = ProducerWindow(low, array("q"), now_ms)
            self._known.value += 1
            self._forget_surplus()
        at = number - producer.low
        if at < 0:
            return
        places = producer.places
        lost = at - len(places)
        if lost < 0:
            # The first one counts: another one is a copy that says nothing of whose place it takes.
            if places[at] == MISSING:
                places[at] = place
        elif lost <= HOLE_MAX:
            places.extend([MISSING] * lost)
            places.append(place)
            self._receipts += lost + 1
        else:
            self._receipts += 1 - len(places)
            producer.low, producer.places = number, array("q", (place,))
        producer.last_place = max(producer.last_place, place)
        producer.last_ms = now_ms
        self.producers.move_to_end(name)
        self._trim(producer, max(call, lost + 1))

    def restore(self, name: bytes, producer: ProducerWindow) -> None:
        """Enter a producer of a checkpoint, in the order of the last messages."""
        self.producers[name] = producer
        self._receipts += len(producer.places)
        self._known.value += 1

    def forget(self, now_ms: int) -> None:
        """Forget producers that were silent for too long, and those that are too many."""
        producers, silent_ms = self.producers, now_ms - self.limits.silence_ms
        self._forget_surplus()
        while producers and next(iter(producers.values())).last_ms < silent_ms:
            self._forget_one(next(iter(producers)), "silent")

    def _forget_surplus(self) -> None:
        while (surplus := len(self.producers) - self.limits.producers) > 0:
            self._make_room(lambda _: 1, surplus, self.limits.producers, "producers")

    def _make_room(self, weigh: Callable[[ProducerWindow], int], surplus: int, bound: int, reason: str) -> None:
        """Forget the producers that were silent longest: of all, or of the owner with most where owners are known.

        Args:
            weigh: What of the bounded a producer has.
            surplus: How much is to be freed. One owner's producers may have less.
            bound: Finding that owner reads all producers, so at least a share of the bound is freed.
            reason: For the counter.
        """
        names: Iterable[bytes] = self.producers
        if self.owner_of is not None:
            names, surplus = self._of_heaviest_owner(self.owner_of, weigh), max(surplus, bound // FREED_SHARE)
        going = []
        for name in names:
            if surplus <= 0:
                break
            surplus -= weigh(self.producers[name])
            going.append(name)
        for name in going:
            self.evicted_ms = max(self.evicted_ms, self.producers[name].last_ms)
            self._forget_one(name, reason)

    def _of_heaviest_owner(
        self, owner_of: Callable[[bytes], str | None], weigh: Callable[[ProducerWindow], int]
    ) -> list[bytes]:
        """Return the producers of the owner with most, longest silent first; the newest of several stays."""
        held: Counter[str | None] = Counter()
        names: dict[str | None, list[bytes]] = {}
        for name, producer in self.producers.items():
            owner = owner_of(name)
            held[owner] += weigh(producer)
            names.setdefault(owner, []).append(name)
        found = names[max(held, key=held.__getitem__)]
        return found[:-1] or found

    def clear(self) -> None:
        """Know nothing."""
        self.producers.clear()
        self._receipts = self._known.value = 0

    def _trim(self, producer: ProducerWindow, last_call: int) -> None:
        """Keep the places of the last messages only; now and then, so that it costs nothing for each."""
        kept = max(self.limits.messages, last_call)
        places = producer.places
        cut = len(places) - kept
        if cut >= kept:
            lost = places[:cut]
            if MISSING in lost and len(places) <= 2 * HOLE_MAX:
                # What was lost may come again, and must not be taken for older than the window.
                cut = lost.index(MISSING)
            del places[:cut]
            producer.low += cut
            self._receipts -= cut
        while (surplus := self._receipts - RECEIPTS_MAX) > 0 and len(self.producers) > 1:
            self._make_room(lambda each: len(each.places), surplus, RECEIPTS_MAX, "receipts")

    def _forget_one(self, name: bytes, reason: str) -> None:
        producer = self.producers.pop(name)
        self._receipts -= len(producer.places)
        self._known.value -= 1
        self._metrics.counter(counted.FORGOTTEN, reason).add()
