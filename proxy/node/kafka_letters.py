"""Dead letters of a group over Kafka: read page by page beside the loop, and redriven.

A redrive writes records and marks in one transaction: each record to its topic, and into the partition of its dead
letter a mark, a record with a null value and a header with the letter's offset. So a dead letter is redriven and known
to be, to every node, or neither. The transactional id is the group's: a redrive fences one that another node has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from broker.format.message import LogMessage
from broker.format.numbers import whole_number
from broker.retry.letters import DeadLetterFilter, Letter, place_of
from broker.retry.redrive import Earlier
from upstream.kafka.broker import DEAD_LETTER_SUFFIX
from upstream.kafka.dead_letters import FACT_PREFIX
from upstream.kafka.headers import ID_NAME, KEY_NAME, TAG_NAME, decode, message_id
from upstream.kafka.link import KafkaFailure, KafkaRecord, KafkaTransactions, OutgoingRecord, ScanFound, TopicScan

Scan = Callable[[TopicScan], Awaitable[ScanFound]]
"""Looks through a topic of the cluster. Raises KafkaFailure."""

SCAN_BYTES = 16 << 20
"""Bytes of records that one scan looks at."""
MARK = FACT_PREFIX + "redriven"
"""Header of a mark: the offset of a redriven dead letter, in the mark's partition."""
_TOPIC = FACT_PREFIX + "topic"
_UNKNOWN_REASON = "unknown (written by another program)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLetter(Letter):
    """A dead letter in Kafka.

    Attributes:
        record: Its record.
    """

    record: KafkaRecord

    @property
    def id(self) -> str:
        """Its partition and offset."""
        return f"{self.queue_id}:{self.offset}"


class KafkaLetterPage(NamedTuple):
    """A page of dead letters.

    Attributes:
        letters: Those that are wanted.
        looked_at: How many dead letters were looked at.
        cursor: Where the next page begins; None after the last one.
    """

    letters: Sequence[KafkaLetter]
    looked_at: int
    cursor: str | None


class WriteEnd(NamedTuple):
    """How a transaction ended.

    Attributes:
        failure: Why it was not committed; None: it was.
        refused: Topics that refused their records.
        offsets: Of the records, where it was committed.
    """

    failure: KafkaFailure | None
    refused: Mapping[str, KafkaFailure]
    offsets: Sequence[int]


class KafkaLetters:
    """Dead letters of one group.

    Args:
        group: The group.
        scan: Looks through topics of its cluster.
        transactions: Makes what writes under a transactional id.
    """

    def __init__(self, group: str, scan: Scan, transactions: Callable[[str], KafkaTransactions]) -> None:
        self.topic = group + DEAD_LETTER_SUFFIX
        self.scan = scan
        self._group = group
        self._transactions = transactions
        self._opening = asyncio.Lock()
        self._redriving = asyncio.Lock()
        self._read: dict[int, int] = {}
        """Up to which offset marks are known, by partition."""
        self._marks: dict[tuple[int, int], Earlier] = {}

    async def open(self) -> Mapping[int, tuple[int, int]]:
        """Read the marks that are not known yet; returns first offset and end by partition. Raises KafkaFailure."""
        async with self._opening:
            while True:
                scan = TopicScan(self.topic, is_mark, offsets=dict(self._read), bytes_max=SCAN_BYTES)
                found = await self.scan(scan)
                ends = {partition: end for partition, (_, end) in found.bounds.items()}
                if any(at > ends.get(partition, 0) for partition, at in self._read.items()):
                    # The topic was created again.
                    self._read, self._marks = {}, {}
                    continue
                for record in found.records:
                    self._note(record)
                self._read = dict(found.reached)
                if found.cursor is None:
                    break
        # Retention has deleted the others, and they cannot be redriven again.
        self._marks = {
            place: mark for place, mark in self._marks.items() if place[1] >= found.bounds.get(place[0], (0, 0))[0]
        }
        return found.bounds

    def earlier(self, letter: KafkaLetter) -> Earlier | None:
        """Return the last redrive of a dead letter; None: there was none."""
        return self._marks.get((letter.queue_id, letter.offset))

    async def page(self, wanted: DeadLetterFilter, cursor: str | None, limit: int) -> KafkaLetterPage:
        """Return a page of dead letters. Raises KafkaFailure, QueryRefused."""
        place = place_of(cursor)
        looked = _LettersLooked(wanted)
        found = await self.scan(
            TopicScan(self.topic, looked.matches, begin=place, count_max=limit, bytes_max=SCAN_BYTES)
        )
        letters = [letter_of(each) for each in found.records]
        return KafkaLetterPage(letters, looked.count, None if found.cursor is None else "{}:{}".format(*found.cursor))

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[LetterWriting]:
        """Yield what writes records to one topic, with marks, as one transaction. Raises KafkaFailure."""
        async with self._redriving:
            writer = self._transactions(f"__pyddmq_redrive-{self._group}")
            try:
                writing = LetterWriting(writer)
                await writing.begin()
                yield writing
            finally:
                writer.close()

    def note(self, letter: KafkaLetter, topic: str, at_ms: int) -> None:
        """Know that a dead letter was redriven, before its mark is read."""
        self._marks[letter.queue_id, letter.offset] = Earlier(-1, topic, at_ms)

    def _note(self, record: KafkaRecord) -> None:
        facts = dict(record.headers)
        offset = whole_number((facts[MARK] or b"").decode("latin-1"), 18)
        if offset is not None:
            topic = (facts.get(_TOPIC) or b"").decode("utf-8", "replace")
            self._marks[record.partition, offset] = Earlier(-1, topic, max(0, record.timestamp_ms))


class LetterWriting:
    """Transactions of one redrive."""

    def __init__(self, writer: KafkaTransactions) -> None:
        self._writer = writer

    async def begin(self) -> None:
        """Be the only one who writes; what is open of an earlier transaction never counts. Raises KafkaFailure."""
        begun: asyncio.Future[KafkaFailure | None] = asyncio.get_running_loop().create_future()
        self._writer.begin(begun.set_result)
        if (failure := await begun) is not None:
            raise failure

    async def write(self, records: Sequence[OutgoingRecord]) -> WriteEnd:
        """Write records, the first of which names the topic that has seconds to acknowledge its own."""
        end: asyncio.Future[WriteEnd] = asyncio.get_running_loop().create_future()

        def written(failure: KafkaFailure | None, refused: Mapping[str, KafkaFailure], offsets: Sequence[int]) -> None:
            end.set_result(WriteEnd(failure, refused, offsets))

        self._writer.write(records, written, alone=records[0].topic)
        return await end


class _LettersLooked:
    """Counts dead letters that are looked at; called in another thread."""

    def __init__(self, wanted: DeadLetterFilter) -> None:
        self._wanted = wanted
        self.count = 0

    def matches(self, record: KafkaRecord) -> bool:
        """Whether a record is a wanted dead letter."""
        if is_mark(record):
            return False
        self.count += 1
        return self._wanted.matches(letter_of(record))


def is_mark(record: KafkaRecord) -> bool:
    """Whether a record of a dead-letter topic says that another one was redriven."""
    return any(name == MARK for name, _ in record.headers)


def mark(letter: KafkaLetter, topic: str) -> OutgoingRecord:
    """Return the record that says that a dead letter was redriven to a topic."""
    headers = [(MARK, b"%d" % letter.offset), (_TOPIC, topic.encode())]
    return OutgoingRecord(letter.record.topic, letter.queue_id, letter.record.key, None, headers)


def redriven(letter: KafkaLetter, topic: str, partition: int | None) -> OutgoingRecord:
    """Return the record of a redriven dead letter: the same, without what its death added."""
    record = letter.record
    headers = [(name, value) for name, value in record.headers if not name.startswith(FACT_PREFIX)]
    return OutgoingRecord(topic, partition, record.key, record.value, headers)


def letter_of(record: KafkaRecord) -> KafkaLetter:
    """Return a record of a dead-letter topic as a dead letter."""
    facts = {
        name.removeprefix(FACT_PREFIX): value.decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(FACT_PREFIX) and value is not None
    }
    key, tag, _ = decode(record)
    sent_ms = max(0, record.timestamp_ms)
    message = LogMessage(
        topic=record.topic,
        queue_id=record.partition,
        offset=record.offset,
        physical=0,
        size=0,
        born_ms=whole_number(facts.get("timestamp", ""), 18) or sent_ms,
        born_host=b"",
        store_ms=sent_ms,
        store_host=b"",
        sys_flag=0,
        flag=0,
        reconsume_times=whole_number(facts.get("attempts", ""), 9) or 0,
        # Not 0: its facts are the proxy's own.
        prepared_offset=1,
        stored_body=memoryview(record.value or b""),
        properties={
            KEY_NAME: key,
            TAG_NAME: tag,
            ID_NAME: message_id(record),
            "DLQ_ORIGIN_TOPIC": facts.get("topic", ""),
            "DLQ_ORIGIN_QUEUE": facts.get("partition", ""),
            "DLQ_ORIGIN_OFFSET": facts.get("offset", ""),
            "DLQ_REASON": facts.get("reason") or _UNKNOWN_REASON,
            "DLQ_ACTION": facts.get("action", ""),
        },
    )
    return KafkaLetter(queue_id=record.partition, offset=record.offset, message=message, record=record)
