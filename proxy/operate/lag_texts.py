"""Lag as people read it, in commands and on the console: how far behind, where it goes, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.operate.text import age
from proxy.operate.views.lag import LagGroup, LagQueue

UNKNOWN = "?"
_BLOCKS = "▁▂▃▄▅▆▇█"
_LETTERS = "_.:-=+*#"


def behind(each: LagQueue) -> str:
    """Say how old the oldest unfinished message is, and how that is known where it was not read."""
    if each.time_lag_ms is not None:
        text = "0" if not each.time_lag_ms else age(each.time_lag_ms / 1000)
        return text if each.time_lag_method == "message" else f"about {text} ({each.time_lag_method})"
    if each.time_lag_low_ms is not None:
        return f"at least {age(each.time_lag_low_ms / 1000)} ({each.time_lag_method})"
    return UNKNOWN


def forecast(each: LagQueue) -> str:
    """Say where a queue's lag goes, by the rates that are shown beside it."""
    return forecast_of_all([each])


def forecast_of_all(queues: Iterable[LagQueue]) -> str:
    """Say where the queues of a group go together: all are caught up when the last one is."""
    left = [each for each in queues if each.unfinished]
    seconds = [each.catch_up_s for each in left if each.catch_up_s is not None]
    if left and len(seconds) == len(left):
        return f"caught up in {age(max(seconds))}"
    growth = [rate for each in left if (rate := _growth(each)) is not None]
    return f"grows by {sum(growth):.3g}/s" if len(growth) == len(left) and sum(growth) > 0 else ""


def _growth(each: LagQueue) -> float | None:
    """Messages per second by which a lag grows at present, or by its trend where no rates are known."""
    if each.produce_rate is None or each.consume_rate is None:
        return each.velocity
    return each.produce_rate - each.consume_rate


def left(group: LagGroup) -> str:
    """Write how many messages a group has left, and that there may be more where a queue's lag is not known."""
    if group.unfinished is None:
        return UNKNOWN
    return f"{group.unfinished:,}{' and more' if group.queues_unknown else ''}"


def count(value: int | None) -> str:
    """Write a count; `?`: it is not known."""
    return UNKNOWN if value is None else f"{value}"


def rate(value: float | None) -> str:
    """Write a rate; `?`: it is not known."""
    return UNKNOWN if value is None else f"{value:.3g}"


def sparkline(parts: Sequence[int | None], encoding: str = "utf-8") -> str:
    """Draw values as one line of text, 0 at the bottom and the highest at the top; a blank: not known.

    Args:
        parts: The values.
        encoding: Where it has no blocks, letters of different weight are drawn.
    """
    steps = _BLOCKS
    try:
        steps.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        steps = _LETTERS
    most = max((each for each in parts if each is not None), default=0) or 1
    top = len(steps) - 1
    # Whatever is not 0 is seen.
    drawn = (" " if each is None else steps[-(-each * top // most)] for each in parts)
    return "".join(drawn).rstrip()
