"""`config/consumerOffset.json`: the committed offset of every group, topic and queue, in RocketMQ's shape.

A committed offset is the next one to consume. The file is read with or without quotes around its integer keys and
written with them, which RocketMQ's parser takes as well. Entries of names that no topic or group can have (RocketMQ's
light queues have some) are used for nothing, and written back as they were. What only this program knows (acks above
the committed offset) is not here.

A RocketMQ with `enableLmq=true` reads and writes `config/lmqConsumerOffset.json` in its place: `offsetTable` has every
ordinary group, `lmqOffsetTable` the light queues. Where that file exists, both are kept: the one that RocketMQ wrote
last is taken, with what only the other has, and both are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker.errors import REPAIR_ADVICE, StoreUnreadable
from broker.runtime.file_writes import AT_ONCE, TURN, FileWrite, Steps, at_once
from broker.runtime.metrics import Metrics
from broker.runtime.names import is_stored
from broker.runtime.seams import Clock, Disk
from broker.runtime.state_file import StateFile, data_version, next_version
from broker.runtime.store_metrics import FILES_DAMAGED, FILES_DELETED

LMQ_FILE = "lmqConsumerOffset.json"
"""Of a RocketMQ with `enableLmq=true`."""

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Group of RocketMQ's under which it reads what POP consumers had in hand (`broker.scheduled.pop_records`)."""


def _nothing() -> None:
    """End no save, where none is made in steps."""


class ConsumerOffsets:
    """The table of committed offsets.

    Attributes:
        changed_outside: The file was changed by another program since this program wrote it (RocketMQ, mqadmin, a
            restore): it wins (D10).
        finish_writes: Ends a save that is under way in steps; called before another one.
    """

    def __init__(self, root: str, *, disk: Disk, clock: Clock, finish_writes: Callable[[], None] = _nothing) -> None:
        self._file = StateFile(disk, root, "consumerOffset.json")
        self._lmq_file = StateFile(disk, root, LMQ_FILE)
        self._lmq_rest: dict[str, Any] | None = None
        self._adopting: list[StateFile] = []
        self._adopted: dict[str, Any] = {}
        self._disk = disk
        self._folders = (f"{root}/config", f"{root}/pyddmq")
        self._clock = clock
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._rest: dict[str, Any] = {}
        self._strange: dict[str, Any] = {}
        self._dirty = False
        self._metrics = Metrics()
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
        offsets._metrics = metrics or offsets._metrics
        for folder in offsets._folders:
            disk.make_folder(folder)
        own, lmq = offsets._file.load(), offsets._lmq_file.load()
        for path in (*offsets._file.damaged, *offsets._lmq_file.damaged):
            offsets._metrics.counter(FILES_DAMAGED, path.removeprefix(f"{root}/")).add()
        offsets.changed_outside = offsets._file.changed_outside or offsets._lmq_file.changed_outside
        found = [(offsets._file, own), (offsets._lmq_file, lmq)]
        for file, content in found:
            try:
                if content is not None:
                    offsets._take(content)
            except (AttributeError, TypeError, ValueError) as error:
                raise StoreUnreadable(f"{file.path} has an invalid structure; {REPAIR_ADVICE}") from error
        if lmq is not None:
            offsets._choose(own, lmq)
        offsets._rest = _rest_of(own or {})
        return offsets

    def _choose(self, own: dict[str, Any] | None, lmq: dict[str, Any]) -> None:
        """Take the file that RocketMQ wrote last, with what only the other has; our own where it wrote none."""
        both = own is not None and self._file.foreign
        lmq_wins = self._lmq_file.foreign and not (both and own is not None and _written_ms(own) > _written_ms(lmq))
        if own is not None and not lmq_wins:
            self._take(own)
        self._lmq_rest = _rest_of(lmq)
        if self._lmq_file.foreign:
            self._adopting = [self._file, self._lmq_file] if lmq_wins else [self._lmq_file, self._file]
            self._adopted = at_once(self._disk, self._as_table())
            self._dirty = True

    def _take(self, content: dict[str, Any]) -> None:
        """Put what a file says over what is known."""
        self._version = data_version(content.get("dataVersion"))
        for name, queues in content.get("offsetTable", {}).items():
            topic, _, group = name.partition("@")
            if not (is_stored(topic) and is_stored(group)):
                self._strange[name] = queues
                continue
            # RocketMQ commits there the last record that is done, and -1 while there is none.
            lowest = -1 if group == REVIVE_GROUP else 0
            known = self._table.setdefault((group, topic), {})
            known.update((int(queue), max(lowest, int(offset))) for queue, offset in queues.items())

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
        if self._file.is_deleted():
            self._metrics.counter(FILES_DELETED, "config/consumerOffset.json").add()
        elif not self._dirty:
            return False
        version = next_version(self._version, self._clock.wall_ms())
        self._dirty = False
        try:
            table = yield from self._as_table()
            # A file of RocketMQ's that differs wins at a start. So both get what was taken, the winner last, before
            # one of them gets more: whenever this is stopped, an older state does not win.
            for file in self._adopting:
                yield from self._writing(file, self._version, self._adopted)
            self._adopting = []
            for file in (self._file,) if self._lmq_rest is None else (self._file, self._lmq_file):
                yield from self._writing(file, version, table)
        except BaseException:
            self._dirty = True
            raise
        self._version = version
        return True

    def _as_table(self) -> Steps[dict[str, Any]]:
        table = dict(self._strange)
        for number, ((group, topic), queues) in enumerate(list(self._table.items()), start=1):
            if number % AT_ONCE == 0:
                yield TURN
            table[f"{topic}@{group}"] = {str(queue): offset for queue, offset in sorted(queues.items())}
        return table

    def _writing(self, file: StateFile, version: dict[str, Any], table: dict[str, Any]) -> FileWrite:
        rest = self._rest if file is self._file else self._lmq_rest
        yield from file.writing({**(rest or {}), "dataVersion": version, "offsetTable": table})


def _rest_of(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name not in ("offsetTable", "dataVersion")}


def _written_ms(content: dict[str, Any]) -> int:
    """When RocketMQ changed the table of a file last, ms since the epoch; 0 where the file does not say it."""
    found = data_version(content.get("dataVersion")).get("timestamp")
    return found if type(found) is int else 0
