"""Durations as texts such as `10s` and `2d`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

DURATION = re.compile(r"([1-9][0-9]{0,8})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
NONE = "0s"


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `10s`.

    Raises:
        ValueError: The text is none.
    """
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a valid duration; write a number and one of ms, s, m, h, d, such as 10s or 2d"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def wait_ms(text: str) -> int:
    """Return the milliseconds of a duration that may also be `0s`. Raises ValueError."""
    return 0 if text == NONE else duration_ms(text)


def _check_duration(text: str) -> str:
    duration_ms(text)
    return text


def _check_wait(text: str) -> str:
    wait_ms(text)
    return text


Duration = Annotated[str, AfterValidator(_check_duration)]
Wait = Annotated[str, AfterValidator(_check_wait)]
"""A duration, or `0s`."""
