"""Lag as people read it, in commands and on the status page: how far behind, where it goes, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from lag.rules.statuses import Level
from proxy.operate.text import age, amount
from proxy.operate.views.lag import LagQueue

UNKNOWN = "?"
_BLOCKS = "▁▂▃▄▅▆▇█"
_LETTERS = "_.:-=+*#"
_PLACES_MAX = 5
"""Topics of a group that are named in one line of advice."""
_WORST_FIRST = ("ERR", "UNKNOWN", "WARN")


class Advice(NamedTuple):
    """What to do about queues of one group that have one status, for one reason.

    Attributes:
        level: `ERR`, `UNKNOWN` or `WARN`.
        text: Which queues, and their status.
        todo: What to do.
    """

    level: str
    text: str
    todo: str


def behind(each: LagQueue) -> str:
    """Say how old the oldest unfinished message is, and how that is known where it was not read."""
    if each.time_lag_ms is not None:
        text = "0" if not each.time_lag_ms else age(each.time_lag_ms / 1000)
        return text if each.time_lag_method == "message" else f"about {text} ({each.time_lag_method})"
    if each.time_lag_low_ms is not None:
        return f"at least {age(each.time_lag_low_ms / 1000)} ({each.time_lag_method})"
    return UNKNOWN


def forecast(each: LagQueue) -> str:
    """Say where it goes at the rates of the window."""
    if not each.unfinished or each.velocity is None:
        return ""
    if each.catch_up_s is not None:
        return f"caught up in {age(each.catch_up_s)}"
    return f"grows by {each.velocity:.3g}/s" if each.velocity > 0 else ""


def forecast_of_all(queues: Iterable[LagQueue]) -> str:
    """Say where the queues of a group go together: all are caught up when the last one is."""
    left = [each for each in queues if each.unfinished]
    velocities = [each.velocity for each in left if each.velocity is not None]
    if not left or len(velocities) < len(left):
        return ""
    if sum(velocities) > 0:
        return f"grows by {sum(velocities):.3g}/s"
    seconds = [each.catch_up_s for each in left if each.catch_up_s is not None]
    return f"caught up in {age(max(seconds))}" if len(seconds) == len(left) else ""


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


def advices(queues: Iterable[LagQueue]) -> list[Advice]:
    """Say what to do about all queues that are not OK: once for the queues of a group that have a status in common.

    Args:
        queues: All that were judged.

    Returns:
        The worst first, then by group.
    """
    found: dict[tuple[int, str, str, str], list[LagQueue]] = {}
    for each in queues:
        if each.level != Level.OK.name:
            key = (_WORST_FIRST.index(each.level), each.group, each.status, each.advice)
            found.setdefault(key, []).append(each)
    return [
        Advice(_WORST_FIRST[place], _whose(group, status, alike), todo)
        for (place, group, status, todo), alike in sorted(found.items(), key=lambda item: item[0])
    ]


def _whose(group: str, status: str, queues: Sequence[LagQueue]) -> str:
    if len(queues) == 1:
        return f"{group}: {queues[0].topic} {queues[0].queue} is {status}."
    topics = [
        f"{topic} {_numbers([each.queue for each in members])}"
        for topic, members in groupby(
            sorted(queues, key=lambda each: (each.topic, each.queue)), lambda each: each.topic
        )
    ]
    named = "; ".join(topics[:_PLACES_MAX])
    more = len(topics) - _PLACES_MAX
    if more > 0:
        named += f" and {amount(more, 'more topic')}"
    return f"{group} is {status} in {amount(len(queues), 'queue')}: {named}."


def _numbers(queues: Sequence[int]) -> str:
    """Write numbers in order, those that follow each other as a range: 0-3, 7."""
    runs: list[list[int]] = []
    for number in queues:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:_PLACES_MAX]) + (
        " and others" if len(runs) > _PLACES_MAX else ""
    )
