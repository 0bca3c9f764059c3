"""What arrived of one partition and was not read yet, and its reading position.

Kafka sends records in order and without being asked for each. A stream holds what came, at most so many records and
bytes: beyond that the partition rests until half of it is read. Who reads may go anywhere (`seek`): what is held and
what is under way of other offsets is passed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from upstream.kafka.link import GroupMember, KafkaRecord
from upstream.kafka.topics import KafkaQueue

RECORDS_MAX = 2_000
BYTES_MAX = 4 << 20
_RECORD_BYTES = 64
"""What a record takes besides its key, value and headers."""


def size_of(record: KafkaRecord) -> int:
    """Return about how many bytes of memory a record takes."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


class PartitionStream:
    """One partition's.

    Attributes:
        queue: The partition.
        position: Next offset to be read from it; -1: not read yet.
        bytes: What it holds.
    """

    def __init__(self, queue: KafkaQueue, member: GroupMember, room: Callable[[], int] = lambda: BYTES_MAX) -> None:
        """Set up; `room` says how many bytes it may hold at present, of BYTES_MAX at most."""
        self.queue = queue
        self._room = room
        self._member = member
        self._records: deque[KafkaRecord] = deque()
        self._reported = -1
        """Offsets below were reported: the next record has this one or a higher one."""
        self.position = -1
        self.bytes = 0
        self._rests = False

    def seek(self, offset: int) -> None:
        """Read on from an offset."""
        while self._records and self._records[0].offset < offset:
            self.bytes -= size_of(self._records.popleft())
        if not self.position <= offset <= self._reported or self.position < 0:
            self._records.clear()
            self.bytes = 0
            self._reported = offset
            self._member.read_from(self.queue.place, offset, self.queue.leader_epoch)
        self.position = offset
        self._ease()

    def arrived(self, records: Sequence[KafkaRecord]) -> None:
        """Take records; those of before the last `seek` are passed over."""
        if self.position < 0:
            return
        for record in records:
            if record.offset >= self._reported:
                self._records.append(record)
                self.bytes += size_of(record)
                self._reported = record.offset + 1
        self.queue.newest = (records[-1].offset, records[-1].timestamp_ms)
        self.queue.leader_epoch = max(self.queue.leader_epoch, records[-1].leader_epoch)
        self.queue.max_offset = max(self.queue.max_offset, self._reported)
        if not self._rests and (len(self._records) > RECORDS_MAX or self.bytes > self._bytes_max):
            self._rests = True
            self._member.pause([self.queue.place])

    def at_end(self, offset: int) -> None:
        """Note that all up to an offset was reported."""
        if self.position >= 0:
            self._reported = max(self._reported, offset)
            self.queue.max_offset = max(self.queue.max_offset, offset)

    def goes_back(self, offset: int) -> bool:
        """Whether what comes is below what came before: Kafka sends offsets in order, so the log is another one."""
        return self.position >= 0 and offset < self._reported

    @property
    def rests(self) -> bool:
        """Whether it is full: the member reads nothing for it."""
        return self._rests

    @property
    def reached(self) -> int:
        """Offset below which everything came; -1: nothing was read yet."""
        return self._reported if self.position >= 0 else -1

    def next(self) -> KafkaRecord | None:
        """Return the next record without taking it; None when there is none, and then `pass_void` says what is void."""
        return self._records[0] if self._records else None

    def take(self) -> None:
        """Take that record."""
        record = self._records.popleft()
        self.bytes -= size_of(record)
        self.position = record.offset + 1
        if self._rests:
            self._ease()

    def pass_void(self) -> int:
        """Go on to where the next record may be, when none is held; returns that offset."""
        assert not self._records, "a record is held"
        self.position = max(self.position, self._reported)
        return self.position

    @property
    def _bytes_max(self) -> int:
        return min(BYTES_MAX, self._room())

    def _ease(self) -> None:
        if self._rests and len(self._records) <= RECORDS_MAX // 2 and self.bytes <= self._bytes_max // 2:
            self._rests = False
            self._member.resume([self.queue.place])
