"""Reads records again, by a consumer that belongs to no group."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from broker.runtime.seams import Clock
from upstream.calls.seams import ThreadLoop
from upstream.kafka.link import Gap, KafkaPartition, KafkaRecord, RecordsRead
from upstream.kafka_client.package import KafkaUnusable, confluent
from upstream.kafka_client.posting import Post
from upstream.kafka_client.records import record_of
from upstream.kafka_client.settings import Settings

_POLL_SECONDS = 0.1
_BATCH = 500
_GAP_MAX = 1_000
"""Offsets that are not wanted are read over, up to so many; beyond it is cheaper to ask again."""
_AGAIN_SECONDS = 1.0
_NOTHING_SECONDS = 75.0
"""When nothing came of a partition for so long, another consumer reads it (`upstream.kafka.positions.log_watch`)."""


class _Asked(NamedTuple):
    offsets: Sequence[int]
    there: RecordsRead


class _Work:
    """What is wanted of one partition at present."""

    def __init__(self, place: KafkaPartition, now: float) -> None:
        self.place = place
        self.heard_at = now
        self.given_up_at: float | None = None
        """The cluster says that it does not have the partition: until then it may say otherwise."""
        self.asked: list[_Asked] = []
        self.wanted: list[int] = []
        self.found: dict[int, KafkaRecord] = {}
        self.gaps: list[Gap] = []

    def add(self, asked: _Asked) -> None:
        """Want more."""
        self.asked.append(asked)
        self.wanted = sorted({*self.wanted, *asked.offsets})

    def reached(self, offset: int) -> None:
        """Note that no record lies between the first offset that is wanted and this one."""
        if self.wanted and self.wanted[0] < offset:
            self.gaps.append((self.wanted[0], offset))
            self.wanted = [each for each in self.wanted if each >= offset]

    def gone(self) -> None:
        """Note that the cluster does not have the partition: what its log had is not known."""
        self.wanted, self.found, self.gaps = [], {}, []

    def passed(self, offset: int) -> bool:
        """Note that all before an offset was seen; whether the next one that is wanted is far ahead."""
        self.wanted = [each for each in self.wanted if each >= offset]
        return bool(self.wanted) and self.wanted[0] - offset > _GAP_MAX


class LibrdkafkaReader:
    """`upstream.kafka.link.PartitionReader`: partitions side by side, what is asked of one together."""

    def __init__(self, client_id: str, *, settings: Settings, loop: ThreadLoop, clock: Clock) -> None:
        """Make the consumer.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
        """
        self._post = Post(loop)
        self._package = confluent()
        self._end_code = self._package.KafkaError._PARTITION_EOF
        self._consumer = settings.reader(client_id)
        self._client_id = client_id
        self._settings = settings
        self._clock = clock
        self._asked: SimpleQueue[tuple[KafkaPartition, _Asked] | None] = SimpleQueue()
        self._work: dict[KafkaPartition, _Work] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-read-{settings.cluster}")
        self._thread.start()

    def fetch(self, place: KafkaPartition, offsets: Sequence[int], there: RecordsRead) -> None:
        """Read records again."""
        self._asked.put((place, _Asked(list(offsets), there)))

    def close(self) -> None:
        """Read nothing more; what was asked for is not reported."""
        self._closed.set()
        self._asked.put(None)

    def _live(self) -> None:
        while not self._closed.is_set():
            if not self._take():
                continue
            try:
                self._assign()
                while self._work and not self._closed.is_set() and self._asked.empty():
                    self._read()
            except (self._package.KafkaException, KafkaUnusable):
                self._closed.wait(_AGAIN_SECONDS)
        with contextlib.suppress(self._package.KafkaException, RuntimeError):
            self._consumer.close()

    def _take(self) -> bool:
        """Take what is asked for now, waiting where nothing is; whether anything is to be read."""
        with contextlib.suppress(Empty):
            asked = self._asked.get() if not self._work else self._asked.get_nowait()
            while asked is not None:
                place, one = asked
                self._work.setdefault(place, _Work(place, self._clock.monotonic())).add(one)
                asked = self._asked.get_nowait()
        self._report_finished()
        return bool(self._work)

    def _assign(self) -> None:
        make = self._package.TopicPartition
        self._consumer.assign([make(*place, work.wanted[0]) for place, work in self._work.items()])

    def _read(self) -> None:
        self._settings.give_password(self._consumer)
        first = self._consumer.poll(_POLL_SECONDS)
        again = False
        for message in () if first is None else (first, *self._consumer.consume(_BATCH - 1, 0)):
            again = self._note(message) or again
        if self._report_finished() or self._begins_anew() or again:
            self._assign()

    def _begins_anew(self) -> bool:
        """Have another consumer, if nothing came of a partition for long; whether it was so."""
        now = self._clock.monotonic()
        if all(now - each.heard_at < _NOTHING_SECONDS for each in self._work.values()):
            return False
        consumer = self._settings.reader(self._client_id)
        self._consumer.close()
        self._consumer = consumer
        for each in self._work.values():
            each.heard_at = now
        return True

    def _note(self, message: Any) -> bool:
        """Keep what is wanted of one message; whether the next wanted one is far ahead."""
        work = self._work.get(KafkaPartition(message.topic() or "", message.partition()))
        error = message.error()
        if work is None:
            return False
        work.heard_at = self._clock.monotonic()
        before, work.given_up_at = work.given_up_at, None
        if error is not None:
            if error.code() == self._end_code:
                # What was read once is below the end: the rest is not there any more.
                work.reached(max(message.offset(), work.wanted[-1] + 1) if work.wanted else 0)
            elif error.code() in (
                self._package.KafkaError.UNKNOWN_TOPIC_OR_PART,
                self._package.KafkaError._UNKNOWN_PARTITION,
                self._package.KafkaError._UNKNOWN_TOPIC,
            ):
                # Not the end of its log: a broker that was restarted does not know its topics for a moment.
                work.given_up_at = before or work.heard_at + _AGAIN_SECONDS
            return False
        offset = message.offset()
        work.reached(offset)
        if work.wanted and offset in work.wanted[:_GAP_MAX]:
            work.found[offset] = record_of(message)
        return work.passed(offset + 1)

    def _report_finished(self) -> bool:
        now = self._clock.monotonic()
        for work in self._work.values():
            if work.given_up_at is not None and now >= work.given_up_at:
                work.gone()
        finished = [each for each in self._work.values() if not each.wanted]
        for work in finished:
            del self._work[work.place]
            for asked in work.asked:
                records = [work.found[each] for each in asked.offsets if each in work.found]
                gaps = [gap for gap in work.gaps if any(gap[0] <= each < gap[1] for each in asked.offsets)]
                self._post(asked.there, records, gaps)
        if finished and not self._work:
            self._consumer.unassign()
        return bool(finished) and bool(self._work)
