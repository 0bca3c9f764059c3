"""How far timers are, on disk: `config/timercheck` in RocketMQ's shape, and `pyddmq/timers.json` of our own.

`timercheck`, 4,096 bytes, big-endian i64: 0 slot to read next (ms), 8 end of the timer log, 16 next offset of the timer
topic's queue, 24 masterTimerQueueOffset, 32, 40, 48 its data version (state, time, counter). Behind that RocketMQ has
nothing; here stands the CRC-32 of all this with a mark, by which it is known for our own. RocketMQ continues behind the
record of the timer log's last unit, but never behind masterTimerQueueOffset. That is the largest i64: with 0 it would
enqueue every timer again, with the offset of the checkpoint, after a kill, those that have units behind it (D30).

The commit log decides (D27), so either may be missing. A timercheck without it is RocketMQ's, which
delivered what it says. `timers.json` besides has where in the commit log deliveries have to be looked for, what is
refused, and how many are pending by topic.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import structlog

from broker.errors import StoreUnreadable
from broker.runtime.file_writes import FileWrite
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import NOT_PARSED, SealedFile, read_whole, sealed, writing_whole
from broker.runtime.seams import Clock, Disk
from broker.runtime.store_metrics import FILES_DAMAGED

_CHECK = struct.Struct(">qqqqqqq")
_MARK = struct.Struct(">II")
_MARK_MAGIC = 0x50594D51
CHECK_BYTES = 4096
_NO_END = 1 << 62
_NO_MASTER = (1 << 63) - 1

log = structlog.get_logger()


class TimerCheck(NamedTuple):
    """What both files say.

    Attributes:
        read_ms: Everything in earlier slots is completed.
        log_end: Position behind the last unit of the timer log that is covered.
        offset: Queue offset of the next record to enqueue.
    """

    read_ms: int
    log_end: int
    offset: int


class Saved(NamedTuple):
    """What was found.

    Attributes:
        check: How far; None when nothing can be believed: everything is made again from the commit log.
        decided_from: Commit-log offset behind which deliveries may belong to slots from `check.read_ms` on.
        refused: (commit-log offset, size, due ms) of refused messages.
        pending: Timers by hash of their topic; None when they have to be counted.
        floor: Queue offset and moment where this broker took over from RocketMQ, which delivered what was due by then
            and names no delivery; 0 and 0 for never.
    """

    check: TimerCheck | None
    decided_from: int = 0
    refused: tuple[tuple[int, int, int], ...] = ()
    pending: dict[int, int] | None = None
    floor: tuple[int, int] = (0, 0)


class TimerStateFiles:
    """The two files of one store: `check_path` and `own_path`."""

    def __init__(self, root: str, *, disk: Disk, clock: Clock, metrics: Metrics) -> None:
        self._disk = disk
        self._clock = clock
        self._metrics = metrics
        self.check_path = f"{root}/config/timercheck"
        self.own_path = f"{root}/pyddmq/timers.json"
        self._own = SealedFile(disk, self.own_path)
        self._versions = [0, 0, 0]
        self._saved: Any = None

    def load(self, log_end: int) -> Saved:
        """Read both; `log_end` is where the commit log ends. Damage is counted and said.

        Raises:
            OSError: One cannot be read.
        """
        found, own = self._load_check(), self._load_own()
        try:
            return _saved(found, own, log_end)
        except (AttributeError, *NOT_PARSED):
            # A right sum does not say who wrote it.
            self._damaged("pyddmq/timers.json")
            return _saved(found, None, log_end)

    def _load_check(self) -> tuple[TimerCheck, bool] | None:
        raw = read_whole(self._disk, self.check_path)
        if raw is None or len(raw) < _CHECK.size or not raw[: _CHECK.size].strip(b"\x00"):
            return None
        read_ms, flushed, offset, _, *versions = _CHECK.unpack_from(raw)
        mark = raw[_CHECK.size : _CHECK.size + _MARK.size]
        own = mark == _MARK.pack(_MARK_MAGIC, zlib.crc32(raw[: _CHECK.size]))
        if min(read_ms, flushed, offset) < 0:
            self._damaged("config/timercheck")
            return None
        self._versions = versions
        return TimerCheck(read_ms, flushed, offset), own

    def _load_own(self) -> Any:
        try:
            return self._own.load()
        except StoreUnreadable:
            self._damaged("pyddmq/timers.json")
            return None

    def _damaged(self, file: str) -> None:
        self._metrics.counter(FILES_DAMAGED, file).add()
        log.error("timer_file_damaged", file=file, what="the log says what is pending")

    def begin_anew(self, floor: tuple[int, int]) -> None:
        """Note, durably, that timer log and wheel are about to be made again: what was saved says nothing of them.

        Raises:
            OSError: It cannot be written.
        """
        self._saved = None
        self._own.save({"anew": list(floor)})

    def writing(
        self,
        check: TimerCheck,
        *,
        decided_from: int,
        refused: list[list[int]],
        pending: dict[int, int],
        floor: tuple[int, int],
        clean: bool,
    ) -> FileWrite:
        """Write both, durably, when anything changed. Timer log and wheel are durable as `check` says.

        Args:
            check: How far.
            decided_from: As in `Saved`.
            refused: As in `Saved`.
            pending: As in `Saved`.
            floor: As in `Saved`.
            clean: Nothing follows: `pending` can be believed by the next start.

        Raises:
            OSError: One cannot be written.
        """
        own = {
            **check._asdict(),
            "decided_from": decided_from,
            "aside": refused,
            "pending": {str(topic): count for topic, count in pending.items() if count} if clean else {},
            "floor": list(floor),
            "clean": clean,
        }
        if own == self._saved:
            return
        yield from self._own.writing(own)
        state, _, counter = self._versions
        self._versions = [state, self._clock.wall_ms(), counter + 1]
        data = _CHECK.pack(check.read_ms, check.log_end, check.offset, _NO_MASTER, *self._versions)
        data += _MARK.pack(_MARK_MAGIC, zlib.crc32(data))
        # In one step: half of it would be taken for RocketMQ's, whose positions go before what the log says.
        yield from writing_whole(self._disk, self.check_path, data.ljust(CHECK_BYTES, b"\x00"))
        self._saved = own


def _saved(found: tuple[TimerCheck, bool] | None, own: Any, log_end: int) -> Saved:
    """Return what both files say: `timercheck` and whether it is our own, and `timers.json`. Raises as `NOT_PARSED`."""
    if own is not None and "anew" in own:
        # A stop came while everything was made again.
        return Saved(None, floor=tuple(own["anew"]))
    if own is not None and own["decided_from"] > log_end:
        # The log was cut below what the file follows from.
        own = None
    if found is not None and not found[1]:
        check = found[0]
        floor = (check.offset, check.read_ms)
        if own is None:
            return Saved(check, floor=floor)
        return Saved(check, own["decided_from"], tuple(map(tuple, own["aside"])), floor=floor)
    if own is None:
        return Saved(None)
    pending = {int(topic): count for topic, count in own["pending"].items()} if own["clean"] else None
    check = TimerCheck(own["read_ms"], own["log_end"], own["offset"])
    return Saved(check, own["decided_from"], tuple(map(tuple, own["aside"])), pending, tuple(own["floor"]))


def without_files(root: str, *, disk: Disk, clock: Clock) -> bytes | None:
    """Return the `pyddmq/timers.json` of a copy that has neither timer log nor wheel; None for a store of no timers.

    They are made again there from the commit log, but for what RocketMQ delivered before this broker took over.

    Raises:
        OSError: A file cannot be read.
    """
    state = TimerStateFiles(root, disk=disk, clock=clock, metrics=Metrics())
    if not (disk.exists(state.own_path) or disk.exists(state.check_path)):
        return None
    return sealed({"anew": list(state.load(_NO_END).floor)})
