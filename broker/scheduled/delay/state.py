"""How far each delay level is, on disk: `config/delayOffset.json` in RocketMQ's shape, and a checkpoint of our own.

The log decides (D27); both files only save walking it. `delayOffset.json` has the lowest offset of each level that is
not completed: it is never ahead, so what RocketMQ finds in it is all still to be delivered, or delivered by us above a
message that was refused. `pyddmq/delays.json` has that and the ranges completed above it, with the commit-log offset up
to which this holds. When both are missing the whole log is walked.

Positions are only ever taken forward: if RocketMQ moved the file, it delivered what lies below; if somebody put an
older one there, the log still says what was delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from broker.errors import StoreUnreadable
from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite
from broker.runtime.sealed_file import SealedFile
from broker.runtime.state_file import StateFile, data_version, next_version
from broker.runtime.store_metrics import FILES_DAMAGED
from broker.scheduled.delay.level_queue import DelayLevel

log = structlog.get_logger()


class DelayState:
    """The two files of one store."""

    def __init__(self, root: str, runtime: Runtime) -> None:
        self._root = root
        self._metrics = runtime.metrics
        self._clock = runtime.clock
        self._offsets = StateFile(runtime.disk, root, "delayOffset.json")
        self._checkpoint = SealedFile(runtime.disk, f"{root}/pyddmq/delays.json")
        self._version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._saved: Any = None
        self._log_end = 0

    def load(self) -> tuple[dict[int, int], dict[str, Any] | None]:
        """Return RocketMQ's positions by level, and the checkpoint if it can be believed. Damage is counted and said.

        Raises:
            OSError: A file cannot be read.
        """
        positions: dict[int, int] = {}
        try:
            content = self._offsets.load()
            if isinstance(content, dict):
                self._version = {**self._version, **data_version(content.get("dataVersion"))}
                positions = {int(level): int(offset) for level, offset in (content.get("offsetTable") or {}).items()}
        except (StoreUnreadable, AttributeError, TypeError, ValueError):
            self._damaged("config/delayOffset.json")
        for path in self._offsets.damaged:
            self._damaged(path.removeprefix(f"{self._root}/"))
        checkpoint: dict[str, Any] | None = None
        try:
            checkpoint = self._checkpoint.load()
        except StoreUnreadable:
            self._damaged("pyddmq/delays.json")
        return positions, checkpoint

    def _damaged(self, file: str) -> None:
        self._metrics.counter(FILES_DAMAGED, file).add()
        log.error("delay_file_damaged", file=file, what="the log says what was delivered")

    def writing(self, levels: Mapping[int, DelayLevel], log_end: int) -> FileWrite:
        """Write both files, durably, when a level has moved since the last time, or the log grown much; in steps.

        Args:
            levels: By number.
            log_end: Commit-log offset below which every decision is in `levels`, and which is durable.

        Raises:
            OSError: One cannot be written.
        """
        state = {str(each.level): [each.position, *each.completed.ranges] for each in levels.values()}
        if state == self._saved and log_end - self._log_end < LOG_BYTES_MAX:
            return
        version = next_version(self._version, self._clock.wall_ms())
        table = {str(each.level): each.position for each in levels.values()}
        yield from self._offsets.writing({"dataVersion": version, "offsetTable": table})
        yield from self._checkpoint.writing({"log_end": log_end, "levels": state})
        self._version, self._saved, self._log_end = version, state, log_end


def restore(level: DelayLevel, saved: list[Any]) -> None:
    """Give a level what the checkpoint says of it."""
    position, *ranges = saved
    for start, end in ranges:
        if start < level.queue.max_offset:
            level.completed.add(start, min(end, level.queue.max_offset))
    level.begin_at(position)
