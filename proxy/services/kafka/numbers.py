"""Numbered messages that go to Kafka (D39): under way, stored, and missing; docs/deduplication.md has what holds.

The window of `broker.deduplication` knows all numbers of a producer, wherever its messages went, and the log is its
memory. For what went to Kafka the memory is here, and ends with the process: the window says ELSEWHERE, and the
receipt is in a table. A number whose record Kafka did not take is MISSING again, and a *hole*: what its producer
numbered higher is refused as a gap until it came again, as the embedded store would have refused it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from broker.deduplication.deduplication import ELSEWHERE, MISSING, Deduplication, NumberedRun
from broker.deduplication.numbers import Numbered, parse_key

RECEIPTS_MAX = 65_536
"""Messages whose place in Kafka is known; of older ones a repeat gets the id alone."""
HOLES_MAX = 10_000
"""Producers with holes; above it the first one's are forgotten, and what it sends next is taken."""


class KafkaNumbers:
    """What one node knows of its numbered messages in Kafka.

    Args:
        deduplication: Knows the numbers of all messages.
    """

    def __init__(self, deduplication: Deduplication) -> None:
        self._deduplication = deduplication
        self._receipts: OrderedDict[bytes, tuple[str, int]] = OrderedDict()
        self._under_way: dict[bytes, list[Callable[[], None]]] = {}
        """UNIQ_KEY -> who waits for its end."""
        self._holes: OrderedDict[bytes, set[int]] = OrderedDict()

    def begin(self, judged: NumberedRun, places: Sequence[int], keys: Sequence[bytes]) -> None:
        """Note that messages are staged, or under way to Kafka.

        Args:
            judged: What was known of their call.
            places: Of each that was not stored the commit-log offset, or MISSING of those that go to Kafka.
            keys: UNIQ_KEY of each.
        """
        self._deduplication.begun(judged, places)
        for place, key in zip(places, keys, strict=True):
            if place == MISSING:
                self._under_way[key] = []
            else:
                self._fill(key)

    def stored(self, key: bytes, qid: str, offset: int) -> None:
        """Note that a message is in Kafka."""
        numbered = parse_key(key)
        if numbered is None:
            return
        self._deduplication.stored_elsewhere(numbered)
        self._receipts[key] = (qid, offset)
        if len(self._receipts) > RECEIPTS_MAX:
            self._receipts.popitem(last=False)
        self._fill(key)

    def missing(self, key: bytes) -> None:
        """Note that a message is not in Kafka, or perhaps not."""
        numbered = parse_key(key)
        if numbered is None:
            return
        self._holes.setdefault(numbered.name, set()).add(numbered.number)
        if len(self._holes) > HOLES_MAX:
            self._holes.popitem(last=False)

    def end(self, keys: Sequence[bytes]) -> None:
        """Call those that wait: the messages of a call are decided."""
        waiting = [wait for key in keys for wait in self._under_way.pop(key, ())]
        for wait in waiting:
            wait()

    def is_under_way(self, keys: Sequence[bytes | None]) -> bool:
        """Whether one of these messages was sent before and is not decided."""
        return bool(self._under_way) and any(key in self._under_way for key in keys)

    def when_ended(self, keys: Sequence[bytes | None], wait: Callable[[], None]) -> None:
        """Have `wait` called when the first of these that is under way is decided."""
        waiting = next(self._under_way[key] for key in keys if key is not None and key in self._under_way)
        waiting.append(wait)

    def is_last(self, key: bytes) -> bool:
        """Whether nothing was taken of a message's producer behind it, so that it may be called not stored."""
        numbered = parse_key(key)
        return numbered is not None and self._deduplication.is_last(numbered)

    def has_hole_before(self, judged: NumberedRun) -> bool:
        """Whether a message of their producer is missing that came before those of a call, one of which is new."""
        name, number = judged.first
        holes = self._holes.get(name)
        return holes is not None and min(holes) < number and (not judged.places or MISSING in judged.places)

    def filled(self, judged: NumberedRun, count: int) -> None:
        """Note that so many messages in a row are staged in the log."""
        name, number = judged.first
        if name in self._holes:
            for each in range(number, number + count):
                self._take_out(Numbered(name, each))

    def receipt(self, key: bytes, place: int) -> tuple[str, int] | None:
        """Return qid and offset of a message whose place is ELSEWHERE; None where that is not known any more."""
        return self._receipts.get(key) if place == ELSEWHERE else None

    def _fill(self, key: bytes) -> None:
        numbered = parse_key(key)
        if numbered is not None:
            self._take_out(numbered)

    def _take_out(self, numbered: Numbered) -> None:
        holes = self._holes.get(numbered.name)
        if holes is not None:
            holes.discard(numbered.number)
            if not holes:
                del self._holes[numbered.name]
