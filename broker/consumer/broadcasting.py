"""Broadcasting: every consumer gets every message of its topics, with offsets of its own and without locks (6.5).

Offsets stand in `pyddmq/broadcast/<group>@<client id>.json`, checksummed, written every 5 s and at a stop. A failed
batch is not repeated: it is counted and shows in the log, as RocketMQ drops it with a line (3.4). A damaged file costs
the offsets: the consumer starts as a new one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from broker.consumer.concurrent import ConcurrentContext, ConcurrentStatus
from broker.consumer.counters import CONSUMED, FAILED, SAVE_ERRORS, SKIPPED
from broker.consumer.member import GroupConsumer, QueueWork
from broker.consumer.reading import ConsumedMessage
from broker.consumer.shared import Shared, described
from broker.errors import StoreUnreadable
from broker.queues.message_queue import MessageQueue
from broker.queues.queue_locks import Place
from broker.runtime.names import STORED_BYTES_MAX
from broker.runtime.sealed_file import SealedFile

FOLDER = "pyddmq/broadcast"
NAMES_CHARS_MAX = STORED_BYTES_MAX - len("@.json.new")
"""Group and client id together, so that their file, and the one that takes its place, can have its name."""


class LocalOffsets:
    """Offsets of one broadcasting consumer (RocketMQ: LocalFileOffsetStore)."""

    def __init__(self, shared: Shared, group: str, client_id: str) -> None:
        folder = f"{shared.store.root}/{FOLDER}"
        shared.disk.make_folder(folder)
        self._file = SealedFile(shared.disk, f"{folder}/{group}@{client_id}.json")
        self._shared = shared
        self._table: dict[Place, int] = {}
        self._dirty = False
        try:
            content = self._file.load()
            self._table = {(topic, queue_id): offset for topic, queue_id, offset in content or []}
        except (StoreUnreadable, TypeError, ValueError) as error:
            shared.metrics.counter(SAVE_ERRORS, FOLDER).add()
            shared.limited_log.note("broadcast_offsets_unreadable", group, client=client_id, error=str(error))

    def get(self, topic: str, queue_id: int) -> int | None:
        """Return the committed offset of a queue."""
        return self._table.get((topic, queue_id))

    def set(self, topic: str, queue_id: int, offset: int) -> None:
        """Note a committed offset."""
        self._table[topic, queue_id] = offset
        self._dirty = True

    def save(self) -> None:
        """Write what changed; a failed write is counted and made up for by the next one."""
        if not self._dirty:
            return
        try:
            self._file.save([[*place, offset] for place, offset in sorted(self._table.items())])
            self._dirty = False
        except OSError as error:
            self._shared.metrics.counter(SAVE_ERRORS, FOLDER).add()
            self._shared.limited_log.note("broadcast_offsets_not_written", error=str(error))


class BroadcastWork(QueueWork):
    """One queue of a broadcasting consumer: batches one after the other."""

    def step(self) -> None:
        """Hand the next batch to the listener, unless one runs."""
        if self.busy_since is not None:
            return
        batch: list[ConsumedMessage] = []
        while len(batch) < self.owner.options.batch_max and (self._ready or self._read()):
            message = self._ready.popleft()
            if message.unusable is None:
                batch.append(message)
            else:
                self._give_up(message, message.unusable)
        if not batch:
            self.commit(self.reader.next)
            return
        self.begin()
        context = ConcurrentContext(queue=self.name)
        self.owner.shared.run(partial(self.owner.listener, batch, context), partial(self._answered, batch))

    def _read(self) -> bool:
        self._ready.extend(self.reader.read())
        return bool(self._ready)

    def _answered(self, batch: list[ConsumedMessage], answer: Any, error: Exception | None) -> None:
        owner = self.owner
        if answer is ConcurrentStatus.SUCCESS:
            owner.shared.metrics.counter(CONSUMED, owner.group).add(len(batch))
        else:
            how = "answered" if answer is not None else "nothing" if error is None else "raised"
            owner.shared.metrics.counter(FAILED, owner.group, how).add(len(batch))
            for message in batch:
                self._give_up(message, described(error) if error is not None else how)
        self.commit(batch[-1].offset + 1)
        self.end()

    def _give_up(self, message: ConsumedMessage, why: str) -> None:
        owner = self.owner
        owner.shared.metrics.counter(SKIPPED, owner.group, "broadcast_failed").add()
        owner.shared.limited_log.note(
            "broadcast_message_dropped", owner.group, topic=message.topic, offset=message.offset, why=why
        )


class BroadcastConsumer(GroupConsumer):
    """Consumes all queues of its topics; see the module's text."""

    kind: ClassVar[str] = "broadcasting"
    locks_queues: ClassVar[bool] = False
    work = BroadcastWork

    def __post_init__(self) -> None:
        super().__post_init__()
        self._offsets = LocalOffsets(self.shared, self.group, self.client_id)

    def allocate(self, names: list[MessageQueue], clients: list[str]) -> list[MessageQueue]:
        """Take all queues, regardless of other members."""
        return names

    def first_offset(self, name: MessageQueue) -> int:
        """Its own committed offset; without one, as in `from_where`."""
        return self.shared.begin(self.group, name, self.options, get=self._offsets.get, put=self._offsets.set)

    def committed(self, work: QueueWork) -> None:
        """Note it in the file of its own."""
        self._offsets.set(*work.place, work.committed)

    def persist(self) -> None:
        """Write its offsets."""
        self._offsets.save()
