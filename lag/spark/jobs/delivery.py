"""How far a store has delivered what waits for its time: which records of delay levels and timers may still wait.

Checkpoints say it up to some position of the log; behind that the log does, where each delivery and cancel names the
record whose place it takes (D27). So the two together are exact, however old the checkpoint is. Of RocketMQ's stores
there are its checkpoints alone, which it writes when it stops and every few seconds. Nothing is believed: a checkpoint
that is damaged, or is none, counts as one that is not there, and without any the whole log is looked through.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.runtime.json_keys import parse_loose
from broker.runtime.sealed_file import unsealed
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.timer.names import TIMER_TOPIC
from lag.spark.sources.store_files import StoreFiles
from lag.spark.sources.store_tail import replaced_since

Ranges = Sequence[tuple[int, int]]
_TIMER_CHECK: Final = struct.Struct(">qqq")
_CHECK_BYTES: Final = 56
_MARK: Final = struct.Struct(">II")
_MARK_MAGIC: Final = 0x50594D51
"""As `broker.scheduled.timer.pending.state` writes them, which needs more than a cluster has."""
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error)
_NEVER: Final = 1 << 62
LATE_MS: Final = 10_000
"""Slots are read two seconds ahead. A timer that comes when its own has been read is in a later one, so of those
that were stored so long before the checkpoint's slot, and since, the log is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What may still wait is not below these, and is not replaced.

    Attributes:
        spans: Offsets to look at, from a first one to below another, by topic and queue.
        completed: Of delay levels, by queue: ranges of offsets that are done.
        slot_ms: Timers of slots before this moment are done, but for those that the next three name:
        decided_from: records at this position of the log or behind it,
        entered: at this offset or behind it,
        refused: and at these positions.
        replaced: Positions whose place another record has taken, as far as checkpoints do not say it.
    """

    spans: Mapping[str, Mapping[str, tuple[int, int]]]
    completed: Mapping[int, Ranges]
    slot_ms: int
    decided_from: int
    entered: int
    refused: Sequence[int]
    replaced: Sequence[int]


def delivered(data: str) -> Delivered:
    """Look at a store's checkpoints, and at its log behind them.

    Args:
        data: A store's folder; a node's data directory is one.

    Raises:
        StoreUnreadable: There is no store.
    """
    # First of all, so that what is delivered while this reads is looked for behind it.
    visible = StoreFiles(data).visible_end()
    levels, levels_from = _levels(data)
    slot_ms, decided_from, entered, refused, timers_from = _timers(data)
    files = StoreFiles(data)
    spans: dict[str, dict[str, tuple[int, int]]] = {}
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        for queue in files.queues(topic):
            first, end = files.range(topic, queue)
            if topic == SCHEDULE_TOPIC:
                first = max(first, levels[queue][0] if queue in levels else first)
            if first < end:
                spans.setdefault(topic, {})[str(queue)] = first, end
    if decided_from != _NEVER and "0" in spans.get(TIMER_TOPIC, {}):
        first, end = spans[TIMER_TOPIC]["0"]
        late = files.offset_at(TIMER_TOPIC, 0, slot_ms - LATE_MS)
        if first <= late < end:
            decided_from = min(decided_from, files.position(TIMER_TOPIC, 0, late))
            timers_from = min(timers_from, decided_from)
    starts = [levels_from] * (SCHEDULE_TOPIC in spans) + [timers_from] * (TIMER_TOPIC in spans)
    start = min(starts, default=_NEVER)
    end = _NEVER if visible is None else visible
    return Delivered(
        spans=spans,
        completed={queue: ranges for queue, (_, ranges) in levels.items() if ranges},
        slot_ms=slot_ms,
        decided_from=decided_from,
        entered=entered,
        refused=refused,
        replaced=[] if start == _NEVER else list(replaced_since(files.log, start, end)),
    )


def _levels(data: str) -> tuple[dict[int, tuple[int, Ranges]], int]:
    """Return of each level's queue the lowest offset that may wait and the ranges done above it; and the log's part."""
    found: dict[int, tuple[int, Ranges]] = {}
    log_from = 0
    try:
        with open(f"{data}/config/delayOffset.json", encoding="utf-8") as file:
            table = parse_loose(file.read())["offsetTable"]
        found = {int(level) - 1: (max(0, int(offset)), ()) for level, offset in table.items()}
        # RocketMQ names no deliveries, and wrote this last.
        log_from = _NEVER
    except _DAMAGED:
        pass
    own = _own(data, "delays")
    try:
        if own is not None:
            for level, (position, *ranges) in own["levels"].items():
                place = int(level) - 1
                first = max(int(position), found.get(place, (0, ()))[0])
                found[place] = first, [(int(begin), int(end)) for begin, end in ranges]
            log_from = max(0, int(own["log_end"]))
    except _DAMAGED:
        log_from = 0
    return found, log_from


def _timers(data: str) -> tuple[int, int, int, list[int], int]:
    """Return slot, place, offset and refused ones as `Delivered` has them, and from where the log has to be read."""
    own, check = _own(data, "timers"), _timer_check(data)
    try:
        if own is not None and "anew" in own:
            # Everything is being made again: what RocketMQ delivered before is all that is known.
            offset, moment_ms = own["anew"]
            return int(moment_ms), _NEVER, int(offset), [], 0
        if own is not None:
            refused = [int(physical) for physical, _, _ in own["aside"]]
            decided_from = int(own["decided_from"])
            if check is not None and not check[2]:
                # RocketMQ had the store since.
                return check[0], _NEVER, check[1], refused, decided_from
            return int(own["read_ms"]), decided_from, int(own["offset"]), refused, decided_from
    except _DAMAGED:
        pass
    if check is not None and not check[2]:
        return check[0], _NEVER, check[1], [], _NEVER
    return 0, _NEVER, 0, [], 0


def _timer_check(data: str) -> tuple[int, int, bool] | None:
    """Return what `config/timercheck` says: the slot to read next, the next offset, and whether a node wrote it."""
    try:
        with open(f"{data}/config/timercheck", "rb") as file:
            raw = file.read(_CHECK_BYTES + _MARK.size)
        read_ms, _, offset = _TIMER_CHECK.unpack_from(raw)
    except _DAMAGED:
        return None
    mark = raw[_CHECK_BYTES:] == _MARK.pack(_MARK_MAGIC, zlib.crc32(raw[:_CHECK_BYTES]))
    return (read_ms, offset, mark) if read_ms > 0 and offset >= 0 else None


def _own(data: str, name: str) -> Any:
    try:
        with open(f"{data}/pyddmq/{name}.json", "rb") as file:
            return unsealed(file.read())
    except _DAMAGED:
        return None


def as_spans(found: Delivered) -> str:
    """Return what is to be read, as the sources' option `spans` takes it."""
    return json.dumps(found.spans)
