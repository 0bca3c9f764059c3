"""Redriving dead letters: back to the topic that they came from, once unless asked again.

The redriven record names the dead letter that it replaces (D27): its durability is the decision, so that a redrive that
was cut short anywhere continues with what is left, and a second one recognises the first. The dead letter itself stays
where it is until retention takes it.

==========================  =====================================================================
dead letter                 redriven
==========================  =====================================================================
body, key, tags, UNIQ_KEY,  the same
user properties, flag
reconsume times             0
DLQ_*, RETRY_TOPIC, ...     gone, with whatever delayed it before
queue                       its own, where the topic still has it; else the key's; else the next
==========================  =====================================================================

`pyddmq/redrives.json` is a checkpoint of what was redriven, with the log offset up to which it holds; the log is read
after it when a caller asks, and without it from the first dead letter on.

A dead letter has to fit the message type of the topic that a redrive sends it to (`broker.format.message_type`). A
redriven message is neither delayed nor half, and its order is that of its key. For the topic that it came from there
is more to say: it goes to its queue, which is an order too, and it may have been delayed, or a half, before it
was delivered. The record that it was delivered as decides: it replaces one of a delay level, of the timers or of the
halves (D27). Where that is gone, or is itself a redriven one, the message is taken to fit, as it did when it was sent.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError, StoreUnreadable
from broker.format.message_type import MessageKind, MessageType, MessageTypeMismatch, mismatch
from broker.format.properties import LETTER_PROPERTIES
from broker.format.record import split
from broker.log.decisions import DecisionRecord
from broker.log.put import LogPosition
from broker.query import NotFound, at_offset
from broker.queues.topics import DEAD_LETTER_PREFIX, is_system
from broker.retry.letters import Letter
from broker.retry.metrics import REDRIVE_REFUSED, REDRIVEN
from broker.retry.puts import COUNTS_NAME, RETRY_NAMES, ROUTE_NAMES
from broker.runtime.file_writes import FileWrite, at_once
from broker.runtime.sealed_file import SealedFile
from broker.scheduled.delay.levels import SCHEDULE_NAME
from broker.scheduled.release import Released, moved, without
from broker.scheduled.timer.names import TIMER_NAME
from broker.transaction.names import HALF_TOPIC

if TYPE_CHECKING:
    from broker.queues.topics import Topic
    from broker.retry.letters import Letter
    from broker.runtime.seams import Disk
    from broker.store import Store


_HALF_NAME = HALF_TOPIC.encode()
_DEAD = DEAD_LETTER_PREFIX.encode()


def misfit(store: Store, letter: Letter, topic: Topic) -> MessageTypeMismatch | None:
    """Return why a topic does not take a dead letter, None when it does."""
    wanted = topic.message_type
    if wanted is MessageType.MIXED:
        return None
    keyed = bool(letter.key)
    if topic.name != letter.topic:
        return mismatch(wanted, MessageKind(half=False, delayed=False, keyed=keyed, ordered=False))
    keyed = keyed or letter.queue is not None
    if wanted not in (MessageType.DELAY, MessageType.TRANSACTION):
        return mismatch(wanted, MessageKind(half=False, delayed=False, keyed=keyed, ordered=False))
    before = _waited_in(store, letter, topic)
    if before is None or before.startswith(_DEAD):
        return None
    delayed, half = before in (SCHEDULE_NAME, TIMER_NAME), before == _HALF_NAME
    return mismatch(wanted, MessageKind(half=half, delayed=delayed, keyed=keyed, ordered=False))


def _waited_in(store: Store, letter: Letter, topic: Topic) -> bytes | None:
    """Topic of the record that the message was delivered from; b"" when it came at once, None when it is unknown."""
    offset = letter.offset_in_topic
    if letter.message is None or letter.queue is None or offset is None:
        return None
    try:
        sent = at_offset(store, topic.name, letter.queue, offset)
    except NotFound:
        return None
    if sent.unique_key != letter.message.unique_key:
        # The topic was deleted and made again.
        return None
    if not sent.prepared_offset:
        return b""
    entry = store.record_at(max(sent.prepared_offset, 0))
    return None if entry is None else entry.topic


FILE = "pyddmq/redrives.json"
_VERSION = 1
_DEAD_NAMES = (
    *LETTER_PROPERTIES,
    *b"RECONSUME_TIME MAX_RECONSUME_TIMES POP_CK 1ST_POP_TIME".split(),
    *RETRY_NAMES,
    COUNTS_NAME,
    *ROUTE_NAMES,
)
_MISFITS = {
    MessageTypeMismatch.NO_DELAY: "accepts only delayed messages",
    MessageTypeMismatch.NO_KEY: "accepts only ordered messages, and the message has no key",
}
"""Where the sentence for producers advises what a redrive cannot do."""


class RedriveRefused(Exception):
    """A dead letter cannot be redriven now; it stays where it is.

    Attributes:
        kind: origin_unknown, no_topic, system_topic, message_type, unstorable, unreadable.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Earlier(NamedTuple):
    """A redrive that was made before: commit-log offset of its record, the topic, and when, ms since the epoch."""

    physical: int
    topic: str
    stored_ms: int


class Redrives:
    """What was redriven in one store, and redriving more. Used from the loop's thread."""

    def __init__(self, store: Store, *, disk: Disk) -> None:
        self._store = store
        self._disk = disk
        self._file = SealedFile(disk, f"{store.root}/{FILE}")
        self._redriven: dict[int, int] = {}
        """Commit-log offset of the record that was redriven last by that of the dead letter."""
        self._opened = False
        self.in_flight = 0

    def opening(self) -> Generator[None, None, None]:
        """Find out what was redriven, in steps of bounded work; nothing when that is known.

        Raises:
            OSError: A file cannot be read.
        """
        if self._opened:
            return
        start = self._load()
        if start is None:
            start = self._first_letter()
        if start is not None and start < self._store.end:
            for step in self._store.decisions(start):
                for decision in step.decisions:
                    self._decided(decision)
                yield
        self._opened = True

    def _load(self) -> int | None:
        try:
            content = self._file.load()
            if content is None or content["version"] != _VERSION or content["log_end"] > self._store.end:
                return None
            self._redriven = {int(letter): int(made) for letter, made in content["redriven"]}
            return int(content["log_end"])
        except (StoreUnreadable, KeyError, TypeError, ValueError):
            self._redriven.clear()
            return None

    def _first_letter(self) -> int | None:
        """Commit-log offset of the first dead letter that is left."""
        found = [
            queue.read(queue.min_offset, 1)[0][0]
            for name, topic in self._store.topics.items()
            if name.startswith(DEAD_LETTER_PREFIX)
            for queue in topic.queues
            if queue.min_offset < queue.max_offset
        ]
        return min(found, default=None)

    def _decided(self, decision: DecisionRecord) -> None:
        if is_system(decision.topic.decode("utf-8", "replace")):
            # A consumer of dead letters that failed one makes a retry of it; that is no redrive.
            return
        entry = self._store.record_at(decision.replaced)
        if entry is not None and entry.topic.startswith(DEAD_LETTER_PREFIX.encode()):
            self._redriven[decision.replaced] = max(decision.physical, self._redriven.get(decision.replaced, 0))

    def save(self) -> None:
        """`writing` at once. Raises the same."""
        at_once(self._disk, self.writing())

    def writing(self) -> FileWrite:
        """Write the checkpoint. Raises OSError."""
        if not self._opened or self.in_flight:
            return
        self._store.make_durable()
        # Dead letters that are gone cannot be redriven again.
        kept = sorted((letter, made) for letter, made in self._redriven.items() if letter >= self._store.min_offset)
        self._redriven = dict(kept)
        yield from self._file.writing({"version": _VERSION, "log_end": self._store.end, "redriven": kept})

    def earlier(self, letter: Letter) -> Earlier | None:
        """Return the last redrive of a dead letter, None when there was none."""
        made = None if letter.message is None else self._redriven.get(letter.message.physical)
        if made is None:
            return None
        entry = self._store.record_at(made)
        if entry is None:
            return Earlier(made, "", 0)
        return Earlier(made, entry.topic.decode("utf-8", "replace"), entry.store_ms)

    def plan(self, letter: Letter, *, to: str | None = None) -> Released:
        """Make the record that redrives a dead letter; nothing is appended.

        Args:
            letter: The dead letter.
            to: Topic to send it to instead of its own.

        Raises:
            RedriveRefused: It cannot be redriven as things are.
        """
        if letter.message is None:
            raise RedriveRefused("unreadable", "the dead letter's record is damaged or deleted")
        name = to or letter.topic
        if not name:
            raise RedriveRefused("origin_unknown", "the dead letter does not contain its topic; pass one (--to)")
        if is_system(name):
            raise RedriveRefused("system_topic", f"{name} is an internal topic of the broker; pass another (--to)")
        topic = self._store.topics.get(name)
        if topic is None:
            raise RedriveRefused("no_topic", f"topic {name} does not exist; create it, or pass another (--to)")
        wrong = misfit(self._store, letter, topic)
        if wrong is not None:
            text = f"topic {name} is of the type {topic.message_type} and {_MISFITS.get(wrong, wrong)}"
            raise RedriveRefused("message_type", f"{text}; pass another (--to), or alter the type")
        own = letter.queue if name == letter.topic else None
        if own is None or own >= len(topic.queues):
            own = self._store.queue_for(topic, letter.key)
        try:
            record = self._store.read(letter.message.physical, letter.size)
            body, block = split(record)
        except (DamagedRecord, RecordGone) as error:
            raise RedriveRefused("unreadable", str(error)) from error
        released = moved(record, body, without(block, _DEAD_NAMES), topic, own)
        limit = self._store.options.message_bytes_max
        if len(body) > limit:
            raise RedriveRefused(
                "unstorable", f"the body has {len(body)} bytes; the limit is {limit}; raise maxMessageBytes"
            )
        return released._replace(put=released.put._replace(reconsume_times=0))

    def append(self, letter: Letter, released: Released) -> LogPosition:
        """Append what `plan` made; visible and known with the next flush.

        Raises:
            RedriveRefused: No store will ever take it.
            DiskFull, StoreFailed: The store takes nothing now.
        """
        assert letter.message is not None
        dead, group = letter.message.physical, letter.message.topic.removeprefix(DEAD_LETTER_PREFIX)
        position: list[LogPosition] = []

        def done(error: StoreError | None) -> None:
            self.in_flight -= 1
            if error is None:
                self._redriven[dead] = position[0].physical
                self._store.metrics.counter(REDRIVEN, group).add()

        put, born_ms, born_host = released
        try:
            position += self._store.append([put], born_ms=born_ms, born_host=born_host, done=done)
        except MessageRefused as error:
            raise RedriveRefused("unstorable", str(error)) from error
        self.in_flight += 1
        return position[0]

    def count_refused(self, group: str, kind: str) -> None:
        """Count a dead letter that could not be redriven."""
        self._store.metrics.counter(REDRIVE_REFUSED, group, kind).add()
