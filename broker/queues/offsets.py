"""`config/consumerOffset.json`: the committed offset of every group, topic and queue, in RocketMQ's shape.

A committed offset is the next one to consume. The file is read with or without quotes around its integer keys and
written with them, which RocketMQ's parser takes as well. Entries of names that no topic or group can have (RocketMQ's
light queues have some) are used for nothing, and written back as they were. What only this program knows (acks above
the committed offset) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker.errors import REPAIR_ADVICE, StoreUnreadable
from broker.runtime.file_writes import Steps, at_once
from broker.runtime.metrics import Metrics
from broker.runtime.names import is_stored
from broker.runtime.seams import Clock, Disk
from broker.runtime.state_file import StateFile, data_version, next_version
from broker.runtime.store_metrics import FILES_DAMAGED

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Group of RocketMQ's under which it reads what POP consumers had in hand (`broker.scheduled.popped`)."""


def _nothing() -> None:
    """End no save, where none is made in steps."""


class ConsumerOffsets:
    """The table of committed offsets.

    Attributes:
        changed_outside: The file was changed by somebody else since this program wrote it (RocketMQ, mqadmin, a
            restore): it wins (D10).
        finish_writes: Ends a save that is under way in steps; called before another one.
    """

    def __init__(self, root: str, *, disk: Disk, clock: Clock, finish_writes: Callable[[], None] = _nothing) -> None:
        self._file = StateFile(disk, root, "consumerOffset.json")
        self._disk = disk
        self._folders = (f"{root}/config", f"{root}/pyddmq")
        self._clock = clock
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._rest: dict[str, Any] = {}
        self._strange: dict[str, Any] = {}
        self._dirty = False
        self.changed_outside = False
        self.finish_writes = finish_writes

    @classmethod
    def open(
        cls,
        root: str,
        *,
        disk: Disk,
        clock: Clock,
        metrics: Metrics | None = None,
        finish_writes: Callable[[], None] = _nothing,
    ) -> ConsumerOffsets:
        """Read the table; an absent file is an empty one. Damaged copies are counted in `metrics`.

        Raises:
            StoreUnreadable: The file and its copies are damaged, or its shape is wrong.
        """
        offsets = cls(root, disk=disk, clock=clock, finish_writes=finish_writes)
        for folder in offsets._folders:
            disk.make_folder(folder)
        content = offsets._file.load()
        for path in offsets._file.damaged if metrics is not None else ():
            assert metrics is not None
            metrics.counter(FILES_DAMAGED, path.removeprefix(f"{root}/")).add()
        offsets.changed_outside = offsets._file.changed_outside
        if content is None:
            return offsets
        try:
            offsets._take(content)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreUnreadable(f"{offsets._file.path} has a wrong shape; {REPAIR_ADVICE}") from error
        return offsets

    def _take(self, content: dict[str, Any]) -> None:
        self._rest = {name: value for name, value in content.items() if name not in ("offsetTable", "dataVersion")}
        self._version = data_version(content.get("dataVersion"))
        for name, queues in content.get("offsetTable", {}).items():
            topic, _, group = name.partition("@")
            if not (is_stored(topic) and is_stored(group)):
                self._strange[name] = queues
                continue
            # RocketMQ commits there the last record that is done, and -1 while there is none.
            lowest = -1 if group == REVIVE_GROUP else 0
            self._table[group, topic] = {int(queue): max(lowest, int(offset)) for queue, offset in queues.items()}

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset (next one to consume); None when none was ever committed."""
        return self._table.get((group, topic), {}).get(queue_id)

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Change a committed offset in memory; it may go back (a reset)."""
        queues = self._table.setdefault((group, topic), {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._dirty = True

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue id and committed offset of every entry."""
        for (group, topic), queues in self._table.items():
            for queue_id, offset in queues.items():
                yield group, topic, queue_id, offset

    def save(self) -> bool:
        """Write the file, durably, when something changed; returns whether it was written.

        Raises:
            OSError: It could not be written; the changes stay in memory for the next call.
        """
        self.finish_writes()
        return at_once(self._disk, self.writing())

    def writing(self) -> Steps[bool]:
        """`save` in steps; what changes meanwhile is for the next one. Raises the same.

        A file that was deleted counts as one that changed.
        """
        if not self._file.is_deleted() and not self._dirty:
            return False
        version = next_version(self._version, self._clock.wall_ms())
        table = self._strange | {
            f"{topic}@{group}": {str(queue): offset for queue, offset in sorted(queues.items())}
            for (group, topic), queues in self._table.items()
        }
        self._dirty = False
        try:
            yield from self._file.writing({**self._rest, "dataVersion": version, "offsetTable": table})
        except BaseException:
            self._dirty = True
            raise
        self._version = version
        return True
