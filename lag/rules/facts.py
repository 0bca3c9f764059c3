"""What a window of samples says, as single values: all that the rules look at besides limits and each other.

The window ends with the newest sample and reaches back `window_ms`. It is made of samples that could be read, and
begins after the last fall of `end`: what lay in a queue before it was made again is gone.

A *trailing run* is the longest stretch up to the window's newest sample in which something held all the time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter, gt, lt, sub
from typing import Any, Final, NamedTuple

from lag.rules.expression import Value
from lag.rules.limits import LagLimits
from lag.samples import SAMPLE_FIELDS, QueueSample

WINDOW_FACTS: Final = {
    "now_ms": "the time that is judged",
    "readable": "samples in the window: those that could be read, since `end` last fell",
    "reset_ms": "when an operator last reset the offset within the window; null: did not",
    "reset_ago_s": "how many seconds ago that was",
    "committed_before": "the last committed offset before it within the window; null: none, or not known",
    "flat_since_ms": "begin of the trailing run of one committed offset",
    "behind_since_ms": "begin of the trailing run with messages behind the group's position; null: no such messages",
    "paused_until_ms": "the last sample in which the group was paused; null: none",
    "least_unfinished": "lowest count of unfinished messages",
    "peak_committed": "highest committed offset since the last reset",
    "earlier_expired": "messages lost up to the sample before the window, or its first one",
    "earlier_committed": "the committed offset then",
    "below_ms": "the last sample whose end is not above the position of the group",
    "below_end": "its end",
    "above_ms": "the sample after it, or the window's first: begin of the run of ends above the position",
    "above_end": "its end",
    "growing_since_ms": "the last sample with the fewest unfinished messages of the trailing run that never falls",
    "grown": "by how much they rose since",
    "grown_produced": "by how much `end` rose since",
    "peak_before": "highest count of unfinished messages before that sample; null: none is known",
    "produce_slope": "slope of `end`, in messages/s; null below 2 samples",
    "consume_slope": "slope of what the group finished since the committed offset last fell or was reset, or the topic "
    "was emptied, in messages/s: its position without what expired or was skipped; null below 2 samples",
    "produce_recent": "slope of `end` over the shortest span of samples of recent_ms or more, else over all of them",
    "consume_recent": "slope of what the group finished over that span",
    "start_slope": "slope of `start`, in messages/s",
    "produce_first": "slope of `end` from the window's first sample to the middle one; null below 3 samples",
    "produce_second": "slope of `end` from there to the last sample",
    "consume_first": "slope of what the group finished, likewise over the samples of consume_slope",
    "consume_second": "that from their middle one to the last",
}
"""Facts of the window, each with what it is. The fields of the newest sample come beside them."""

_sample_values: Final = attrgetter(*SAMPLE_FIELDS)


class WindowRow(NamedTuple):
    """What the rules need of a sample that is not the newest; made once, as each is in many windows.

    Attributes:
        time_ms: Its moment.
        start: First kept offset; null: the queue could not be read.
        end: The offset of the next message.
        committed: The committed offset; null: the group never committed.
        position: Where the group continues; at the first kept message where it never committed.
        unfinished: Messages that are left, of a sample with a committed offset.
        done: What the group itself finished, from any beginning: its position without what others took past it. A
            loss and a skip move the committed offset, and are no consumption.
        base: Where the topic's present life begins.
        expired: Messages that retention took unfinished.
        paused: Whether the group was paused.
    """

    time_ms: int
    start: int | None
    end: int
    committed: int | None
    position: int
    unfinished: int
    done: int
    base: int
    expired: int
    paused: bool


def row_of(sample: QueueSample) -> WindowRow:
    """Return the row of a sample."""
    start = None if sample.end is None else sample.start
    end, position = sample.end or 0, max(start or 0, sample.committed or 0)
    return WindowRow(
        sample.time_ms,
        start,
        end,
        sample.committed,
        position,
        max(0, max(0, end - position) - sample.finished),
        position - sample.expired - sample.skipped,
        sample.base or 0,
        sample.expired,
        sample.paused,
    )


def facts_of(
    rows: Sequence[WindowRow], newest: QueueSample, now_ms: int, limits: LagLimits, reset_ms: int | None = None
) -> dict[str, Value]:
    """Return the facts of one queue.

    Args:
        rows: Of its samples, oldest first; those before the window too, of which the last one is looked at.
        newest: The sample of the last row.
        now_ms: The moment that is judged, in Unix ms; not before the newest sample, or taken as that.
        limits: Thresholds.
        reset_ms: When an operator last reset the group's offset on this queue; null: never.
    """
    now_ms = max(now_ms, newest.time_ms)
    begin_ms = newest.time_ms - limits.window_ms
    if reset_ms is not None and not begin_ms <= reset_ms <= now_ms:
        reset_ms = None
    begin = next(place for place, row in enumerate(rows) if row.time_ms >= begin_ms)
    window = [row for row in rows[begin:] if row.start is not None]
    columns = _columns(window) if window else _NO_COLUMNS
    ends = columns.end
    if any(map(gt, ends, ends[1:])):
        window = window[max(place for place in range(1, len(ends)) if ends[place] < ends[place - 1]) :]
        columns = _columns(window)
    facts = _known_before(limits).copy()
    facts.update(zip(SAMPLE_FIELDS, _sample_values(newest), strict=True))
    facts["now_ms"], facts["readable"], facts["reset_ms"] = now_ms, len(window), reset_ms
    if reset_ms is not None:
        facts["reset_ago_s"] = (now_ms - reset_ms) // 1000
    if window:
        before = next((row for row in reversed(rows[:begin]) if row.start is not None), window[0])
        facts["earlier_expired"], facts["earlier_committed"] = before.expired, before.committed
        times, ends = columns.time_ms, columns.end
        if True in columns.paused:
            facts["paused_until_ms"] = max(row.time_ms for row in window if row.paused)
        _add_runs(facts, columns, newest)
        known = columns
        if None in columns.committed:
            readable = [row for row in window if row.committed is not None]
            known = _columns(readable) if readable else _NO_COLUMNS
        if known.time_ms:
            _add_committed(facts, known, reset_ms, limits)
            _add_growth(facts, known)
        facts["produce_slope"] = median_slope(times, ends)
        facts["produce_recent"] = recent_slope(times, ends, limits.recent_ms)
        facts["produce_first"], facts["produce_second"] = halves(times, ends)
        facts["start_slope"] = median_slope(times, columns.start)
    return facts


@lru_cache(maxsize=64)
def _known_before(limits: LagLimits) -> dict[str, Value]:
    """Return what every queue with these limits has, with a place for all else."""
    facts: dict[str, Value] = dict.fromkeys((*SAMPLE_FIELDS, *WINDOW_FACTS))
    return facts | {field.name: getattr(limits, field.name) for field in fields(LagLimits)}


def _columns(rows: Sequence[WindowRow]) -> Any:
    """Return a row whose fields have the values of all rows."""
    return WindowRow(*zip(*rows, strict=True))  # type: ignore[arg-type]


_NO_COLUMNS: Final[Any] = WindowRow(*[()] * len(WindowRow._fields))  # type: ignore[arg-type]


def _add_runs(facts: dict[str, Value], window: Any, newest: QueueSample) -> None:
    times, ends, count = window.time_ms, window.end, len(window.time_ms)
    is_behind = list(map(gt, ends, window.position))
    place = count - is_behind[::-1].index(False) if False in is_behind else 0
    facts["behind_since_ms"] = times[place] if place < count else None
    if newest.committed is None or newest.start is None:
        return
    place, committed = count, window.committed
    while place and committed[place - 1] == newest.committed:
        place -= 1
    facts["flat_since_ms"] = times[place] if place < count else None
    # Ends never fall within a window.
    place = bisect_right(ends, max(newest.start, newest.committed))
    if place < count:
        facts["above_ms"], facts["above_end"] = times[place], ends[place]
        if place:
            facts["below_ms"], facts["below_end"] = times[place - 1], ends[place - 1]


def _add_growth(facts: dict[str, Value], known: Any) -> None:
    left, begin = known.unfinished, len(known.unfinished) - 1
    # Back over the last run that only rises, then forward over equal ones: growth begins at the last of the lowest.
    while begin and left[begin - 1] <= left[begin]:
        begin -= 1
    lowest = left[begin]
    while begin + 1 < len(left) and left[begin + 1] == lowest:
        begin += 1
    facts["growing_since_ms"] = known.time_ms[begin]
    facts["grown"] = left[-1] - lowest
    facts["grown_produced"] = known.end[-1] - known.end[begin]
    facts["peak_before"] = max(left[:begin], default=None)


def _add_committed(facts: dict[str, Value], known: Any, reset_ms: int | None, limits: LagLimits) -> None:
    facts["least_unfinished"] = min(known.unfinished)
    since = 0 if reset_ms is None else bisect_left(known.time_ms, reset_ms)
    facts["committed_before"] = known.committed[since - 1] if since else None
    times, committed, bases = known.time_ms[since:], known.committed[since:], known.base[since:]
    facts["peak_committed"] = max(committed, default=None)
    # A topic that is emptied or made again moves the committed offset to where it begins.
    begin = 0
    if any(map(gt, committed, committed[1:])) or any(map(lt, bases, bases[1:])):
        begin = len(committed) - 1
        # From the newest sample back, as long as nothing fell: slopes are of that stretch alone.
        while begin and (-bases[begin], committed[begin]) >= (-bases[begin - 1], committed[begin - 1]):
            begin -= 1
    times, done = times[begin:], known.done[since + begin :]
    facts["consume_slope"] = median_slope(times, done)
    facts["consume_recent"] = recent_slope(times, done, limits.recent_ms)
    facts["consume_first"], facts["consume_second"] = halves(times, done)


def median_slope(times: Sequence[int], values: Sequence[int]) -> float | None:
    """Return the median of the slopes over pairs of points that are half of them apart, per second.

    Args:
        times: Moments of the points in ms, rising.
        values: Their values.

    Returns:
        Null below 2 points.
    """
    apart = len(times) // 2
    if not apart:
        return None
    if values.count(values[0]) == len(values):
        return 0.0
    risen, passed = map(sub, values[apart:], values), map(sub, times[apart:], times)
    slopes: list[float] = sorted(rise * 1000.0 / span for rise, span in zip(risen, passed, strict=True))
    return (slopes[(len(slopes) - 1) // 2] + slopes[len(slopes) // 2]) / 2


def recent_slope(times: Sequence[int], values: Sequence[int], span_ms: int) -> float | None:
    """Return the slope over the last `span_ms`, or the shortest span above that, per second; null below 2 points."""
    if len(times) < 2:
        return None
    begin = max(bisect_right(times, times[-1] - span_ms, 0, len(times) - 1) - 1, 0)
    return _slope(times, values, begin, -1)


def halves(times: Sequence[int], values: Sequence[int]) -> tuple[float | None, float | None]:
    """Return the slopes over the first and the second half of the points, per second; null below 3 points."""
    if len(times) < 3:
        return None, None
    middle = len(times) // 2
    return _slope(times, values, 0, middle), _slope(times, values, middle, -1)


def _slope(times: Sequence[int], values: Sequence[int], first: int, second: int) -> float:
    return (values[second] - values[first]) * 1000.0 / (times[second] - times[first])
