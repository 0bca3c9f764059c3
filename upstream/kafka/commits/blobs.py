"""Commits that are too large for Kafka's text: the rest of them in a compacted topic, named by the text (D53).

A blob is written, and acknowledged by all in-sync replicas, before the commit that names it. So whatever a reader finds
in a text is there; and what no text names counts for nothing: the commit fences the blob.

Its key is the owner's: a name made when the owner got the partition, and one of two slots. The slot that the last
commit names is not written again before another commit has succeeded, so compaction takes nothing that is named. What
is not named any more gets a tombstone: the owner's own when its text has room again, those of the owner before once a
commit of the new one has succeeded.

Who reads one believes nothing: another length or sum than the text says, another version, group, topic, partition or
offset, and it is as if it were not there; what the text itself says of the rest counts then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from upstream.kafka.link import Gap, KafkaFailure, KafkaPartition, KafkaProducer, KafkaRecord, PartitionReader

BLOB_MAX = 900_000
"""Bytes of what a blob may say; with its head it fits into a record of Kafka's default size."""
READ_SECONDS = 10.0
"""After so long without the blob its partition continues without it."""
_AGAIN_SECONDS = 10.0
_VERSION = "b1"
_SUM = 32

WRITTEN = declare(
    "pyddmq_kafka_commit_blobs_total", "Commits whose text was too large and is in the commit topic.", ("group",)
)
UNREAD = declare(
    "pyddmq_kafka_commit_blobs_unread_total",
    "Blobs named by a commit that are missing, late or wrong: some messages are delivered again.",
    ("group",),
)


class Named(NamedTuple):
    """A blob as a text names it.

    Attributes:
        partition, offset: Where it is in the commit topic.
        sum: The first half of its SHA-256, in hexadecimal.
        key: The last part of its key.
    """

    partition: int
    offset: int
    sum: str
    key: str

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Named:
        """Read what `str` wrote. Raises ValueError."""
        partition, offset, checksum, key = text.split(".")
        numbers = int(partition), int(offset)
        if min(numbers) < 0 or len(checksum) != _SUM or not key.replace("-", "").isalnum() or len(key) > 40:
            raise ValueError("no name of a blob")
        return cls(*numbers, checksum, key)


NAME_MAX = 1 + 10 + 1 + 19 + 1 + _SUM + 1 + 18
"""Characters of a name at most."""


class _Owner:
    """What one owner of a partition has written.

    Attributes:
        name: The owner's.
        named: The key that the last commit names.
        written: Keys of which no tombstone was written.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.named = ""
        self.written: set[str] = set()


class Blobs:
    """Writes and reads those of one group."""

    def __init__(
        self, group: str, topic: str, *, reader: PartitionReader, producer: KafkaProducer, runtime: Runtime
    ) -> None:
        """Set up; `topic` is the commit topic."""
        self._group = group
        self._topic = topic
        self._reader = reader
        self._producer = producer
        self._runtime = runtime
        self._owners: dict[KafkaPartition, _Owner] = {}
        self._not_before = 0.0

    def own(self, place: KafkaPartition, before: Named | None) -> None:
        """Begin with a partition that was given; `before` is what its committed text names."""
        fact = f"{place} {self._runtime.clock.wall_us()}"
        owner = self._owners[place] = _Owner(hashlib.sha256(fact.encode()).hexdigest()[:16])
        if before is not None:
            # Only one of its slots is named; the other may hold the one before.
            name = before.key.rpartition("-")[0]
            owner.written |= {f"{name}-{slot}" for slot in (0, 1)}

    def write(
        self, place: KafkaPartition, offset: int, text: str, done: Callable[[Named | None], None], *, seconds: float
    ) -> None:
        """Write what a commit of an offset has no room for.

        Args:
            place: The partition.
            offset: The offset that will be committed.
            text: What is known of it.
            done: Told where it is, or None: it is not known to stand anywhere. May be called at once.
            seconds: After so long without an acknowledgement it is called with None.
        """
        owner = self._owners.get(place)
        now = self._runtime.clock.monotonic()
        if owner is None or now < self._not_before:
            done(None)
            return
        key = f"{owner.name}-{int(owner.named.endswith('-0'))}"
        owner.written.add(key)
        value = _value(self._group, place, offset, text)
        ended = False

        def end(named: Named | None) -> None:
            nonlocal ended
            if not ended:
                ended = True
                patience.cancel()
                done(named)

        def refused(failure: KafkaFailure) -> None:
            self._not_before = self._runtime.clock.monotonic() + _AGAIN_SECONDS
            self._runtime.limited_log.note(
                "commit_blob_refused", self._group, topic=self._topic, of=place.topic, error=str(failure)
            )
            end(None)

        def produced(failure: KafkaFailure | None, partition: int, at: int) -> None:
            if failure is not None:
                refused(failure)
            else:
                self._runtime.metrics.counter(WRITTEN, self._group).add()
                end(Named(partition, at, _sum(value), key))

        late = KafkaFailure("TIMED_OUT", "not acknowledged in time", unknown=True)
        patience = self._runtime.scheduler.call_later(seconds, refused, late)
        try:
            self._producer.produce(self._topic, None, self._key(place, key), value, (), produced)
        except KafkaFailure as failure:
            refused(failure)

    def committed(self, place: KafkaPartition, named: Named | None) -> None:
        """Note that a commit of a partition has succeeded, with what it names; the rest is let die."""
        owner = self._owners.get(place)
        if owner is None:
            return
        owner.named = "" if named is None else named.key
        kept = {owner.named} if named is not None else set()
        # The other slot of this owner is the next one's.
        gone = {key for key in owner.written - kept if named is None or not key.startswith(owner.name)}
        for key in gone:
            owner.written.discard(key)
            try:
                self._producer.produce(self._topic, None, self._key(place, key), None, (), lambda *_: None)
            except KafkaFailure:
                # It is small, and stays until Kafka's compaction.
                continue

    def read(self, named: Named, place: KafkaPartition, offset: int, there: Callable[[str | None], None]) -> None:
        """Read what a committed text names.

        Args:
            named: The blob.
            place: The partition whose text it was.
            offset: The committed offset.
            there: Told, some time later, what it says; None: it is not there, or not what the text says.
        """
        ended = False

        def end(text: str | None) -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            patience.cancel()
            if text is None:
                self._runtime.metrics.counter(UNREAD, self._group).add()
                self._runtime.limited_log.note(
                    "commit_blob_unread", self._group, topic=self._topic, of=place.topic, partition=place.partition
                )
            there(text)

        def come(records: Sequence[KafkaRecord], _: Sequence[Gap]) -> None:
            value = next((each.value for each in records if each.offset == named.offset), None)
            end(None if value is None else _text(value, named, self._group, place, offset))

        patience = self._runtime.scheduler.call_later(READ_SECONDS, end, None)
        self._reader.fetch(KafkaPartition(self._topic, named.partition), [named.offset], come)

    def _key(self, place: KafkaPartition, key: str) -> bytes:
        return json.dumps([self._group, place.topic, place.partition, key]).encode()


def _sum(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:_SUM]


def _head(group: str, place: KafkaPartition, offset: int) -> bytes:
    return json.dumps([_VERSION, group, place.topic, place.partition, offset]).encode() + b"\n"


def _value(group: str, place: KafkaPartition, offset: int, text: str) -> bytes:
    return _head(group, place, offset) + text.encode()


def _text(value: bytes, named: Named, group: str, place: KafkaPartition, offset: int) -> str | None:
    """What a blob says, if it is the one that is meant."""
    head = _head(group, place, offset)
    if _sum(value) != named.sum or not value.startswith(head) or len(value) > len(head) + BLOB_MAX:
        return None
    try:
        return value[len(head) :].decode("ascii")
    except UnicodeDecodeError:
        return None
