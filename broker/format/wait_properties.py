"""The properties by which RocketMQ's clients let a message wait, taken for what they ask; and where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.numbers import whole_number

_LEVEL = "DELAY"
_DELAYS = {"TIMER_DELAY_SEC": 1000, "TIMER_DELAY_MS": 1}
"""Name and unit in ms, in the order in which they are looked at (HookUtils.transformTimerMessage)."""
_MOMENT = "TIMER_DELIVER_MS"
NAMES = frozenset((_LEVEL, *_DELAYS, _MOMENT))

REAL_TOPIC_NAME = b"REAL_TOPIC"
REAL_QUEUE_NAME = b"REAL_QID"
"""Where a message belongs that waits in a system topic."""


class Wait(NamedTuple):
    """What a message waits for: a level, a moment (wall clock, ms since the epoch), or a delay in ms; 0 where none."""

    level: int = 0
    deliver_at_ms: int = 0
    delay_ms: int = 0


def wait_of(properties: Mapping[str, str]) -> Wait:
    """Return what the properties ask for: the level wins, then seconds, milliseconds, and the moment.

    A level of 0 or less is none.

    Raises:
        MessageRefused: The value of one is not a number.
    """
    asked = {name: _number(name, value) for name, value in properties.items() if name in NAMES}
    if asked.get(_LEVEL, 0) > 0:
        return Wait(level=asked[_LEVEL])
    for name, unit_ms in _DELAYS.items():
        if name in asked:
            return Wait(delay_ms=asked[name] * unit_ms)
    return Wait(deliver_at_ms=asked.get(_MOMENT, 0))


def _number(name: str, value: str) -> int:
    number = whole_number(value.removeprefix("-"))
    if number is None:
        raise MessageRefused(f"{name} must be an integer, got {value[:40]!r}")
    return -number if value.startswith("-") else number
