"""What a store remembers of deduplicating producers: opened from its checkpoint and the log, saved, asked.

The log decides (D27, D39): the checkpoint only saves reading it. One that says more than the log, because a power loss
under `flush: async` took the end of that, is not believed, and rewritten before anything is appended.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

import structlog

from broker.deduplication import metrics as counted
from broker.deduplication.numbers import MARK, NAME_BYTES, NUMBER_MAX, Numbered, are_in_order, parse_key
from broker.deduplication.window import ELSEWHERE, MISSING, OLDER, DeduplicationWindow, ProducerWindow, WindowLimits
from broker.errors import DamagedRecord, MessageRefused, RecordGone
from broker.format.properties import find_property
from broker.format.record import RecordSummary, prepared_offset
from broker.log.durability import AwaitedSteps, saved
from broker.log.walk import Walked
from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, StateWriter, can_wait
from broker.runtime.sealed_file import read_whole, writing_whole
from broker.runtime.store_metrics import FILES_DAMAGED
from broker.runtime.sums import crc32
from broker.store import Store

# `pyddmq/deduplication`: the producers as they were at a commit-log offset. Bytes only.
#
# A head (magic, version, the offset, how many), each producer (name, first number, time, how many offsets, the
# offsets), and the CRC-32 of all before; big-endian.


_MAGIC = b"PYDDMQDD"
_VERSION = 1
_HEAD = struct.Struct(">8sIQI")
_PRODUCER = struct.Struct(f">{NAME_BYTES}sQqI")
_SUM = struct.Struct(">I")


class CheckpointDamaged(ValueError):
    """The bytes are no checkpoint, or not whole."""


def encode(producers: Mapping[bytes, ProducerWindow], end: int) -> bytes:
    """Return the checkpoint of what is known below a commit-log offset."""
    parts: list[bytes] = []
    for name, producer in producers.items():
        places = producer.places
        if producer.last_place >= end:
            places = _below(places, end)
        if places:
            big = places if sys.byteorder == "big" else array("q", places)
            if big is not places:
                big.byteswap()
            parts += (_PRODUCER.pack(name, producer.low, producer.last_ms, len(places)), big.tobytes())
    content = b"".join((_HEAD.pack(_MAGIC, _VERSION, end, len(parts) // 2), *parts))
    return content + _SUM.pack(crc32(content) & 0xFFFFFFFF)


def _below(places: array[int], end: int) -> array[int]:
    kept = array("q", [place if place < end else MISSING for place in places])
    while kept and kept[-1] == MISSING:
        kept.pop()
    return kept


def decode(raw: bytes) -> tuple[int, Iterator[tuple[bytes, ProducerWindow]]]:
    """Return the offset and the producers, read as they are asked for.

    Raises:
        CheckpointDamaged: It is not whole; also while they are read.
    """
    if len(raw) < _HEAD.size + _SUM.size or _SUM.unpack_from(raw, len(raw) - _SUM.size)[0] != (
        crc32(raw[: -_SUM.size]) & 0xFFFFFFFF
    ):
        raise CheckpointDamaged("its checksum is wrong")
    magic, version, end, count = _HEAD.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION:
        raise CheckpointDamaged(f"its beginning is {magic!r}, version {version}")
    return end, _producers(raw, count)


def _producers(raw: bytes, count: int) -> Iterator[tuple[bytes, ProducerWindow]]:
    at = _HEAD.size
    limit = len(raw) - _SUM.size
    for _ in range(count):
        if at + _PRODUCER.size > limit:
            raise CheckpointDamaged("it ends within a producer")
        name, low, last_ms, places_count = _PRODUCER.unpack_from(raw, at)
        at += _PRODUCER.size
        end = at + 8 * places_count
        key = name + b"%012X" % low if low <= NUMBER_MAX else b""
        if end > limit or not name.startswith(MARK) or parse_key(key) is None:
            raise CheckpointDamaged("it has an invalid producer")
        places = array("q", raw[at:end])
        if sys.byteorder != "big":
            places.byteswap()
        at = end
        yield name, ProducerWindow(low, places, last_ms)
    if at != limit:
        raise CheckpointDamaged("it has bytes behind its end")


FILE = "pyddmq/deduplication"
_KEY_NAME = b"UNIQ_KEY"
_MARKED = b"%b\x01%b" % (_KEY_NAME, MARK)
_STEP_RECORDS = 1024
_MOMENTS_KEPT = 60
"""So exact is the silence: to a sixtieth of it."""

log = structlog.get_logger()

__all__ = ["ELSEWHERE", "FILE", "MISSING", "OLDER", "Deduplication", "NumberedRun", "WindowLimits"]


class NumberedRun(NamedTuple):
    """What is known of messages that one producer numbered in a row.

    Attributes:
        first: Its name, and the number of the first of them.
        places: Of each the commit-log offset of its record, OLDER, ELSEWHERE or MISSING; empty when all are new.
            None: a gap.
    """

    first: Numbered
    places: Sequence[int] | None

    @property
    def key(self) -> bytes:
        """UNIQ_KEY of the first of them."""
        return b"%b%012X" % self.first


class Deduplication:
    """The memory of one store, and its `broker.retention.RetentionHold`: a log file goes when the checkpoint covers it.

    Attributes:
        window: What is known.
    """

    def __init__(self, store: Store, runtime: Runtime, limits: WindowLimits) -> None:
        """Set up; `opening` makes one that knows what the store has."""
        metrics = runtime.metrics
        self.window = DeduplicationWindow(limits, metrics)
        self._clock = runtime.clock
        self._moments: deque[tuple[float, int]] = deque()
        """Monotonic seconds, and the store's time then, over the last `silence_ms`."""
        self._store = store
        self._disk = runtime.disk
        self._metrics = metrics
        self._path = f"{store.root}/{FILE}"
        self._saved_end = self._tried_end = -1
        self._state_writer = StateWriter(runtime.disk, store.file_writes, self._writing_some_time)
        self._gaps = metrics.counter(counted.GAPS)
        self._repeated = metrics.counter(counted.REPEATED, "first_receipt")
        self._older = metrics.counter(counted.REPEATED, "older")

    @classmethod
    def opening(cls, store: Store, runtime: Runtime, limits: WindowLimits) -> Generator[None, None, Deduplication]:
        """Find out what a store has that was just opened, in steps of bounded work. Raises OSError."""
        made, disk = cls(store, runtime, limits), runtime.disk
        start = made._load()
        position = made._window_start() if start is None else start
        if position < store.end:
            log.info("deduplication_reading_log", start=position, end=store.end, checkpoint=start is not None)
        while position < store.end:
            records, position = store.walk(position, _STEP_RECORDS)
            for record in records:
                made._take(record)
            yield
        if start is None or start < store.end:
            # Before the first append: a checkpoint that says more than the log would fit it again one day.
            try:
                made._state_writer.now(made._writing())
            except OSError as error:
                if not can_wait(error):
                    raise
                if disk.exists(made._path):
                    disk.remove(made._path)
                    disk.sync_folder(made._path.rpartition("/")[0])
        return made

    def _load(self) -> int | None:
        """Take the checkpoint; returns the log offset up to which it holds, None when there is none to believe."""
        raw = read_whole(self._disk, self._path)
        if raw is None:
            return None
        try:
            end, producers = decode(raw)
            for name, producer in producers:
                self.window.restore(name, producer)
        except CheckpointDamaged as error:
            self.window.clear()
            self._metrics.counter(FILES_DAMAGED, FILE).add()
            log.error("deduplication_checkpoint_damaged", path=self._path, why=str(error))
            return None
        if end > self._store.end:
            self.window.clear()
            return None
        self._saved_end = end
        return end

    def _window_start(self) -> int:
        """Commit-log offset from which on the log may have something of the window."""
        store = self._store
        segment_bytes = store.options.segment_bytes
        since_ms = store.store_ms - self.window.limits.silence_ms
        start = store.end // segment_bytes * segment_bytes
        while start > store.min_offset:
            entry = store.record_at(start) if start < store.end else None
            if entry is not None and entry.store_ms < since_ms:
                return start
            start -= segment_bytes
        return store.min_offset

    def _take(self, record: Walked) -> None:
        """Enter a record that has a number and takes no other one's place."""
        if _MARKED not in record.properties:
            return
        numbered = parse_key(find_property(record.properties, _KEY_NAME) or b"")
        if numbered is None:
            return
        try:
            replaced = prepared_offset(self._store.read(record.physical, record.size))
        except (DamagedRecord, RecordGone):
            return
        if not replaced:
            self.window.seen(numbered.name, numbered.number, record.physical, record.store_ms)

    # Sends

    def judge(self, keys: list[bytes]) -> NumberedRun:
        """Say what is known of messages that came together, by their keys.

        Raises:
            MessageRefused: The keys are none, or not of one producer's messages in order.
        """
        first = parse_key(keys[0])
        if first is None:
            raise MessageRefused(
                f"invalid uniqKey {keys[0][:40]!r}: 32 upper-case hex digits that start with FE, whose last "
                "twelve are not below the producer's first number (docs/deduplication.md)"
            )
        if not are_in_order(keys, first):
            raise MessageRefused("the uniqKeys of a batch must be those of one producer's messages in order")
        places = self.window.look(first.name, first.number, len(keys))
        if places is None:
            self._gaps.add(len(keys))
        elif places:
            known = len(places) - places.count(MISSING)
            older = places.count(OLDER)
            self._repeated.add(known - older)
            self._older.add(older)
        return NumberedRun(first, places)

    def stored(self, judged: NumberedRun, places: Sequence[int]) -> None:
        """Enter the commit-log offsets of messages that were judged new and are staged now."""
        name, number = judged.first
        if not judged.places:
            self.window.stored(name, number, places, self._store.store_ms)
            return
        missing = [at for at, place in enumerate(judged.places) if place == MISSING]
        for at, place in zip(missing, places, strict=True):
            self.window.seen(name, number + at, place, self._store.store_ms)

    def begun(self, judged: NumberedRun, places: Sequence[int]) -> None:
        """As `stored`, of messages of which some are under way to another log: their places are MISSING as yet."""
        name, number = judged.first
        if not judged.places:
            self.window.begun(name, number, places, self._store.store_ms)
            return
        self.stored(judged, places)

    def stored_elsewhere(self, numbered: Numbered) -> None:
        """Enter that a message which was begun is stored in another log; nothing where its producer was forgotten."""
        if self.window.next_of(numbered.name) is not None:
            self.window.seen(numbered.name, numbered.number, ELSEWHERE, self._store.store_ms)

    def is_last(self, numbered: Numbered) -> bool:
        """Whether nothing was stored or begun of a message's producer behind it."""
        return self.window.next_of(numbered.name) == numbered.number + 1

    def record_of(self, key: bytes, place: int) -> RecordSummary | None:
        """Return what the record at a place says; None when it is gone, damaged, or another message's."""
        entry = self._store.record_at(place) if place >= self._store.min_offset else None
        if entry is None or find_property(entry.properties, _KEY_NAME) != key:
            return None
        return entry

    # The checkpoint

    def tick(self) -> None:
        """Do what is due; call it about once a second."""
        if self._store.failed is not None or self._store.closed:
            return
        self._forget_silent()
        if self._store.end - self._saved_end >= LOG_BYTES_MAX:
            self.begin_writing()

    def _forget_silent(self) -> None:
        """Forget who sent nothing for so long while the node lived, wherever the wall clock was set meanwhile.

        Timestamps only order producers: a producer is silent if its last one is below the store's time of that long
        ago.
        """
        moments, now = self._moments, self._clock.monotonic()
        silence_ms = self.window.limits.silence_ms
        if not moments or now - moments[-1][0] >= silence_ms / 1000 / _MOMENTS_KEPT:
            moments.append((now, self._store.store_ms))
        since = now - silence_ms / 1000
        while len(moments) > 1 and moments[1][0] <= since:
            moments.popleft()
        if moments[0][0] <= since:
            self.window.forget(moments[0][1] + silence_ms)

    def begin_writing(self) -> None:
        """Write the checkpoint beside the loop; nothing when that is under way."""
        self._state_writer.begin()

    def close(self) -> None:
        """Save what is known; call it before the store is closed."""
        if self._store.failed is None and not self._store.closed:
            self._store.flush()
        if self._store.failed is None and not self._store.closed and self._store.end != self._saved_end:
            self._state_writer.now()

    def _writing(self) -> FileWrite:
        # Under `async` what is known is not on the disk yet, and the file must not be ahead of the log.
        self._store.make_durable()
        end = self._store.end
        yield from writing_whole(self._disk, self._path, encode(self.window.producers, end))
        self._saved_end = end

    def _writing_some_time(self) -> FileWrite:
        try:
            yield from self._writing()
        except OSError as error:
            if not can_wait(error):
                self._store.writes.fail("writing the checkpoint of deduplication", error)

    # Retention

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Nothing of a file is needed: see `broker.retention.RetentionHold`."""
        return False

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Save what the file says before it goes; a disk that is too full for that does not hold it."""
        if max(self._saved_end, self._tried_end) < expiring.end:
            self._tried_end = expiring.end
            yield from saved(self._store.writes, self._writing_some_time())
        return Relocation.DONE

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Nothing to do: a repeat whose record is gone is answered as one from before the window."""
