"""Messages by key, unique key, id, offset and time, from a store that is open or read only.

Every answer is a whole record whose sum was compared; what an index entry says is never believed (D2). A query is done
in steps of bounded work, so that an event loop can do other things in between: `for _ in query.steps(): ...`; programs
call `run`.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from typing import Protocol, Self

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.message import LogMessage, message_of, physical_of_id
from broker.format.record import RecordSummary
from broker.index.file import IndexDamaged, IndexFile
from broker.index.index import Index
from broker.index.keys import keys_of, may_keys_of, unique_keys_of
from broker.log.scan import record_at
from broker.log.walk import walk
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.time_search import offset_at, offset_from
from broker.queues.topics import Topic
from broker.runtime.steps import run_now

LIMIT_DEFAULT = 64
"""RocketMQ's maxMsgsNumBatch."""
ALL_MS = 1 << 62
CATCH_UP_RECORDS_MAX = 500_000
"""Records that one query adds to the index before it answers."""
SCAN_BYTES_MAX = 256 << 20
"""Log that one query reads where there is no index."""
_STEP_RECORDS = 256
_STEP_BYTES = 4 << 20
_BLOCK_UNITS = 64


class QueryRefused(StoreError):
    """The request is not valid: no id, an invalid time, a range that ends before it begins."""


class NotFound(StoreError):
    """A topic, queue or message does not exist, or was deleted."""


class Searchable(Protocol):
    """An open `Store`, or a `ReadOnlyStore`."""

    index: Index

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""

    def read(self, physical: int, size: int) -> memoryview:
        """Return a whole record. Raises DamagedRecord, RecordGone."""


# One message


def at_offset(store: Searchable, topic: str, queue: int, offset: int) -> LogMessage:
    """Return the message at a queue's offset.

    Raises:
        NotFound: The topic or queue does not exist, or the offset is outside its range, or its record is lost.
        OSError: The queue's file cannot be read.
    """
    found = queue_of(store, topic, queue)
    where = f"queue {queue} of topic {topic}"
    if offset < found.min_offset:
        raise NotFound(f"offset {offset} of {where} was deleted; the queue begins at {found.min_offset}")
    if offset >= found.max_offset:
        raise NotFound(f"{where} has no offset {offset}; it ends before {found.max_offset}")
    [(physical, size, _)] = found.read(offset, 1)
    if size == FILLER_SIZE:
        raise NotFound(f"the message at offset {offset} of {where} was lost in a damaged part of the log")
    try:
        return message_of(store.read(physical, size))
    except (DamagedRecord, RecordGone) as error:
        raise NotFound(f"the message at offset {offset} of {where} cannot be read: {error}") from error


def at_physical(store: Searchable, physical: int) -> LogMessage:
    """Return the message whose record begins at a commit-log offset.

    Raises:
        NotFound: No valid record begins there.
    """
    log = store.index.log
    if not log.min_offset <= physical < log.visible_end:
        raise NotFound(f"the log has no offset {physical}; it goes from {log.min_offset} to {log.visible_end}")
    entry = _valid(store, physical)
    if entry is None:
        raise NotFound(f"no message begins at commit-log offset {physical}")
    return message_of(store.read(entry.physical, entry.size))


def after_in_batch(store: Searchable, message: LogMessage) -> LogMessage | None:
    """Return the message that was stored behind this one in the same atomic batch; None when there is none."""
    entry = _valid(store, message.physical)
    if entry is None or entry.batch is None or entry.batch[0] + 1 >= entry.batch[1]:
        return None
    try:
        return at_physical(store, message.physical + message.size)
    except NotFound:
        return None


def by_id(store: Searchable, message_id: str) -> LogMessage:
    """Return the message of an offsetMsgId: 32 or 56 hex digits, store host and commit-log offset.

    Raises:
        QueryRefused: It has another form.
        NotFound: No message has it.
    """
    physical = physical_of_id(message_id)
    if physical is None:
        raise QueryRefused(f"{message_id!r} is not a valid message id; one has 32 or 56 hex digits")
    try:
        message = at_physical(store, physical)
    except NotFound as error:
        raise NotFound(f"message {message_id} does not exist: {error}") from error
    if message.id != message_id.upper():
        raise NotFound(f"message {message_id} does not exist; its position has {message.id}")
    return message


def queue_of(store: Searchable, topic: str, queue: int) -> ConsumeQueue:
    """Return a queue. Raises NotFound when there is none of that number."""
    queues = topic_of(store, topic).queues
    if not 0 <= queue < len(queues):
        raise NotFound(f"topic {topic} has no queue {queue}; its queues are 0 to {len(queues) - 1}")
    return queues[queue]


def topic_of(store: Searchable, name: str) -> Topic:
    """Return a topic. Raises NotFound when there is none of that name."""
    topic = store.topics.get(name)
    if topic is None:
        raise NotFound(f"topic {name!r} does not exist; `pyddmq topics` lists all topics")
    return topic


def _valid(store: Searchable, physical: int) -> RecordSummary | None:
    log = store.index.log
    try:
        entry = record_at(log, physical)
    except (DamagedRecord, RecordGone):
        return None
    return entry if entry is not None and physical + entry.size <= log.visible_end else None


# Many messages


class Query(ABC):
    """Something that finds messages in steps.

    Attributes:
        found: The messages.
        damaged: Records met that could not be read.
    """

    def __init__(self) -> None:
        self.found: list[LogMessage] = []
        self.damaged = 0

    @abstractmethod
    def steps(self) -> Generator[None, None, None]:
        """Do the work, yielding after each bounded piece. Raises OSError."""

    def run(self) -> Self:
        """Do all of it at once."""
        run_now(self.steps())
        return self


def by_key(
    store: Searchable,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = ALL_MS,
    limit: int = LIMIT_DEFAULT,
) -> KeyQuery:
    """Query the messages of a topic that have a word among their KEYS, or as their unique key.

    Args:
        store: Where.
        topic: Its name.
        key: The word.
        begin_ms: Stored at or after this moment, ms since the epoch.
        end_ms: Stored before or at this one.
        limit: Maximum number, the newest first.

    Raises:
        NotFound: The topic does not exist.
    """
    return KeyQuery(store, [topic_of(store, topic)], key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)


def by_unique_key(store: Searchable, topic: str | None, key: str, *, limit: int = LIMIT_DEFAULT) -> KeyQuery:
    """Query the messages with a unique key (`UNIQ_KEY`, the id that a producer receives), of one topic or of all.

    Raises:
        NotFound: The topic does not exist.
    """
    topics = list(store.topics.values()) if topic is None else [topic_of(store, topic)]
    return KeyQuery(store, topics, key, unique=True, limit=limit)


class KeyQuery(Query):
    """A query by key; `found` is the newest first.

    The index is brought up to date first. What it does not cover then (a full or failed disk) is read from the log, as
    far as bounds allow.

    Attributes:
        unsearched: Stretches [start, end) of the log that were neither in the index nor read: messages may be missing.
    """

    def __init__(
        self,
        store: Searchable,
        topics: list[Topic],
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = ALL_MS,
        limit: int = LIMIT_DEFAULT,
        unique: bool = False,
    ) -> None:
        super().__init__()
        self.unsearched: list[tuple[int, int]] = []
        self._store = store
        self._index = store.index
        self._key = key.encode("utf-8", "surrogatepass")
        self._topics = [topic.name_bytes for topic in topics]
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._limit = limit
        self._unique = unique
        self._places: dict[int, RecordSummary] = {}

    def steps(self) -> Generator[None, None, None]:
        """Search; see `Query.steps`."""
        index = self._index
        # Each round but the last found a file to be damaged, which is then made again.
        for _ in range(len(index.files) + 2):
            yield from self._catch_up()
            if (yield from self._search_files()):
                break
        yield from self._scan()
        for physical in sorted(self._places, reverse=True)[: self._limit]:
            try:
                self.found.append(message_of(self._store.read(physical, self._places[physical].size)))
            except (DamagedRecord, RecordGone):
                self.damaged += 1

    def _catch_up(self) -> Generator[None, None, None]:
        for _ in range(CATCH_UP_RECORDS_MAX // _STEP_RECORDS):
            if not self._index.step(_STEP_RECORDS):
                return
            yield

    def _search_files(self) -> Generator[None, None, bool]:
        """Search the index files, newest first; returns False when one of them was found to be damaged."""
        for file in reversed(self._index.files):
            if file.header.end_ms < self._begin_ms or file.header.begin_ms > self._end_ms:
                continue
            try:
                yield from file.verify()
                for number, topic in enumerate(self._topics, 1):
                    yield from self._search_file(file, topic)
                    if number % _BLOCK_UNITS == 0:
                        yield
            except IndexDamaged as error:
                self._index.distrust(file, str(error))
                return False
            except OSError as error:
                if self._index.holds(file):
                    self._index.distrust(file, str(error))
                    return False
            if len(self._places) >= self._limit:
                break
        return True

    def _search_file(self, file: IndexFile, topic: bytes) -> Generator[None, None, None]:
        key_hash = self._index.hash(topic, self._key)
        left = self._limit
        for count, physical in enumerate(file.find(key_hash, self._begin_ms, self._end_ms), 1):
            if physical not in self._places and self._judge(file, key_hash, physical):
                left -= 1
                if not left:
                    return
            if count % _BLOCK_UNITS == 0:
                yield

    def _judge(self, file: IndexFile, key_hash: int, physical: int) -> bool:
        """Whether an entry leads to a message that is looked for.

        Raises:
            IndexDamaged: It leads to something else than its hash says.
        """
        log = self._index.log
        if physical < log.min_offset:
            return False
        entry = _valid(self._store, physical)
        if entry is None:
            if file.sums is None or physical >= log.visible_end:
                raise IndexDamaged(file, f"an entry leads to commit-log offset {physical}, where no record begins")
            # The file was as it had been saved: if it still is, the record is what is damaged.
            run_now(file.verify(again=True))
            self.damaged += 1
            return False
        if self._wanted(entry.topic, entry.properties, entry.store_ms):
            self._places[physical] = entry
            return True
        if key_hash not in [self._index.hash(entry.topic, key) for key in may_keys_of(entry.properties)]:
            raise IndexDamaged(file, f"an entry leads to commit-log offset {physical}, whose record has other keys")
        return False

    def _wanted(self, topic: bytes, block: bytes, store_ms: int) -> bool:
        if topic not in self._topics or not self._begin_ms <= store_ms <= self._end_ms:
            return False
        return self._key in (unique_keys_of(block) if self._unique else keys_of(block))

    def _scan(self) -> Generator[None, None, None]:
        """Read what the index does not cover, the newest first."""
        left = SCAN_BYTES_MAX
        log = self._index.log
        for start, end in self._index.missing:
            begin = max(start, end - left)
            if begin > start:
                self.unsearched.append((start, begin))
            left -= end - begin
            while begin < end:
                records, begin = walk(log, begin, end, records_max=_STEP_RECORDS, bytes_max=_STEP_BYTES)
                for record in records:
                    wanted = not record.rollback and self._wanted(record.topic, record.properties, record.store_ms)
                    if wanted and (entry := _valid(self._store, record.physical)) is not None:
                        self._places[record.physical] = entry
                for place in sorted(self._places)[: -self._limit]:
                    del self._places[place]
                yield


class Listing(Query):
    """Messages of a topic in the order of the log, from an offset or a moment on; `found` is the oldest first.

    Attributes:
        cursor: Where the next listing continues: pass it with the same topic, queue and end. None when everything up to
            the end was listed.
        gone: Queues whose oldest requested messages were deleted: the first offset still stored, by queue id.
    """

    def __init__(
        self,
        store: Searchable,
        topic: str,
        *,
        queue: int | None = None,
        offset: int = 0,
        begin_ms: int = 0,
        end_ms: int = ALL_MS,
        cursor: int = 0,
        limit: int = LIMIT_DEFAULT,
        bytes_max: int = 1 << 62,
    ) -> None:
        """Set up; nothing is read yet.

        Args:
            store: Where.
            topic: Its name.
            queue: One queue, or None for all of them, merged by commit-log offset.
            offset: In one queue: the first offset.
            begin_ms: Stored at or after this moment, ms since the epoch.
            end_ms: Stored before this one.
            cursor: Of an earlier listing, 0 at first.
            limit: Maximum number.
            bytes_max: Stop after this number of bytes of records (at least one record).

        Raises:
            NotFound: The topic or queue does not exist.
        """
        super().__init__()
        self.cursor: int | None = cursor
        self._store = store
        self._queues = topic_of(store, topic).queues if queue is None else [queue_of(store, topic, queue)]
        self._offset = offset
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._limit = limit
        self._bytes_max = bytes_max

    def steps(self) -> Generator[None, None, None]:
        """List; see `Query.steps`."""
        streams = []
        for queue in list(self._queues):
            streams.append(self._units(queue, self._first(queue)))
            yield
        size_total = 0
        for count, (physical, size) in enumerate(heapq.merge(*streams), 1):
            if count % _BLOCK_UNITS == 0:
                yield
            if len(self.found) >= self._limit or size_total >= self._bytes_max:
                self.cursor = physical
                return
            try:
                message = message_of(self._store.read(physical, size))
            except (DamagedRecord, RecordGone):
                self.damaged += 1
                continue
            if message.store_ms >= self._end_ms:
                # Times never go back (D4): all that follow are newer.
                break
            size_total += size
            self.found.append(message)
        self.cursor = None

    def _first(self, queue: ConsumeQueue) -> int:
        first = max(self._offset, queue.min_offset)
        if self._begin_ms > 0:
            first = max(first, offset_at(self._store, queue, self._begin_ms))
        if self.cursor:
            first = max(first, offset_from(queue, self.cursor))
        return first

    def _units(self, queue: ConsumeQueue, offset: int) -> Iterator[tuple[int, int]]:
        end = queue.max_offset
        while offset < end:
            try:
                units = queue.read(offset, min(_BLOCK_UNITS, end - offset))
            except RecordGone:
                # Retention continued meanwhile.
                offset = max(queue.min_offset, offset + 1)
                continue
            offset += len(units)
            yield from ((physical, size) for physical, size, _ in units if size != FILLER_SIZE)
