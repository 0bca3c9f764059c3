"""What a window of samples says, as single values: all that the rules look at besides limits and each other.

The window ends with the newest sample and reaches back `window_ms`. It is made of samples that could be read, and
begins after the last fall of `end`: what lay in a queue before it was made anew is gone.

A *trailing run* is the longest stretch up to the window's newest sample in which something held all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final

from lag.rules.expression import Value
from lag.rules.limits import Limits
from lag.samples import SAMPLE_FIELDS, QueueSample

WINDOW_FACTS: Final = {
    "now_ms": "the moment that is judged",
    "readable": "samples in the window: those that could be read, since `end` last fell",
    "reset_ms": "when an operator last reset the offset within the window; null: did not",
    "reset_ago_s": "how many seconds ago that was",
    "committed_before": "the last committed offset before it within the window; null: none, or not known",
    "flat_since_ms": "begin of the trailing run of one committed offset",
    "behind_since_ms": "begin of the trailing run with messages behind the group's position; null: there are none",
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

_LIMITS: Final = tuple(field.name for field in fields(Limits))
_EMPTY: Final[Mapping[str, Value]] = dict.fromkeys(WINDOW_FACTS)

Point = tuple[int, int]
"""Moment and value."""


def facts_of(
    samples: Sequence[QueueSample], now_ms: int, limits: Limits, reset_ms: int | None = None
) -> dict[str, Value]:
    """Return the facts of one queue.

    Args:
        samples: Its samples, oldest first; those before the window too, of which the last one is looked at.
        now_ms: The moment that is judged, in Unix ms; not before the newest sample, or taken as that.
        limits: Thresholds.
        reset_ms: When an operator last reset the group's offset on this queue; null: never.

    Raises:
        ValueError: There is no sample, or they are not in the order of their times.
    """
    if not samples:
        raise ValueError("no samples: a queue is judged by one at least")
    for before, after in pairwise(samples):
        if after.time_ms <= before.time_ms:
            raise ValueError(f"sample at {after.time_ms} comes after one at {before.time_ms}: hand in the oldest first")
    newest = samples[-1]
    now_ms = max(now_ms, newest.time_ms)
    begin = newest.time_ms - limits.window_ms
    if reset_ms is not None and not begin <= reset_ms <= now_ms:
        reset_ms = None
    earlier = [sample for sample in samples if sample.time_ms < begin and _is_readable(sample)]
    window = [sample for sample in samples if sample.time_ms >= begin and _is_readable(sample)]
    window = _since_fall(window, lambda sample: sample.end or 0)
    facts: dict[str, Value] = {**_sample_fields(newest), **_EMPTY, **_limit_fields(limits)}
    facts |= {"now_ms": now_ms, "readable": len(window), "reset_ms": reset_ms}
    paused = [sample.time_ms for sample in window if sample.paused]
    facts["paused_until_ms"] = paused[-1] if paused else None
    if reset_ms is not None:
        facts["reset_ago_s"] = (now_ms - reset_ms) // 1000
    if window:
        before = earlier[-1] if earlier else window[0]
        facts |= {"earlier_expired": before.expired, "earlier_committed": before.committed}
        facts |= _of_runs(window, newest)
        facts |= _of_committed(window, reset_ms, limits)
        facts |= _of_growth(window)
        ends = [(sample.time_ms, sample.end or 0) for sample in window]
        facts["produce_slope"] = median_slope(ends)
        facts["produce_recent"] = recent_slope(ends, limits.recent_ms)
        facts["produce_first"], facts["produce_second"] = halves(ends)
        facts["start_slope"] = median_slope([(sample.time_ms, sample.start or 0) for sample in window])
    return facts


def _sample_fields(sample: QueueSample) -> dict[str, Value]:
    # `asdict` copies deeply, which takes a third of a judgement.
    return {name: getattr(sample, name) for name in SAMPLE_FIELDS}


def _limit_fields(limits: Limits) -> dict[str, Value]:
    return {name: getattr(limits, name) for name in _LIMITS}


def _is_readable(sample: QueueSample) -> bool:
    return sample.start is not None and sample.end is not None


def _since_fall(samples: Sequence[QueueSample], value: Callable[[QueueSample], Any]) -> list[QueueSample]:
    """Return the samples from the last one on whose value is below that of the one before it."""
    falls = [place for place in range(1, len(samples)) if value(samples[place]) < value(samples[place - 1])]
    return list(samples[falls[-1] if falls else 0 :])


def _position(sample: QueueSample) -> int:
    """Where the group goes on; at the first kept message where it never committed."""
    return max(sample.start or 0, sample.committed or 0)


def _unfinished(sample: QueueSample) -> int:
    """Messages that are left, of a sample with a committed offset."""
    return max(0, max(0, (sample.end or 0) - _position(sample)) - sample.finished)


def _done(sample: QueueSample) -> int:
    """What the group itself finished, from any beginning: its position without what others took past it.

    A loss and a skip move the committed offset, and are no consumption.
    """
    return _position(sample) - sample.expired - sample.skipped


def _run(window: Sequence[QueueSample], holds: Callable[[QueueSample], bool]) -> int:
    """Return where the trailing run begins; the window's length where its newest sample is not of it."""
    place = len(window)
    while place and holds(window[place - 1]):
        place -= 1
    return place


def _of_runs(window: Sequence[QueueSample], newest: QueueSample) -> dict[str, Value]:
    found: dict[str, Value] = {}
    behind = _run(window, lambda sample: (sample.end or 0) > _position(sample))
    found["behind_since_ms"] = window[behind].time_ms if behind < len(window) else None
    if newest.committed is not None and newest.start is not None:
        flat = _run(window, lambda sample: sample.committed == newest.committed)
        found["flat_since_ms"] = window[flat].time_ms if flat < len(window) else None
        above = _run(window, lambda sample: (sample.end or 0) > _position(newest))
        if above < len(window):
            found |= {"above_ms": window[above].time_ms, "above_end": window[above].end}
            if above:
                found |= {"below_ms": window[above - 1].time_ms, "below_end": window[above - 1].end}
    return found


def _of_growth(window: Sequence[QueueSample]) -> dict[str, Value]:
    known = [sample for sample in window if sample.committed is not None]
    if not known:
        return {}
    begin = len(known) - 1
    while begin and _unfinished(known[begin - 1]) <= _unfinished(known[begin]):
        begin -= 1
    lowest = _unfinished(known[begin])
    begin += sum(_unfinished(sample) == lowest for sample in known[begin:]) - 1
    first, last = known[begin], known[-1]
    return {
        "growing_since_ms": first.time_ms,
        "grown": _unfinished(last) - _unfinished(first),
        "grown_produced": (last.end or 0) - (first.end or 0),
        "peak_before": max((_unfinished(sample) for sample in known[:begin]), default=None),
    }


def _of_committed(window: Sequence[QueueSample], reset_ms: int | None, limits: Limits) -> dict[str, Value]:
    known = [sample for sample in window if sample.committed is not None]
    since = [sample for sample in known if reset_ms is None or sample.time_ms >= reset_ms]
    found: dict[str, Value] = {
        "least_unfinished": min((_unfinished(sample) for sample in known), default=None),
        "peak_committed": max((sample.committed or 0 for sample in since), default=None),
        "committed_before": known[-len(since) - 1].committed if len(since) < len(known) else None,
    }
    # A topic that is emptied or made anew moves the committed offset to where it begins.
    rising = _since_fall(since, lambda sample: (-(sample.base or 0), sample.committed or 0))
    done = [(sample.time_ms, _done(sample)) for sample in rising]
    found["consume_slope"] = median_slope(done)
    found["consume_recent"] = recent_slope(done, limits.recent_ms)
    found["consume_first"], found["consume_second"] = halves(done)
    return found


def _slope(first: Point, second: Point) -> float:
    """Return a slope per second; the second point is later."""
    return (second[1] - first[1]) * 1000.0 / (second[0] - first[0])


def median_slope(points: Sequence[Point]) -> float | None:
    """Return the median of the slopes over pairs that are half of the points apart, per second; null below 2 points."""
    apart = len(points) // 2
    if not apart:
        return None
    slopes = sorted(_slope(first, second) for first, second in zip(points, points[apart:], strict=False))
    return (slopes[(len(slopes) - 1) // 2] + slopes[len(slopes) // 2]) / 2


def recent_slope(points: Sequence[Point], span_ms: int) -> float | None:
    """Return the slope over the last `span_ms`, or the shortest span above that, per second; null below 2 points."""
    if len(points) < 2:
        return None
    last = points[-1]
    before = [point for point in points[:-1] if point[0] <= last[0] - span_ms]
    return _slope(before[-1] if before else points[0], last)


def halves(points: Sequence[Point]) -> tuple[float | None, float | None]:
    """Return the slopes over the first and the second half of the points, per second; null below 3 points."""
    if len(points) < 3:
        return None, None
    middle = points[len(points) // 2]
    return _slope(points[0], middle), _slope(middle, points[-1])
