"""RocketMQ's timers: the topic, the properties, and which slot a moment belongs to.

A timed message waits in queue 0 of `rmq_sys_wheel_timer`. `TIMER_OUT_MS` names its slot: the last multiple of the
precision before the due time, so that slot s holds what is due in (s, s + precision]. RocketMQ delivers a slot when
it is over. The due time itself, to the millisecond, is in `TIMER_DELIVER_MS` (D28).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME

TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_NAME = TIMER_TOPIC.encode()

DELIVER_NAME = b"TIMER_DELIVER_MS"
OUT_NAME = b"TIMER_OUT_MS"
ROLLS_NAME = b"TIMER_ROLL_TIMES"
CANCEL_NAME = b"TIMER_DEL_UNIQKEY"
DELAY_MS_NAME = b"TIMER_DELAY_MS"
DELAY_SECONDS_NAME = b"TIMER_DELAY_SEC"
TIMER_NAMES = (
    DELIVER_NAME,
    OUT_NAME,
    ROLLS_NAME,
    CANCEL_NAME,
    DELAY_MS_NAME,
    DELAY_SECONDS_NAME,
    b"TIMER_ENQUEUE_MS",
    b"TIMER_DEQUEUE_MS",
    b"TIMER_DELAY_LEVEL",
    REAL_TOPIC_NAME,
    REAL_QUEUE_NAME,
)
"""What a message has for its wait; none of it is delivered."""

DAY_MS = 86_400_000
PRECISIONS_MS = (1000, 500, 200, 100)
"""Those that RocketMQ knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerOptions:
    """How timers are kept; the defaults are RocketMQ's but for the longest delay.

    Attributes:
        delay_ms_max: Longest time from receipt to due (RocketMQ's timerMaxDelaySec, there 3 days).
        slot_messages_max: Timers of one slot above which new ones are refused more and more often, all of them at twice
            that (timerCongestNumEachSlot); 0 is without bound.
        precision_ms: Width of a slot (timerPrecisionMs); a wheel of another width is rebuilt.
        slots: Slots of half a round (7 days in RocketMQ).
        roll_slots: Messages that are due later than this number of slots from now are rolled: stored again in between
            (timerRollWindowSlot).
        log_file_bytes: Size of a timer-log file (mappedFileSizeTimerLog); that of the files that are there wins.
    """

    delay_ms_max: int = 400 * DAY_MS
    slot_messages_max: int = 0
    precision_ms: int = 1000
    slots: int = 7 * 86_400
    roll_slots: int = 2 * 86_400
    log_file_bytes: int = 100 << 20

    def __post_init__(self) -> None:
        if self.precision_ms not in PRECISIONS_MS:
            raise ValueError(f"precision_ms must be one of {PRECISIONS_MS}, got {self.precision_ms}")
        if not 2 <= self.roll_slots <= self.slots - 60:
            raise ValueError(f"roll_slots must be 2 to {self.slots - 60}, got {self.roll_slots}")
        if self.log_file_bytes < 256 or self.delay_ms_max < 1 or self.slot_messages_max < 0:
            raise ValueError("log_file_bytes must be 256 or more, delay_ms_max 1 or more, slot_messages_max 0 or more")


def slot_of(due_ms: int, precision_ms: int) -> int:
    """Start of the slot of a due time, ms since the epoch (HookUtils.transformTimerMessage)."""
    return (due_ms - 1) // precision_ms * precision_ms


def due_of(block: bytes, precision_ms: int) -> int | None:
    """Due time of a record of the timer topic, ms since the epoch; None when it names no slot.

    What RocketMQ stored is due at its TIMER_DELIVER_MS when that was asked for and belongs to the slot, else when its
    slot is over: a relative delay was counted from a receipt that was not noted to the millisecond (D28).

    Args:
        block: Its property block.
        precision_ms: Width of a slot.
    """
    out = whole_number(find_property(block, OUT_NAME))
    deliver = whole_number(find_property(block, DELIVER_NAME))
    if out is None:
        return None
    exact = deliver is not None and out < deliver <= out + precision_ms
    if exact and find_property(block, DELAY_MS_NAME) is None and find_property(block, DELAY_SECONDS_NAME) is None:
        return deliver
    return out + precision_ms
