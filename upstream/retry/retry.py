"""When a failed message comes again (R45, R55, D17)."""

from __future__ import annotations

import math
from collections.abc import Sequence

REPEAT_MS_DEFAULT = 1000
"""What a leading -1 repeats. The configuration refuses one (W20); here it must only not lose the message."""

JITTER = 0.1
"""How much longer a wait is at the most where messages are pushed: the receiver may have failed all of them."""

ERROR_DELAY_MS = 1000
"""First wait after an exception in an action; doubled per error, at most 128 times as long (R55)."""
_DOUBLINGS_MAX = 7

WISH_MS_MAX = 300_000
"""Longest wait after an error because a receiver wishes it."""

DELAY_MS_MAX = 400 * 86_400_000
"""Longest wait that an action may ask for: as long as the longest timer."""


def next_interval_ms(intervals: Sequence[int], fails: int) -> int | None:
    """Wait before the next attempt of a message that failed for business reasons.

    Args:
        intervals: retryIntervals in ms; a -1 repeats the entry before it forever.
        fails: Failures counted before this one.

    Returns:
        Milliseconds, or None when no attempt is left and the message goes to the dead-letter topic.
    """
    for index in range(min(fails + 1, len(intervals))):
        if intervals[index] < 0:
            return intervals[index - 1] if index else REPEAT_MS_DEFAULT
    return intervals[fails] if fails < len(intervals) else None


def apart_ms(wait_ms: int, draw: float) -> int:
    """Return a wait of retryIntervals and up to a tenth more, so that what failed together does not come together.

    Args:
        wait_ms: The interval.
        draw: Of [0, 1).
    """
    return wait_ms + round(wait_ms * JITTER * draw)


def delay_of(wish_ms: object) -> int | None:
    """Return the wait in milliseconds that an action asked for, DELAY_MS_MAX at most; None: it is not a wait."""
    if isinstance(wish_ms, int | float) and 0 <= wish_ms < math.inf:
        return round(min(wish_ms, DELAY_MS_MAX))
    return None


def may_retry_error(errors: int, retry_max: int) -> bool:
    """Whether a message with `errors` earlier exceptions and timeouts may come again; -1 is no limit (R43)."""
    return retry_max < 0 or errors < retry_max


def error_delay_ms(errors: int) -> int:
    """Wait in ms after an exception, the `errors`-th before it (0 first): 1 s, 2 s, 4 s ... 128 s (R55)."""
    return ERROR_DELAY_MS << min(errors, _DOUBLINGS_MAX)
