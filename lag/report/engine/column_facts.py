"""What the window of each sample says, for all samples of many queues at once: `lag.rules.facts.facts_of` with numpy.

Samples stand in the order of queue and moment. A window is then a stretch of the samples that could be read: where it
begins is looked up by one search, where runs began follows from the last place at which something changed, and extremes
of stretches come from a table of those of 1, 2, 4, ... samples. Only slopes are computed window by window, all windows
with equally many samples at once, and only where the figure has moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lag.report.engine.column_rules import NOTHING, ColumnValues, both
from lag.report.engine.column_samples import Samples
from lag.rules.facts import WINDOW_FACTS
from lag.rules.limits import LagLimits
from lag.samples import SAMPLE_FIELDS

MATRIX: Final = 2_000_000
"""Slopes that are sorted at once."""
_LEAST: Final = np.iinfo(np.int64).min


def facts_of(
    samples: Samples, rows: Any, limits: LagLimits, resets: Sequence[Sequence[int]]
) -> dict[str, ColumnValues]:
    """Return the facts of some samples, each judged as the newest of its queue at its own moment.

    Args:
        samples: All samples that may be looked at.
        rows: Places of those that are judged.
        limits: Thresholds.
        resets: By queue, when operators reset its offset, in order.
    """
    walk = _Windows(samples, rows, limits, last_resets(samples, rows, resets))
    facts = {name: samples.columns[name].at(rows) for name in SAMPLE_FIELDS if name in samples.columns}
    facts |= {name: ColumnValues(getattr(limits, name)) for name in limits.__dataclass_fields__}
    return {**facts, **walk.facts()}


def last_resets(samples: Samples, rows: Any, resets: Sequence[Sequence[int]]) -> ColumnValues:
    """Return, of some samples, when their queue's offset was last reset by then."""
    count = sum(map(len, resets))
    if not count:
        return NOTHING
    queues = np.repeat(np.arange(len(resets)), [len(each) for each in resets])
    times = np.array([each for of_queue in resets for each in of_queue], np.int64)
    # A reset comes before a sample of its moment.
    order = np.lexsort((
        np.concatenate((np.zeros(count), np.ones(len(rows)))),
        np.concatenate((times, samples.times[rows])),
        np.concatenate((queues, samples.queues[rows])),
    ))  # fmt: skip
    seen = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    places = order[seen[order >= count]]
    found = np.empty(len(rows), np.int64)
    found[order[order >= count] - count] = np.where(seen[order >= count] < 0, -1, places)
    known = (found >= 0) & (queues[found] == samples.queues[rows])
    return ColumnValues(times[found], known)


class _Extremes:
    """Highest values of stretches of an array."""

    def __init__(self, values: Any, longest: int) -> None:
        self._levels = [values]
        width = 1
        while 2 * width <= longest:
            below = self._levels[-1]
            level = below.copy()
            np.maximum(below[:-width], below[width:], out=level[: len(below) - width])
            self._levels.append(level)
            width *= 2

    def highest(self, begins: Any, ends: Any) -> Any:
        """Return the highest of each stretch [begin, end); what comes out of an empty one has no meaning."""
        sizes = np.maximum(ends - begins, 1)
        levels = np.frexp(sizes)[1] - 1
        found = np.empty(len(sizes), self._levels[0].dtype)
        for number, level in enumerate(self._levels):
            here = np.flatnonzero(levels == number)
            last = len(level) - 1
            found[here] = np.maximum(
                level[np.minimum(begins[here], last)], level[np.clip(ends[here] - (1 << number), 0, last)]
            )
        return found


class _Points:
    """Some samples of each queue, as points of time, of which stretches are looked at."""

    def __init__(self, queues: Any, times: Any, keys: Any) -> None:
        self.queues, self.times, self.keys = queues, times, keys
        self.begins = np.ones(len(times), bool)
        self.begins[1:] = queues[1:] != queues[:-1]
        self._numbers = np.arange(len(times))

    def last(self, marked: Any) -> Any:
        """Return, for each point, the last one up to it that is marked, of whatever queue; -1: none."""
        return np.maximum.accumulate(np.where(marked, self._numbers, -1))

    def changes(self, values: Any) -> Any:
        """Return, for each point, since which one the value has been the same."""
        return self.last(self.begins | ~_like_before(values))

    def falls(self, values: Any) -> Any:
        """Return, for each point, since which one the value has not fallen."""
        fell = self.begins.copy()
        fell[1:] |= values[1:] < values[:-1]
        return self.last(fell)

    def slope(self, values: Any, first: Any, second: Any) -> Any:
        """Return slopes between points, per second."""
        return (values[second] - values[first]) * 1000.0 / np.maximum(self.times[second] - self.times[first], 1)

    def recent(self, values: Any, begins: Any, ends: Any, span_ms: int) -> Any:
        """Return the slopes over the last `span_ms` of stretches, or the shortest span above that."""
        before = np.searchsorted(self.keys, self.keys[ends - 1] - span_ms, "right") - 1
        return self.slope(values, np.maximum(before, begins), ends - 1)

    def medians(self, values: Any, stood: Any, begins: Any, ends: Any) -> Any:
        """Return the medians of slopes over pairs that are half of a stretch apart; `stood`: since when it is flat."""
        found, sizes = np.zeros(len(begins)), ends - begins
        moving = (sizes >= 2) & (stood[ends - 1] > begins)
        for size in np.unique(sizes[moving]).tolist():
            apart = size // 2
            width = size - apart
            assert 0 < apart <= width, "each point but the last half has a partner half a stretch later"
            places = np.flatnonzero(moving & (sizes == size))
            for part in np.array_split(places, len(places) * width // MATRIX + 1):
                first = begins[part][:, None] + np.arange(width)
                slopes = self.slope(values, first, first + apart)
                slopes.sort(axis=1)
                found[part] = (slopes[:, (width - 1) // 2] + slopes[:, width // 2]) / 2
        return found


def _like_before(values: Any) -> Any:
    """Return where a value is that of the element before it."""
    alike = np.zeros(len(values), bool)
    alike[1:] = values[1:] == values[:-1]
    return alike


class _Windows:
    """The windows of some samples."""

    def __init__(self, samples: Samples, rows: Any, limits: LagLimits, reset: ColumnValues) -> None:
        self._limits = limits
        self._times = samples.times[rows]
        self._samples, self._rows = samples, rows
        self._start, self._end, self._committed = (
            samples.columns[name].within(len(samples.times)) for name in ("start", "end", "committed")
        )
        readable = np.flatnonzero(self._start.known & self._end.known)
        self._first_ms = int(samples.times.min()) - limits.window_ms
        self._span_ms = int(samples.times.max()) - self._first_ms + 1
        keys = self._keys(samples.queues, samples.times)
        self._points = _Points(samples.queues[readable], samples.times[readable], keys[readable])
        own = keys[rows]
        # Stretches of readable samples: from the begin of the window, or of the queue's present life, to the newest.
        self._low = np.searchsorted(self._points.keys, own - limits.window_ms, "left")
        self._until = np.searchsorted(self._points.keys, own, "right")
        self._ends = self._end.values[readable]
        life = self._points.falls(self._ends)
        self._any = self._until > self._low
        self._newest = np.maximum(self._until - 1, 0)
        self._begin = self._until
        if len(readable):
            self._begin = np.where(self._any, np.maximum(self._low, life[self._newest]), self._until)
        within = (reset.values >= self._times - limits.window_ms) if reset.known is not False else False
        self._reset = ColumnValues(reset.values, both(reset.known, within))
        self._readable = readable

    def facts(self) -> dict[str, ColumnValues]:
        """Return what `WINDOW_FACTS` names."""
        found = {
            "now_ms": ColumnValues(self._times),
            "readable": ColumnValues(self._until - self._begin),
            "reset_ms": self._reset,
        }
        reset = self._reset
        ago = NOTHING if reset.known is False else ColumnValues((self._times - reset.values) // 1000, reset.known)
        found["reset_ago_s"] = ago
        if not len(self._readable):
            return {**dict.fromkeys(WINDOW_FACTS, NOTHING), **found}
        found |= self._of_runs() | self._of_ends() | self._of_committed()
        assert found.keys() == WINDOW_FACTS.keys()
        return found

    def _keys(self, queues: Any, times: Any) -> Any:
        """Return numbers in the order of queue and moment."""
        return queues * self._span_ms + (times - self._first_ms)

    def _of(self, name: str) -> ColumnValues:
        """Return a column of the readable samples."""
        return self._samples.columns[name].within(len(self._samples.times)).at(self._readable)

    def _moment(self, places: Any, known: Any) -> ColumnValues:
        return ColumnValues(self._points.times[np.clip(places, 0, len(self._readable) - 1)], known)

    def _of_runs(self) -> dict[str, ColumnValues]:
        points, newest, until, begin = self._points, self._newest, self._until, self._begin
        start, committed = self._of("start").values, self._of("committed")
        position = np.maximum(start, committed.filled(0))
        paused = points.last(self._of("paused").values)[newest]
        behind = np.maximum(begin, points.last(self._ends <= position)[newest] + 1)
        found = {
            "paused_until_ms": self._moment(paused, self._any & (paused >= begin)),
            "behind_since_ms": self._moment(behind, self._any & (behind < until)),
        }
        # The last sample before the window, or its first one.
        last = len(self._readable) - 1
        before = np.maximum(self._low - 1, 0)
        has_before = (self._low > 0) & (points.queues[before] == self._samples.queues[self._rows])
        earlier = np.where(has_before, before, np.minimum(begin, last))
        found["earlier_expired"] = ColumnValues(self._of("expired").values[earlier], self._any)
        found["earlier_committed"] = ColumnValues(committed.values[earlier], self._any & committed.known[earlier])
        own = self._committed.at(self._rows)
        placed = self._any & own.known & self._start.known[self._rows]
        since = points.changes(committed.filled(_LEAST))[newest]
        flat = np.maximum(begin, since)
        is_flat = placed & committed.known[newest] & (committed.values[newest] == own.values)
        found["flat_since_ms"] = self._moment(flat, is_flat)
        mine = np.maximum(self._start.filled(0)[self._rows], own.filled(0))
        above = self._first_above(mine, placed)
        is_above, is_below = placed & (above < until), placed & (above < until) & (above > begin)
        found["above_ms"], found["below_ms"] = self._moment(above, is_above), self._moment(above - 1, is_below)
        found["above_end"] = ColumnValues(self._ends[np.minimum(above, last)], is_above)
        found["below_end"] = ColumnValues(self._ends[np.maximum(above - 1, 0)], is_below)
        return found

    def _first_above(self, positions: Any, placed: Any) -> Any:
        """Return the first sample of each window whose end is above a position: ends do not fall within a window."""
        found = self._until.copy()
        open_ = np.flatnonzero(placed & (self._ends[self._newest] > positions))
        low, high, wanted = self._begin[open_], self._until[open_], positions[open_]
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) // 2
            is_above = self._ends[np.minimum(middle, len(self._ends) - 1)] > wanted
            high = np.where(is_above & (middle < high), middle, high)
            low = np.where(~is_above & (middle < high), middle + 1, low)
        found[open_] = high
        return found

    def _of_ends(self) -> dict[str, ColumnValues]:
        points, ends, starts = self._points, self._ends, self._of("start").values
        begin, until = self._begin, self._until
        found = self._slopes(points, ends, begin, until, "produce")
        stretch = np.minimum(begin, len(ends) - 1), np.maximum(until, 1)
        found["start_slope"] = ColumnValues(
            points.medians(starts, points.changes(starts), *stretch), until - begin >= 2
        )
        return found

    def _slopes(self, points: _Points, values: Any, begin: Any, until: Any, name: str) -> dict[str, ColumnValues]:
        sizes = until - begin
        first, newest = np.minimum(begin, max(0, len(values) - 1)), np.maximum(until - 1, 0)
        if not len(values):
            return dict.fromkeys((f"{name}_{each}" for each in ("slope", "recent", "first", "second")), NOTHING)
        middle = np.minimum(begin + sizes // 2, len(values) - 1)
        two, three = sizes >= 2, sizes >= 3
        return {
            f"{name}_slope": ColumnValues(points.medians(values, points.changes(values), first, newest + 1), two),
            f"{name}_recent": ColumnValues(points.recent(values, first, newest + 1, self._limits.recent_ms), two),
            f"{name}_first": ColumnValues(points.slope(values, first, middle), three),
            f"{name}_second": ColumnValues(points.slope(values, middle, newest), three),
        }

    def _of_committed(self) -> dict[str, ColumnValues]:
        """Return what samples with a committed offset say: points of their own, where some have none."""
        committed = self._of("committed")
        known = np.flatnonzero(committed.known)
        base = self._points
        points = _Points(base.queues[known], base.times[known], base.keys[known])
        counts = np.concatenate(([0], np.cumsum(committed.known)))
        assert counts[-1] == len(known), "`counts` turns a place among all samples into one among the known"
        begin, until = counts[self._begin], counts[self._until]
        any_ = until > begin
        if not len(known):
            names = [name for name in WINDOW_FACTS if name.startswith(("consume_", "grow", "peak_"))]
            return dict.fromkeys((*names, "least_unfinished", "committed_before"), NOTHING)
        values = committed.values[known]
        start, end = self._of("start").values[known], self._ends[known]
        finished, expired, skipped, based = (
            self._of(name).filled(0)[known] for name in ("finished", "expired", "skipped", "base")
        )
        position = np.maximum(start, values)
        unfinished = np.maximum(0, np.maximum(0, end - position) - finished)
        longest = int((until - begin).max())
        last, newest = len(known) - 1, np.maximum(until - 1, 0)
        since, before = begin, NOTHING
        if self._reset.known is not False:
            resets = np.where(self._reset.known, self._reset.values, self._first_ms)
            after = np.searchsorted(points.keys, self._keys(self._samples.queues[self._rows], resets), "left")
            since = np.where(self._reset.known, np.clip(after, begin, until), begin)
            before = ColumnValues(values[np.maximum(since - 1, 0)], since > begin)
        found = {
            "least_unfinished": ColumnValues(-_Extremes(-unfinished, longest).highest(begin, until), any_),
            "peak_committed": ColumnValues(_Extremes(values, longest).highest(since, until), until > since),
            "committed_before": before,
        }
        # A topic that is emptied or made again moves the committed offset to where it begins.
        fell = points.begins.copy()
        fell[1:] |= (based[1:] > based[:-1]) | ((based[1:] == based[:-1]) & (values[1:] < values[:-1]))
        rising = np.where(until > since, np.maximum(since, points.last(fell)[newest]), until)
        found |= self._slopes(points, position - expired - skipped, rising, until, "consume")
        # `last` bounds the place of samples without a known one: `any_` leaves them out.
        run = np.minimum(np.maximum(begin, points.falls(unfinished)[newest]), last)
        # Of those with the fewest, which begin the run, the last one.
        ends_alike = np.ones(len(known), bool)
        ends_alike[:-1] = points.begins[1:] | (unfinished[1:] != unfinished[:-1])
        stands = np.minimum.accumulate(np.where(ends_alike, np.arange(len(known)), last)[::-1])[::-1]
        first = np.minimum(stands[run], newest)
        found["growing_since_ms"] = ColumnValues(points.times[first], any_)
        found["grown"] = ColumnValues(unfinished[newest] - unfinished[first], any_)
        found["grown_produced"] = ColumnValues(end[newest] - end[first], any_)
        peak = _Extremes(unfinished, longest).highest(begin, first)
        found["peak_before"] = ColumnValues(peak, any_ & (first > begin))
        return found
