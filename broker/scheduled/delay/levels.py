"""RocketMQ's delay levels: the list of delays, the topic that holds delayed messages, and when one is due.

A message of level n waits in queue n - 1 of `SCHEDULE_TOPIC_XXXX`. Its consume-queue unit says when it is due: where
other units have the code of the tags, it has ms since the epoch, so nothing but units is read until then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from broker.format.numbers import whole_number
from broker.format.properties import find_property

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_NAME = SCHEDULE_TOPIC.encode()

DELAY_NAME = b"DELAY"
WAIT_NAME = b"__PYDDMQ_DELAY_MS"
"""Ms from the store timestamp to the due time. RocketMQ has the level alone, so that a changed list, or a clock that
was set back (the store timestamp never goes back, D4), would change what was fixed at receipt (D35)."""

STANDARD_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 100
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ENTRY = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNKNOWN_LEVEL_MS = 1000


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays of levels 1, 2, 3 ..., as RocketMQ's `messageDelayLevel` writes them.

    Attributes:
        text: Numbers with a unit (s, m, h or d), separated by blanks.
        delays_ms: The same in ms; level n is entry n - 1.

    Raises:
        ValueError: The text has no entry, too many, or one of another form.
    """

    text: str = STANDARD_LEVELS
    delays_ms: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        delays = []
        for entry in self.text.split():
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise ValueError(
                    f"{entry!r} is not a valid delay; write a number and one of s, m, h, d, such as 30s or 2h"
                )
            delays.append(int(match[1]) * _UNITS_MS[match[2]])
        if not 1 <= len(delays) <= LEVELS_MAX:
            raise ValueError(f"{len(delays)} delays; write a list of 1 to {LEVELS_MAX} delays")
        object.__setattr__(self, "delays_ms", tuple(delays))

    def level(self, asked: int) -> int:
        """Return the level that serves a request: one above the highest is the highest."""
        return min(asked, len(self.delays_ms))

    def ms(self, level: int) -> int:
        """Delay of a level in ms; above the highest it is the highest's, below 1 RocketMQ's 1 s for unknown ones."""
        return self.delays_ms[self.level(level) - 1] if level > 0 else _UNKNOWN_LEVEL_MS


def due_ms(properties: bytes, store_ms: int, levels: DelayLevels) -> int | None:
    """When a record of the schedule topic is due, ms since the epoch; None without a level: RocketMQ hashes tags then.

    Args:
        properties: Its property block.
        store_ms: Its store timestamp.
        levels: Delays of records that do not say theirs, which are RocketMQ's.
    """
    wait = find_property(properties, WAIT_NAME)
    if wait is not None and (wait_ms := whole_number(wait.removeprefix(b"-"))) is not None:
        return store_ms + (-wait_ms if wait.startswith(b"-") else wait_ms)
    level = find_property(properties, DELAY_NAME)
    if level is None:
        return None
    return store_ms + levels.ms(whole_number(level) or 0)
