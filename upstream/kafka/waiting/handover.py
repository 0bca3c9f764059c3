"""Copies what waits in a store into a waiting topic, each message once, however often the copy is killed and resumed.

A copy takes its transactional id, which ends a former copy, and reads the waiting topic to its end: what is there is
not written again. Each batch is first noted as begun in the progress file, then written as one transaction, then noted
as copied. So after a kill the only messages of unknown outcome are those of batches that were begun and not copied. The
topic has them, or they were never written. After `remember_ms` the owner has forgotten what it delivered, and that
cannot be known any more: such messages are refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from broker.errors import StoreError
from broker.runtime.bundle import Runtime
from broker.runtime.seams import Disk, DiskFile
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.link import (
    Assignment,
    GroupMember,
    KafkaClient,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    OutgoingRecord,
    TopicSubscription,
)
from upstream.kafka.waiting.batches import BATCH_BYTES, BATCH_MESSAGES
from upstream.kafka.waiting.records import Damaged, Identity, WaitingRecord, encode, parse_key
from upstream.kafka.waiting.topics import WaitingSettings

_SILENT_SECONDS = 60.0
"""A cluster that says nothing for so long ends the copy."""
_MARK_BYTES = 16

T = TypeVar("T")


class HandoverStopped(Exception):
    """The copy cannot continue now; started again, it continues."""


class CopiedMessage(NamedTuple):
    """A message to be copied; its `at_ms` is set when it is written."""

    identity: Identity
    record: WaitingRecord


def mark_of(identity: Identity) -> bytes:
    """Return the name of an identity in the progress file."""
    return blake2b(identity.text, digest_size=_MARK_BYTES).digest()


class HandoverProgress:
    """The progress file of a copy: lines of JSON, each durable before the next step.

    Attributes:
        copied: Marks of messages that the topic has, or had.
        begun: Of those of unknown outcome when they were begun, ms since the epoch.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.copied: set[bytes] = set()
        self.begun: dict[bytes, int] = {}
        self._disk = disk
        self._path = path
        self._log = ""
        self._end = 0
        self._file: DiskFile | None = None
        if disk.exists(path):
            with closing(disk.open(path)) as file:
                self._read(file.read(0, file.size()))

    def check(self, log: str) -> None:
        """Check that it is of the topic with this id. Raises StoreError: of another."""
        if self._log and self._log != log:
            raise StoreError(
                f"{self._path} is of a copy into another waiting topic or cluster ({self._log}, now {log}); delete "
                "the file only if nothing that was copied there will be delivered"
            )

    def begin(self, log: str) -> None:
        """Have the file written, for the topic with this id; what a kill left of a line is cut off. Raises OSError."""
        created = not self._disk.exists(self._path)
        self._file = self._disk.open(self._path, create=True)
        self._file.truncate(self._end)
        if not self._log:
            self._log = log
            self._append({"log": log})
        if created:
            self._disk.sync_folder(self._path.rpartition("/")[0])

    def note_begun(self, marks: Sequence[bytes], now_ms: int) -> None:
        """Note that messages are about to be written."""
        self._append({"begun": now_ms, "marks": b"".join(marks).hex()})
        self.begun.update(dict.fromkeys(marks, now_ms))

    def note_copied(self, marks: Sequence[bytes]) -> None:
        """Note that messages are in the topic."""
        if marks:
            self._append({"copied": b"".join(marks).hex()})
            self._copied(marks)

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()

    def _append(self, line: dict[str, Any]) -> None:
        assert self._file is not None, "the progress is written after `begin`"
        data = json.dumps(line).encode() + b"\n"
        self._file.write(self._end, [data])
        self._file.sync()
        self._end += len(data)

    def _read(self, content: bytes) -> None:
        *lines, _ = content.split(b"\n")
        for line in lines:
            try:
                facts = json.loads(line)
                if "log" in facts:
                    self._log = str(facts["log"])
                elif "begun" in facts:
                    self.begun.update(dict.fromkeys(_marks(facts["marks"]), int(facts["begun"])))
                else:
                    self._copied(_marks(facts["copied"]))
            except (ValueError, TypeError, KeyError):
                # A kill left it; nothing is written behind such a line.
                break
            self._end += len(line) + 1

    def _copied(self, marks: Iterable[bytes]) -> None:
        for mark in marks:
            self.copied.add(mark)
            self.begun.pop(mark, None)


class _CallbackAnswer(Generic[T]):
    """What a callback is called with first; it may come when nothing waits for it any more."""

    def __init__(self) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def set(self, answer: T, *_: object) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class WaitingCopy:
    """A copy into the waiting topic of one cluster.

    Args:
        settings: Of the waiting topic.
        client: Reaches the cluster.
        runtime: Wall clock and randomness.
    """

    def __init__(self, settings: WaitingSettings, client: KafkaClient, runtime: Runtime) -> None:
        self._settings = settings
        self._client = client
        self._clock = runtime.clock
        self._random = runtime.random
        self._transactions = client.transactions(f"{settings.topic}-handover")

    async def look(self, topics: Sequence[str]) -> ClusterFacts:
        """Return the facts about these topics. Raises HandoverStopped: the cluster does not respond."""
        looked = _CallbackAnswer[ClusterFacts]()
        self._client.look(topics, looked.set)
        facts = await self._answered(looked.future)
        if facts.trouble:
            raise self._stopped(facts.trouble)
        return facts

    async def fence(self) -> None:
        """End a former copy: none of its records appears any more. Raises HandoverStopped."""
        ended = _CallbackAnswer[KafkaFailure | None]()
        self._transactions.begin(ended.set)
        failure = await self._answered(ended.future)
        if failure is not None:
            raise self._stopped(str(failure))

    async def present(self, wanted: Collection[bytes], partitions: int) -> set[bytes]:
        """Read the waiting topic to its end; return which of these marks it has.

        Args:
            wanted: Marks.
            partitions: How many the topic has.

        Raises:
            HandoverStopped: The cluster does not respond.
        """
        settings = self._settings
        group = f"{settings.answers_topic}-handover-{self._random.getrandbits(64):016x}"
        member = self._client.member(group, "pyddmq-handover")
        scan = _TopicScan(member, wanted, partitions)
        member.join(scan, [TopicSubscription(settings.topic)])
        try:
            while not scan.is_whole:
                scan.moved.clear()
                await self._answered(scan.moved.wait())
                if scan.failure:
                    raise self._stopped(scan.failure)
        finally:
            member.leave(lambda: None)
        return set(scan.live.values())

    async def copy(
        self, messages: Iterable[CopiedMessage], progress: HandoverProgress, report: Callable[[int], None]
    ) -> int:
        """Write messages that the topic does not have; return how many.

        Args:
            messages: Each identity once.
            progress: Begun.
            report: Called with the count after each batch.

        Raises:
            HandoverStopped: The cluster does not respond, or another copy has begun.
            OSError: The progress cannot be written.
        """
        count = 0
        for batch in _batches(messages):
            await self._write(batch, progress)
            count += len(batch)
            report(count)
        return count

    def close(self) -> None:
        """End."""
        self._transactions.close()

    def _record(self, identity: Identity, record: WaitingRecord) -> OutgoingRecord:
        settings = self._settings
        # A nonce of its own for each attempt: a message that another copy wrote is never replaced (D61).
        key = identity.key(f"{self._random.getrandbits(64):016x}")
        value = encode(record._replace(at_ms=self._clock.wall_ms()))
        return OutgoingRecord(settings.topic, identity.partition(settings.partitions), key, value)

    async def _write(self, batch: list[CopiedMessage], progress: HandoverProgress) -> None:
        marks = [mark_of(each.identity) for each in batch]
        progress.note_begun(marks, self._clock.wall_ms())
        ended = _CallbackAnswer[KafkaFailure | None]()
        self._transactions.write([self._record(*each) for each in batch], ended.set)
        failure = await self._answered(ended.future)
        if failure is not None:
            raise self._stopped("another handover has begun" if failure.fenced else str(failure))
        progress.note_copied(marks)

    async def _answered(self, waited: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(waited, _SILENT_SECONDS)
        except TimeoutError:
            raise self._stopped(f"no response within {_SILENT_SECONDS:.0f} s") from None

    def _stopped(self, why: str) -> HandoverStopped:
        return HandoverStopped(
            f"the copy to Kafka cluster {self._settings.cluster} stopped: {why}; run the same command again to continue"
        )


class _TopicScan:
    """`upstream.kafka.link.MemberListener` that reads a waiting topic once, from its start to its end.

    Attributes:
        live: By key of a record whose identity is wanted, the mark of that.
        moved: Set when something happened.
        failure: Why it cannot be read; "": it can.
    """

    def __init__(self, member: GroupMember, wanted: Collection[bytes], partitions: int) -> None:
        self.live: dict[bytes, bytes] = {}
        self.moved = asyncio.Event()
        self.failure = ""
        self._member = member
        self._wanted = wanted
        self._partitions = partitions
        self._ends: dict[KafkaPartition, int] = {}
        self._whole: set[KafkaPartition] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all was read."""
        return len(self._whole) >= self._partitions

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Read these whole."""
        for each in assignments:
            self._ends[each.place] = each.high
            self._member.read_from(each.place, each.low)
            self._reached(each.place, each.low)

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        """Give them up; what was read of them still counts."""
        self.lost([each for each in places if each not in self._whole])
        done()

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        """Fail where something is missing."""
        if set(places) - self._whole:
            self._fail("its partitions were revoked")

    def records(self, records: Sequence[KafkaRecord]) -> None:
        """Note which identities are there."""
        for each in records:
            self._note(each)
        for each in records[-1:]:
            self._reached(KafkaPartition(each.topic, each.partition), each.offset + 1)

    def _note(self, record: KafkaRecord) -> None:
        key = record.key or b""
        if record.value is None:
            self.live.pop(key, None)
            return
        try:
            identity, is_request = parse_key(key)
        except Damaged:
            return
        mark = mark_of(identity)
        if not is_request and mark in self._wanted:
            self.live[key] = mark

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        """Note how far it was read."""
        self._reached(place, offset)

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        """Wait: the time limit ends what does not respond."""

    def broken(self, failure: KafkaFailure) -> None:
        """Fail."""
        self._fail(str(failure))

    def _reached(self, place: KafkaPartition, offset: int) -> None:
        if offset >= self._ends[place]:
            self._whole.add(place)
        self.moved.set()

    def _fail(self, why: str) -> None:
        self.failure = why
        self.moved.set()


def _batches(messages: Iterable[CopiedMessage]) -> Iterator[list[CopiedMessage]]:
    batch: list[CopiedMessage] = []
    size = 0
    for each in messages:
        batch.append(each)
        size += len(each.record.body)
        if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _marks(text: str) -> list[bytes]:
    raw = bytes.fromhex(text)
    return [raw[at : at + _MARK_BYTES] for at in range(0, len(raw), _MARK_BYTES)]
