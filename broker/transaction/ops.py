"""Op records: what became of halves, as RocketMQ writes it, gathered within a turn.

The body is the queue offsets of halves, a comma behind each (RocketMQ up to 5.0 wrote a single one without); the tag
is `d`. A property of our own has a letter per member (`Fate`), which RocketMQ does not look at. A commit, a put-back
and a discard are decided by the record that replaces the half; of a rollback the op record is the decision (D27).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from broker.errors import DiskFull, StoreError
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.log.put import LogPosition, Put
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.runtime.seams import ScheduledCall
from broker.store import Store
from broker.transaction import metrics as counted
from broker.transaction.names import DECISIONS, OP_TAG, Fate

BODY_CHARS_MAX = 4096
"""RocketMQ's transactionOpMsgMaxSize."""
RETRY_SECONDS = 1.0
_BLOCKS_MAX = 4096
_LETTERS = {each.value: each for each in Fate}

Reported = Callable[[StoreError | None], None]


class HalfReference(NamedTuple):
    """A half named by an op record: its queue offset, and its fate; None where RocketMQ wrote the record."""

    offset: int
    fate: Fate | None


def members_of(body: bytes, block: bytes) -> list[HalfReference]:
    """Return the members of an op record, of either form; what is not a number is left out."""
    numbers = body.split(b",")
    if numbers and not numbers[-1]:
        numbers.pop()
    letters = (find_property(block, DECISIONS) or b"").decode("ascii", "replace")
    if len(letters) != len(numbers):
        letters = " " * len(numbers)
    return [
        HalfReference(number, _LETTERS.get(letter))
        for text, letter in zip(numbers, letters, strict=True)
        if (number := whole_number(text.strip())) is not None
    ]


def op_puts(topic: Topic, members: Sequence[HalfReference]) -> list[tuple[Put, Sequence[HalfReference]]]:
    """Make the op records of some members, each with a body of at most BODY_CHARS_MAX characters (or one member)."""
    found: list[tuple[Put, Sequence[HalfReference]]] = []
    start, length = 0, 0
    for place, member in enumerate(members):
        width = len(str(member.offset)) + 1
        if length and length + width > BODY_CHARS_MAX:
            found.append((_op_put(topic, members[start:place]), members[start:place]))
            start, length = place, 0
        length += width
    if members:
        found.append((_op_put(topic, members[start:]), members[start:]))
    return found


def _op_put(topic: Topic, members: Sequence[HalfReference]) -> Put:
    body = b"".join([b"%d," % member.offset for member in members])
    letters = "".join([member.fate or " " for member in members]).encode()
    return Put(topic, 0, body, b"TAGS\x01%b\x02%b\x01%b\x02" % (OP_TAG, DECISIONS, letters), tags=OP_TAG)


class OpPlaces:
    """Where in the op queue members above a half begin: what `consumerOffset.json` says of it.

    Bounded: with more than _BLOCKS_MAX op records in sight, neighbours are taken together, all in equal numbers.
    """

    def __init__(self, start: int = 0) -> None:
        self.next = start
        self._records = 1
        self._blocks: deque[tuple[int, int]] = deque()
        """(offset of its first op record, highest member)."""

    def note(self, offset: int, highest: int) -> None:
        """Add an op record with its highest member; offsets rise."""
        self.next = max(self.next, offset + 1)
        if not self._blocks:
            self._records = 1
        elif offset - self._blocks[-1][0] < self._records:
            first, before = self._blocks[-1]
            self._blocks[-1] = first, max(before, highest)
            return
        self._blocks.append((offset, highest))
        if len(self._blocks) > _BLOCKS_MAX:
            self._records *= 2
            old = list(self._blocks)
            self._blocks = deque((a, max(x, y)) for (a, x), (_, y) in zip(old[::2], old[1::2], strict=False))
            if len(old) % 2:
                self._blocks.append(old[-1])

    def first(self, position: int) -> int:
        """Return an offset at or below the first op record with a member at `position` or above."""
        while self._blocks and self._blocks[0][1] < position:
            self._blocks.popleft()
        return self._blocks[0][0] if self._blocks else self.next


class OpWriter:
    """Appends op records for what was decided in a turn.

    Attributes:
        owed: Halves that are decided by another record and have no durable op record yet.
        places: Where they stand.
        in_flight: Records that are staged.
    """

    def __init__(self, store: Store, runtime: Runtime, *, topic: Callable[[], Topic]) -> None:
        self.owed: dict[int, Fate] = {}
        self.places = OpPlaces()
        self.in_flight = 0
        self._store = store
        self._topic = topic
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._written = runtime.metrics.counter(counted.OPS)
        self._members: dict[int, tuple[HalfReference, Reported | None]] = {}
        self._soon: ScheduledCall | None = None
        self._stopped = False

    def expect(self) -> None:
        """Have `write` run at the end of this turn; called before the append that it goes with."""
        if self._soon is None and not self._stopped:
            self._soon = self._scheduler.call_soon(self._run)

    def add(self, offset: int, fate: Fate, done: Reported | None = None) -> None:
        """Name a half in the next op record.

        Args:
            offset: Of the half.
            fate: Its fate. All but a rollback are owed until they are durable.
            done: Told when the record is durable, or with the error.
        """
        if done is None:
            self.owed[offset] = fate
        self._members[offset] = (HalfReference(offset, fate), done)
        self.expect()

    def write_owed(self) -> None:
        """Name all that is owed."""
        for offset, fate in list(self.owed.items()):
            self.add(offset, fate)

    def stop(self) -> None:
        """Write nothing any more by itself."""
        self._stopped = True
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _run(self) -> None:
        self._soon = None
        self.write()
        if not self._store.is_driven:
            self._store.flush()

    def write(self) -> None:
        """Append what is named; the caller flushes. Never raises: the callbacks get the error."""
        if not self._members or self._store.closed:
            return
        members, self._members = self._members, {}
        try:
            puts = op_puts(self._topic(), [member for member, _ in members.values()])
            made: list[list[LogPosition]] = []
            made.append(
                self._store.append(
                    [put for put, _ in puts],
                    born_ms=self._clock.wall_ms(),
                    born_host=self._store.options.store_host,
                    done=partial(self._done, members, [part for _, part in puts], made),
                )
            )
            self.in_flight += 1
        except StoreError as error:
            self._refused(members, error)

    def _refused(self, members: dict[int, tuple[HalfReference, Reported | None]], error: StoreError) -> None:
        for offset, (member, done) in members.items():
            if done is None:
                self._members.setdefault(offset, (member, None))
        if self._members and isinstance(error, DiskFull) and self._soon is None and not self._stopped:
            self._soon = self._scheduler.call_later(RETRY_SECONDS, self._run)
        for _, done in members.values():
            if done is not None:
                done(error)

    def _done(
        self,
        members: dict[int, tuple[HalfReference, Reported | None]],
        parts: Sequence[Sequence[HalfReference]],
        made: list[list[LogPosition]],
        error: StoreError | None,
    ) -> None:
        self.in_flight -= 1
        if error is None:
            self._written.add(len(parts))
            for position, part in zip(made[0], parts, strict=True):
                self.places.note(position.offset, max(member.offset for member in part))
        for offset, (_, done) in members.items():
            if done is not None:
                done(error)
            elif error is None:
                self.owed.pop(offset, None)
