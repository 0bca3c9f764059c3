"""What is finished above a group's committed offsets, found in the log: messages sent back or dead-lettered (D16, D27).

A retry and a dead letter carry the commit-log offset of the record that they replace. Once one of them is durable that
record is finished for its group, whatever the committed offset says. `pyddmq/consumer_finished.json` is a checkpoint of
this, with the log offset up to which it holds; a start reads the log behind it. Without it the log is read from the
first record on that a group with retries or dead letters has not committed; all of it when such a group's committed
offsets are gone, with or without the checkpoint.

Only offsets at or above the committed ones are kept, eight bytes each, so the table is as small as what consumers have
under way; as large as what a group ever sent back when its committed offsets are gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import structlog

from broker.errors import RecordGone, StoreUnreadable
from broker.format.properties import find_property
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.log.decisions import DecisionRecord
from broker.log.shared_walk import Reading, alone, decided
from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.queues.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from broker.scheduled.delay.levels import SCHEDULE_NAME
from broker.scheduled.timer.names import TIMER_NAME

if TYPE_CHECKING:
    from broker.queues.offsets import ConsumerOffsets
    from broker.store import Store

FILE = "pyddmq/consumer_finished.json"
_VERSION = 1
_NOTHING: dict[str, Any] = {"version": _VERSION, "queues": [], "anew": []}
_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_WAITING_ROOMS = (SCHEDULE_NAME, TIMER_NAME)

Key = tuple[str, str, int]
"""Group, topic and queue id."""

log = structlog.get_logger()


class Finished:
    """The table of one store."""

    def __init__(self, store: Store, offsets: ConsumerOffsets, *, disk: Disk) -> None:
        self._store = store
        self._offsets = offsets
        self._file = SealedFile(disk, f"{store.root}/{FILE}")
        self._table: dict[Key, array[int]] = {}
        """Sorted offsets."""
        self._anew: set[str] = set()
        """Groups without committed offsets of their retries: for which the whole log was read since, or new ones."""
        self._saved: Any = None
        self._log_end = 0
        self.damaged: StoreUnreadable | None = None
        """Set when the checkpoint could not be read; it costs reading the log."""

    def reading(self) -> Reading[None]:
        """Find out what is finished, in steps of bounded work, for `broker.log.shared_walk`.

        Raises:
            OSError: A file cannot be read.
        """
        start = self._load()
        whole = start is None
        lost = self._without_offsets()
        if lost - self._anew:
            whole, start = True, self._store.min_offset
        elif start is None:
            start = self._first_uncommitted()
        if start is not None and start < self._store.end:
            if whole:
                log.info("retries_reading_log", start=start, end=self._store.end)
            yield from decided(start, self._decided)
        self._anew = lost

    def is_known_of(self, group: str) -> bool:
        """Whether everything is known of a group that has retries: not when its committed offsets went just now."""
        return group in self._anew or group not in self._without_offsets()

    def begin(self, group: str) -> None:
        """Know everything of a group whose retry topic is about to be made: nothing was ever sent back."""
        self._anew.add(group)

    def read_all(self) -> Generator[None, None, None]:
        """Read the whole log, for groups whose committed offsets are gone."""
        log.info("retries_reading_log", start=self._store.min_offset, end=self._store.end)
        yield from alone(self._store, decided(self._store.min_offset, self._decided))
        self._anew = self._without_offsets()

    def _without_offsets(self) -> set[str]:
        """Groups that have retries, and no committed offset of them."""
        groups = {name.removeprefix(RETRY_PREFIX) for name in self._store.topics if name.startswith(RETRY_PREFIX)}
        return {group for group in groups if self._offsets.get(group, RETRY_PREFIX + group, 0) is None}

    def _load(self) -> int | None:
        """Take the checkpoint; returns the log offset up to which it holds, None when there is none to believe."""
        try:
            content = self._file.load()
            if content is None or content["version"] != _VERSION or content["log_end"] > self._store.end:
                return None
            for group, topic, queue_id, offsets in content["queues"]:
                committed = self._offsets.get(group, topic, queue_id) or 0
                kept = sorted(int(offset) for offset in offsets if offset >= committed)
                self._table[group, topic, queue_id] = array("q", kept)
            self._anew = set(content.get("anew", ()))
            self._log_end = int(content["log_end"])
            return self._log_end
        except (StoreUnreadable, KeyError, TypeError, ValueError) as error:
            self._table.clear()
            self._anew.clear()
            self.damaged = error if isinstance(error, StoreUnreadable) else StoreUnreadable(str(error))
            return None

    def _first_uncommitted(self) -> int | None:
        """Lowest commit-log offset of a message that a group with retries or dead letters has not committed."""
        topics = self._store.topics
        groups = {name.partition("%")[2].partition("%")[2] for name in topics if name.startswith(_OF_GROUPS)}
        if groups - {group for group, *_ in self._offsets.items()}:
            # Its offsets are lost, or it never had any: it begins again, at whatever is there.
            return self._store.min_offset
        lowest: int | None = None
        for group, name, queue_id, offset in self._offsets.items():
            if group not in groups:
                continue
            topic = topics.get(name)
            if topic is None or queue_id >= len(topic.queues):
                continue
            queue = topic.queues[queue_id]
            at = max(offset, queue.min_offset)
            if at < queue.max_offset:
                [(physical, _, _)] = queue.read(at, 1)
                lowest = physical if lowest is None else min(lowest, physical)
        return lowest

    def _decided(self, decision: DecisionRecord) -> None:
        """Enter what a record replaces, where it is a retry or a dead letter."""
        group = self._group_of(decision)
        if group is None:
            return
        entry = self._store.record_at(decision.replaced)
        if entry is None or entry.topic in _WAITING_ROOMS:
            return
        name = entry.topic.decode("utf-8", "replace")
        topic = self._store.topics.get(name)
        if topic is None or entry.queue_id >= len(topic.queues):
            return
        key = (group, name, entry.queue_id)
        if entry.queue_offset < (self._offsets.get(*key) or 0):
            return
        try:
            units = topic.queues[entry.queue_id].read(entry.queue_offset, 1)
        except RecordGone:
            return
        # A topic that was deleted and made again counts its offsets again.
        if units and units[0][0] == decision.replaced:
            self.finish(key, entry.queue_offset)

    def _group_of(self, decision: DecisionRecord) -> str | None:
        name = decision.topic
        if name in _WAITING_ROOMS:
            entry = self._store.record_at(decision.physical)
            name = b"" if entry is None else find_property(entry.properties, REAL_TOPIC_NAME) or b""
        text = name.decode("utf-8", "replace")
        if text.startswith(_OF_GROUPS):
            return text.partition("%")[2].partition("%")[2]
        return None

    # In use

    def has(self, key: Key, offset: int) -> bool:
        """Whether a message at or above the committed offset is finished."""
        offsets = self._table.get(key)
        if offsets is None:
            return False
        place = bisect_left(offsets, offset)
        return place < len(offsets) and offsets[place] == offset

    def finish(self, key: Key, offset: int) -> None:
        """Enter a message; to be called when the record that replaces it is durable."""
        offsets = self._table.setdefault(key, array("q"))
        place = bisect_left(offsets, offset)
        if place == len(offsets) or offsets[place] != offset:
            offsets.insert(place, offset)

    def forget_below(self, key: Key, offset: int) -> None:
        """Drop what is committed."""
        offsets = self._table.get(key)
        if offsets is None:
            return
        del offsets[: bisect_left(offsets, offset)]
        if not offsets:
            del self._table[key]

    def save(self) -> None:
        """Write the checkpoint, after the committed offsets; nothing when little has changed.

        Raises:
            OSError: The log could not be made durable, or the file not written.
        """
        queues = [[*key, offsets.tolist()] for key, offsets in sorted(self._table.items())]
        anew = sorted(self._anew & self._without_offsets())
        content = {"version": _VERSION, "queues": queues, "anew": anew}
        if content == (self._saved or _NOTHING) and self._store.end - self._log_end < LOG_BYTES_MAX:
            return
        # Under `async` a retry is not on the disk yet, and the file must not be ahead of the log.
        self._store.make_durable()
        end = self._store.end
        self._file.save({**content, "log_end": end})
        self._saved, self._log_end = content, end
