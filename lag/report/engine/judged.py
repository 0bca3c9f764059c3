"""Samples of whole topics, judged as columns: their quantities, statuses, causes and what is added up of each queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lag.journal.files import WIDTH_MS, Tier
from lag.report.engine.column_facts import facts_of, last_resets
from lag.report.engine.column_rules import ColumnValues, Judge, both, code_of, either, opposite, text_of
from lag.report.engine.column_samples import TEXTS, TIERS, Samples
from lag.report.options import Figures, ReportWindow
from lag.rules import causes
from lag.rules.limits import LagLimits
from lag.rules.quantities import QUANTITIES, TOPIC_QUANTITIES
from lag.rules.statuses import BY_NAME, RULE, SEVERITY, Level
from lag.rules.topic_rules import ALONE

MOMENT_MS: Final = 10_000
"""Samples of a topic's queues within one such stretch of time are of one moment."""
NONE: Final = np.iinfo(np.int64).min
"""Stands for an unknown number among those whose highest is looked for."""
_WIDTHS: Final = np.array([WIDTH_MS[tier] for tier in TIERS])
_SHOWN: Final = tuple(sorted({
    *causes.EVIDENCE, "committed", "end", "lag", "unfinished", "lost", "catch_up_s", "time_lag_ms", "time_lag_high_ms",
    "time_lag_method", "produce_rate", "consume_rate",
}))  # fmt: skip
"""Findings about single samples."""


class JudgedSamples:
    """Samples of a window, judged. What is an array has an element for each of them."""

    def __init__(self, block: Samples, rows: Any, limits: LagLimits, resets: Sequence[Sequence[int]]) -> None:
        self.samples = samples = block.at(rows)
        self.judge = Judge(facts_of(block, rows, limits, resets))
        self.judge.add(QUANTITIES)
        self.count = len(rows)
        self.status = self.judge.facts["status"] = self.judge.value(RULE)
        codes = self.status.within(self.count).values
        self.severities = _by_code({name: SEVERITY[name] for name in SEVERITY})[codes]
        self.troubled = _by_code({name: BY_NAME[name].level is not Level.OK for name in SEVERITY})[codes].astype(bool)
        self.first = np.ones(self.count, bool)
        self.first[1:] = samples.queues[1:] != samples.queues[:-1]
        self.last = np.append(self.first[1:], True)
        self.tiers = samples.columns["tier"].within(self.count).values
        self.passed_ms = np.diff(samples.times, prepend=0)
        self._gap_ms = limits.stale_ms + _WIDTHS[self.tiers]
        self.is_gap = self.passed_ms > self._gap_ms
        """Whether too long passed since the sample before, if there is one."""
        self.begins = np.flatnonzero(self.first)
        reset = last_resets(block, rows, resets)
        self._was_reset = both(reset.known, reset.values > samples.times - self.passed_ms)
        self.in_time = _in_time(self.judge.facts, limits)
        facts = self.judge.facts
        self.age_ms = _coalesced(facts["time_lag_ms"], facts["time_lag_high_ms"])
        self.peak_lag = _higher(facts["lag"], samples.columns["row_lag_max"])
        self.peak_age_ms = _higher(self.age_ms, samples.columns["row_age_max_ms"])
        self.lost_now = self._lost_now()

    @classmethod
    def of(
        cls, block: Samples, window: ReportWindow, limits: LagLimits, resets: Sequence[Sequence[int]]
    ) -> JudgedSamples | None:
        """Judge those samples of a block that are in a window; None: there are none."""
        inside = (block.times >= window.from_ms - limits.window_ms) & (block.times < window.to_ms)
        if not inside.all():
            block = block.at(inside)
        rows = np.flatnonzero(block.times >= window.from_ms)
        return cls(block, rows, limits, resets) if len(rows) else None

    def before(self, column: ColumnValues) -> ColumnValues:
        """Return the values of the samples before, of the same queue."""
        values, known = column.within(self.count)
        return ColumnValues(np.roll(values, 1), np.roll(known, 1) & ~self.first)

    def _lost_now(self) -> Any:
        """Return what was lost since the last sample before that could be read."""
        expired, start = self.judge.facts["expired"].within(self.count).values, self.judge.facts["start"]
        known = start.within(self.count).known
        seen = np.maximum.accumulate(np.where(known, np.arange(self.count), -1))
        before = np.roll(seen, 1)
        begins = np.maximum.accumulate(np.where(self.first, np.arange(self.count), 0))
        lost = np.maximum(0, expired - expired[np.maximum(before, 0)])
        return np.where(known & ~self.first & (before >= begins), lost, 0)

    def speaks_for_ms(self, counted_ms: int) -> Any:
        """Return the time from each sample to the next one, if that is no gap, and not before a moment; else 0."""
        speaks = np.append(np.where(self.first | self.is_gap, 0, self.passed_ms)[1:], 0)
        return np.where(self.samples.times + speaks < counted_ms, 0, speaks)

    def sums(self, window: ReportWindow) -> dict[str, Any]:
        """Return what is added up of each queue over a window, as an array over the queues."""
        facts, zero = self.judge.facts, np.zeros(self.count, np.int64)
        committed, skipped = facts["committed"], facts["skipped"]
        # Where a group continues: what is lost lifts not every committed offset.
        committed = ColumnValues(np.maximum(committed.values, facts["start"].filled(0)), committed.known)
        then, skipped_then = self.before(committed), self.before(skipped)
        passes = ~self.first & ~self.is_gap
        counts = both(both(committed.known, then.known), passes) & opposite(self._was_reset)
        passed_over = np.maximum(0, skipped.values - skipped_then.values)
        finished = np.where(counts, np.maximum(0, committed.values - then.values - self.lost_now - passed_over), 0)
        before = self.before(self.in_time)
        is_raw = self.tiers == TIERS.index(Tier.RAW)
        own = self.in_time.within(self.count)
        known = np.where(is_raw, before.known, own.known)
        kept = np.where(is_raw, before.known & before.values, own.known & own.values)
        head, tail = self.samples.times - window.from_ms, window.to_ms - self.samples.times
        beside = np.where(self.first & (head <= self._gap_ms), head, 0)
        beside = np.where(own.known, beside + np.where(self.last & (tail <= self._gap_ms), tail, 0), 0)
        late_at_last = self.last & own.known & ~own.values
        found = {
            "samples": zero + 1,
            "kept": own.known & own.values,
            "ended": finished + self.lost_now + np.where(late_at_last, facts["lag"].filled(0), 0),
            "ended_kept": np.where(kept, finished, 0),
            "lost": self.lost_now,
            "known_ms": np.where(passes & known, self.passed_ms, 0) + beside,
            "over_ms": np.where(passes & known & ~kept, self.passed_ms, 0),
        }
        added = {name: np.add.reduceat(values.astype(np.int64), self.begins) for name, values in found.items()}
        return {**added, "pause_ms": np.maximum.reduceat(np.where(passes, self.passed_ms, NONE), self.begins)}

    def moments(self, wanted: Any) -> dict[str, ColumnValues]:
        """Return what the topics' other queues say at the moments of some samples, as `lag.rules.topic_rules.beside`.

        Of a queue that was read twice within one moment the later sample counts.
        """
        samples = self.samples
        moment = samples.times // MOMENT_MS
        # The last sample of each queue and moment: the next one is of another queue or of another moment.
        later = np.append((samples.queues[1:] != samples.queues[:-1]) | (moment[1:] != moment[:-1]), True)
        topics = samples.columns["topic"].within(self.count).values
        keys = topics * (int(moment.max()) - int(moment.min()) + 1) + moment - moment.min()
        asked, places = np.unique(keys[wanted], return_inverse=True)
        at = np.minimum(np.searchsorted(asked, keys), len(asked) - 1)
        members = np.flatnonzero(later & (asked[at] == keys))
        # The later sample of the queue at this moment.
        own = np.flatnonzero(later)[np.searchsorted(np.flatnonzero(later), wanted)]
        facts, found = self.judge.facts, {}
        for name, short in (("lag", "lag"), ("produce_trend", "rate")):
            values, known = facts[name].within(self.count)
            here = members[known[members]]
            of_moment = at[here]
            each = values[here].astype(np.float64)
            count = np.bincount(of_moment, minlength=len(asked))[places]
            total = np.bincount(of_moment, each, len(asked))[places]
            squares = np.bincount(of_moment, each * each, len(asked))[places]
            mine = np.where(known[own], values[own], 0).astype(np.float64)
            rest = count - known[own]
            mean = (total - mine) / np.maximum(rest, 1)
            # E[x²] − E[x]², which rounding may bring below 0.
            variance = (squares - mine * mine) / np.maximum(rest, 1) - mean * mean
            found[f"others_{short}_mean"] = ColumnValues(mean, rest > 0)
            found[f"others_{short}_deviation"] = ColumnValues(np.sqrt(np.maximum(0.0, variance)), rest > 0)
            if name == "lag":
                highest = np.full(len(asked), -np.inf)
                np.maximum.at(highest, of_moment, each)
                found["lag_queues"] = ColumnValues(count)
                found["lag_max"] = ColumnValues(highest[places], count > 0)
                found["lag_mean"] = ColumnValues(total / np.maximum(count, 1), count > 0)
        assert found.keys() == ALONE.keys()
        return found

    def causes(self, rows: Any) -> Judge:
        """Look for the causes of some samples, beside the topic's other queues."""
        facts = {name: column.at(rows) for name, column in self.judge.facts.items()}
        judge = Judge({**facts, **self.moments(rows)})
        judge.add(TOPIC_QUANTITIES)
        judge.facts["cause"] = judge.value(causes.RULE)
        return judge

    def reported(self, rows: Any) -> Iterator[Figures]:
        """Yield the findings about some samples, with their cause."""
        judge, columns = self.causes(rows), {}
        for name in (*_SHOWN, "status", "cause"):
            if name in TEXTS:
                columns[name] = listed(self.samples.columns[name].at(rows), len(rows), self.samples.texts.__getitem__)
            else:
                is_text = name in ("status", "cause", "time_lag_method")
                columns[name] = listed(judge.facts[name], len(rows), text_of if is_text else None)
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))


def listed(column: ColumnValues, count: int, text: Callable[[int], str] | None = None) -> list[Any]:
    """Return a column of `count` rows as plain values; texts by their numbers."""
    values, known = (each.tolist() for each in column.within(count))
    if text is not None:
        values = [text(value) if is_known else None for value, is_known in zip(values, known, strict=True)]
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]


def _by_code(values: Mapping[str, Any]) -> Any:
    """Return a table of values by the numbers of texts."""
    codes = {code_of(name): value for name, value in values.items()}
    return np.array([codes.get(code, 0) for code in range(max(codes) + 1)])


def _coalesced(one: ColumnValues, other: ColumnValues) -> ColumnValues:
    if other.known is False or one.known is True:
        return one
    return ColumnValues(np.where(one.known, one.values, other.values), either(one.known, other.known))


def _higher(one: ColumnValues, other: ColumnValues) -> ColumnValues:
    """Return the higher of those that are known."""
    if other.known is False:
        return one
    values = np.where(
        both(other.known, opposite(both(one.known, one.values >= other.values))), other.values, one.values
    )
    return ColumnValues(values, either(one.known, other.known))


def _in_time(facts: Mapping[str, ColumnValues], limits: LagLimits) -> ColumnValues:
    """Return whether samples are in time, as far as that is known."""
    exact, low, high = (facts[name] for name in ("time_lag_ms", "time_lag_low_ms", "time_lag_high_ms"))
    is_late = both(low.known, low.values > limits.target_ms)
    is_kept = both(high.known, high.values <= limits.target_ms)
    values = np.where(exact.known, exact.values <= limits.target_ms, both(is_kept, opposite(is_late)))
    known = either(exact.known, either(is_late, is_kept))
    return ColumnValues(values, both(known, facts["status"].values != code_of("UNKNOWN")))
