"""The first reduction of a report in plain Python: the same rules over the same samples as `lag.spark.jobs.history`.

One pass reads the journals. Queues are then judged topic by topic, sample by sample; what comes out are the few rows of
`lag.report.options.Reduced`. Sums are of integers, so both engines come to equal reports, which a test holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import floor
from operator import itemgetter
from typing import Any, Final

from broker.runtime.seams import Disk
from lag.journal.columns import QUEUE_COLUMNS
from lag.journal.files import WIDTH_MS, Tier
from lag.journal.summaries import QUEUE_SUMMARIES
from lag.report.clock_steps import steps_of, without_lies
from lag.report.data import Report
from lag.report.findings import LEFT
from lag.report.options import (
    BUCKETS,
    HEAT_BUCKETS,
    INCIDENTS_MAX,
    PRECISE,
    QUEUES_MAX,
    Figures,
    Reduced,
    ReportOptions,
    Window,
)
from lag.report.parts import assemble
from lag.report.reading import Moments, Place, Reading, ReadSample, by_topic, samples_of
from lag.report.waiting import waiting_of
from lag.rules import causes, quantities, statuses
from lag.rules.expression import names_in
from lag.rules.limits import Limits
from lag.rules.queue_rules import figures_of
from lag.rules.statuses import BY_NAME, SEVERITY, Level
from lag.rules.topic_rules import beside
from lag.samples import QueueSample

MOMENT_MS: Final = 10_000
"""Samples of a topic's queues within one such stretch of time are of one moment."""
_SUMMARY: Final = {column.name: place for place, column in enumerate(QUEUE_SUMMARIES.columns)}
_LAG_MAX, _AGE_MAX = _SUMMARY["lag_max"], _SUMMARY["age_max_ms"]
_NEIGHBOURS: Final = ("lag", "produce_trend")
"""Quantities that the queues of a topic are compared by."""
_AT_REST: Final = itemgetter(
    *(
        QUEUE_COLUMNS.index(name)
        for name in ("start", "end", "committed", "finished", "expired", "skipped", "in_flight", "paused", "limited")
    )
)
"""What a verdict on a queue without lag is made of: all else says how old something unfinished is."""
_KEPT: Final = frozenset(
    name for name, status in BY_NAME.items() if SEVERITY[name] > SEVERITY["UNKNOWN"]
    and "stale_ms" not in names_in(status.rule)
)  # fmt: skip
"""Statuses that do not depend on the age of the sample: a queue that nothing is known of since keeps them."""


@dataclass(slots=True)
class _Judged:
    """One sample of the window, judged."""

    time_ms: int
    tier: Tier
    status: str
    severity: int
    in_time: bool | None
    peak_lag: int | None
    peak_age_ms: float | None
    lost_now: int
    facts: Mapping[str, Any]
    after_ms: int | None = None
    after_wide_ms: int = 0
    cause: str | None = None


@dataclass(slots=True)
class _Sums:
    """What is added up of a queue over a window, or of a group over its queues."""

    samples: int = 0
    kept: int = 0
    ended: int = 0
    ended_kept: int = 0
    lost: int = 0
    known_ms: int = 0
    over_ms: int = 0
    pause_ms: int | None = None
    queues: int = 0


@dataclass(slots=True)
class _Bucket:
    """One queue in one part of the window."""

    lag: int | None = None
    age_ms: float | None = None
    severity: int = 0
    produce: list[int] = field(default_factory=lambda: [0, 0])
    consume: list[int] = field(default_factory=lambda: [0, 0])


def make_locally(disk: Disk, options: ReportOptions) -> Report:
    """Return the report over journals, made by this process alone."""
    return replace(assemble(options, reduce_locally(disk, options)), waiting=waiting_of(disk, options))


def reduce_locally(disk: Disk, options: ReportOptions) -> Reduced:
    """Read journals, judge their samples, and reduce them to the rows of a report."""
    window, limits = options.window, options.limits
    reading = Reading(disk, options)
    events = [{**asdict(event), "kind": event.kind.value, "cluster": cluster, "node": node}
              for cluster, node, event in reading.events]  # fmt: skip
    cleaned = without_lies(steps_of(events), limits)
    moments = Moments(events)
    found = _Found(window, limits)
    earlier: dict[tuple[str, str], _Sums] = {}
    before = Window(from_ms=window.from_ms - window.length_ms, to_ms=window.from_ms)
    for queues in by_topic(reading.queues):
        judged: dict[Place, list[_Judged]] = {}
        for place, rows in queues:
            samples = list(samples_of(place, rows, cleaned))
            times = [each.time_ms for each, _ in samples]
            resets, left_ms = moments.resets(place), moments.left(place, times[-1]) if times else None
            walk = _Walk(samples, limits, resets)
            if options.compared and (sums := walk.over(before, None)) is not None:
                _add(earlier.setdefault((place[0], place[2]), _Sums()), sums)
            mine: list[_Judged] = []
            sums = walk.over(window, found.queue(place, mine))
            if sums is not None:
                _add(found.groups.setdefault((place[0], place[2]), _Sums()), sums)
                judged[place] = mine
                found.left[place] = left_ms
        _with_causes(judged, limits)
        found.take(judged)
    return found.reduced(events, earlier, reading)


Samples = Sequence[tuple[QueueSample, ReadSample]]
"""Samples of a queue, oldest first, each with what was read of it."""
_Take = Callable[[_Judged, Mapping[str, Any]], None]


class _Walk:
    """Judges the samples of one queue, each as the newest, over a window."""

    def __init__(
        self, samples: Sequence[tuple[QueueSample, ReadSample]], limits: Limits, resets: Sequence[int]
    ) -> None:
        self._samples = samples
        self._limits = limits
        self._resets = resets

    def over(self, window: Window, take: _Take | None) -> _Sums | None:
        """Walk over the samples of a window; null: there are none.

        Args:
            window: The window; samples before it are looked at, and are not judged.
            take: Called with each judged sample and its quantities; null: sums are all that is wanted.
        """
        limits, stale_ms = self._limits, self._limits.stale_ms
        since_ms = window.from_ms - limits.window_ms
        inside = [each for each in self._samples if since_ms <= each[0].time_ms < window.to_ms]
        sums, begin = _Sums(queues=1), 0
        before: _Judged | None = None
        facts: dict[str, Any] = {}
        expired: int | None = None
        rests_from = 0
        for place, (sample, read) in enumerate(inside):
            if place and not _is_like(inside[place - 1], inside[place]):
                rests_from = place
            if sample.time_ms < window.from_ms:
                continue
            oldest_ms = sample.time_ms - limits.window_ms
            while inside[begin][0].time_ms < oldest_ms:
                begin += 1
            # A sample that cannot be read says nothing of what was lost: the last readable one before the window does.
            first = begin
            while first and (first == begin or inside[first][0].start is None or inside[first][0].end is None):
                first -= 1
            rests = rests_from <= first < begin and limits.samples_min <= place - begin
            if not rests or place + 1 == len(inside) or not _is_at_rest(facts) or self._was_reset(sample.time_ms):
                facts = self._facts([each for each, _ in inside[first : place + 1]])
            judged = _judged(sample, read, facts, limits)
            wide_ms = WIDTH_MS[read.tier]
            passed_ms, finished = None, 0
            if before is not None:
                earlier = before.facts
                if sample.time_ms - before.time_ms <= stale_ms + wide_ms:
                    passed_ms = sample.time_ms - before.time_ms
                if sample.start is not None and expired is not None:
                    judged.lost_now = max(0, sample.expired - expired)
                then, now = _position(earlier), _position(facts)
                skipped = max(0, sample.skipped - earlier["skipped"])
                if None not in (passed_ms, then, now) and not self._is_reset(before.time_ms, sample.time_ms):
                    finished = max(0, (now or 0) - (then or 0) - judged.lost_now - skipped)
                state = before.in_time if read.tier is Tier.RAW else judged.in_time
                sums.known_ms += (passed_ms or 0) * (state is not None)
                sums.over_ms += (passed_ms or 0) * (state is False)
                sums.ended_kept += finished * (state is True)
                if passed_ms is not None:
                    sums.pause_ms = max(sums.pause_ms or 0, passed_ms)
            else:
                sums.known_ms += _known_ms(judged, sample.time_ms - window.from_ms, stale_ms + wide_ms)
            if sample.start is not None:
                expired = sample.expired
            sums.samples += 1
            sums.kept += judged.in_time is True
            sums.lost += judged.lost_now
            sums.ended += finished + judged.lost_now
            if place + 1 < len(inside):
                after = inside[place + 1][1]
                judged.after_ms, judged.after_wide_ms = after.time_ms, WIDTH_MS[after.tier]
            else:
                sums.known_ms += _known_ms(judged, window.to_ms - sample.time_ms, stale_ms + wide_ms)
                sums.ended += (facts["lag"] or 0) if judged.in_time is False else 0
            before = judged
            if take is not None:
                take(judged, facts)
        return sums if before is not None else None

    def _facts(self, samples: Sequence[QueueSample]) -> dict[str, Any]:
        newest = samples[-1]
        count = bisect_right(self._resets, newest.time_ms)
        reset_ms = self._resets[count - 1] if count else None
        facts: dict[str, Any] = figures_of(samples, newest.time_ms, self._limits, reset_ms)
        facts["status"] = str(statuses.COMPILED(facts))
        return facts

    def _was_reset(self, time_ms: int) -> bool:
        return self._is_reset(time_ms - self._limits.window_ms - 1, time_ms)

    def _is_reset(self, since_ms: int, until_ms: int) -> bool:
        return bisect_right(self._resets, since_ms) < bisect_right(self._resets, until_ms)


def _is_like(one: tuple[QueueSample, ReadSample], other: tuple[QueueSample, ReadSample]) -> bool:
    """Whether nothing happened in a queue between two samples, as far as a queue without lag is concerned."""
    mine, its = one[1], other[1]
    return (
        mine.tier is Tier.RAW
        and its.tier is Tier.RAW
        and (mine.row is its.row or _AT_REST(mine.row) == _AT_REST(its.row))
    )


def _is_at_rest(facts: Mapping[str, Any]) -> bool:
    """Whether a verdict holds for the next sample, too, if nothing happened: no lag, so no age is in it."""
    return facts.get("status") == "OK" and facts["lag"] == 0


def _judged(sample: QueueSample, read: ReadSample, facts: Mapping[str, Any], limits: Limits) -> _Judged:
    age = facts["time_lag_ms"] if facts["time_lag_ms"] is not None else facts["time_lag_high_ms"]
    lag = facts["lag"]
    if read.tier is not Tier.RAW:
        lag, age = _highest(lag, read.row[_LAG_MAX]), _highest(age, read.row[_AGE_MAX])
    return _Judged(
        time_ms=sample.time_ms,
        tier=read.tier,
        status=facts["status"],
        severity=SEVERITY[facts["status"]],
        in_time=_in_time(facts, limits),
        peak_lag=lag,
        peak_age_ms=None if age is None else float(age),
        lost_now=0,
        facts=facts,
    )


def _in_time(facts: Mapping[str, Any], limits: Limits) -> bool | None:
    if facts["status"] == "UNKNOWN":
        return None
    if facts["time_lag_ms"] is not None:
        return bool(facts["time_lag_ms"] <= limits.target_ms)
    if facts["time_lag_low_ms"] is not None and facts["time_lag_low_ms"] > limits.target_ms:
        return False
    return True if facts["time_lag_high_ms"] is not None and facts["time_lag_high_ms"] <= limits.target_ms else None


def _known_ms(judged: _Judged, passed_ms: int, gap_ms: int) -> int:
    """Return how much of the time between a sample and an end of the window is known by it."""
    return passed_ms if judged.in_time is not None and passed_ms <= gap_ms else 0


def _position(facts: Mapping[str, Any]) -> int | None:
    """Where a group goes on: its committed offset, or the first that is kept; null: not known."""
    return None if facts["committed"] is None else max(facts["committed"], facts["start"] or 0)


def _highest(one: Any, other: Any) -> Any:
    return max((each for each in (one, other) if each is not None), default=None)


def _with_causes(queues: Mapping[Place, Sequence[_Judged]], limits: Limits) -> None:
    """Name the causes of all that is kept by itself; queues of the topic are beside each other."""
    wanted = {each.time_ms // MOMENT_MS for judged in queues.values() for each in judged if _is_alone(each)}
    moments: dict[int, dict[Place, _Judged]] = defaultdict(dict)
    for place, judged in queues.items():
        for each in judged:
            if each.time_ms // MOMENT_MS in wanted:
                # Of a queue that was read twice within one moment the later sample counts.
                moments[each.time_ms // MOMENT_MS][place] = each
    others: dict[int, Any] = {}
    for moment, members in moments.items():
        compared: Any = {place: {name: each.facts[name] for name in _NEIGHBOURS} for place, each in members.items()}
        others[moment] = beside(compared)
    for place, judged in queues.items():
        for each in judged:
            if not _is_alone(each):
                continue
            facts = {**each.facts, **others[each.time_ms // MOMENT_MS][place]}
            for name, rule in quantities.COMPILED_OF_TOPIC.items():
                facts[name] = rule(facts)
            cause = causes.COMPILED(facts)
            each.facts, each.cause = facts, None if cause is None else str(cause)


def _is_alone(judged: _Judged) -> bool:
    """Whether a sample is kept by itself: it is in trouble, or the last of its queue."""
    return judged.after_ms is None or BY_NAME[judged.status].level is not Level.OK


def _add(into: _Sums, sums: _Sums) -> None:
    """Add a queue's sums to its group's; time over the target is that of the worst queue."""
    for name in ("samples", "kept", "ended", "ended_kept", "lost", "known_ms", "queues"):
        setattr(into, name, getattr(into, name) + getattr(sums, name))
    into.over_ms = max(into.over_ms, sums.over_ms)
    into.pause_ms = _highest(into.pause_ms, sums.pause_ms)


class _Found:
    """Gathers what was judged, and reduces it."""

    def __init__(self, window: Window, limits: Limits) -> None:
        self.groups: dict[tuple[str, str], _Sums] = {}
        self.left: dict[Place, int | None] = {}
        self._window = window
        self._limits = limits
        self._buckets: dict[Place, dict[int, _Bucket]] = {}
        self._heat: dict[Place, dict[int, int | None]] = {}
        self._last: dict[tuple[str, str], list[tuple[Place, _Judged]]] = defaultdict(list)
        self._incidents: dict[tuple[str, str], list[Figures]] = defaultdict(list)

    def queue(self, place: Place, judged: list[_Judged]) -> _Take:
        """Return what takes the judged samples of a queue; those that may need their neighbours go to the list."""
        window = self._window
        width, heat_width = window.width_ms(BUCKETS), window.width_ms(HEAT_BUCKETS)
        buckets: dict[int, _Bucket] = {}
        heat: dict[int, int | None] = {}

        def take(each: _Judged, facts: Mapping[str, Any]) -> None:
            self._buckets[place], self._heat[place] = buckets, heat
            passed_ms = each.time_ms - window.from_ms
            bucket = buckets.get(passed_ms // width)
            if bucket is None:
                bucket = buckets[passed_ms // width] = _Bucket()
            bucket.lag = _highest(bucket.lag, each.peak_lag)
            bucket.age_ms = _highest(bucket.age_ms, each.peak_age_ms)
            bucket.severity = max(bucket.severity, each.severity)
            for rates, name in ((bucket.produce, "produce_rate"), (bucket.consume, "consume_rate")):
                if facts[name] is not None:
                    rates[0] += floor(facts[name] * PRECISE + 0.5)
                    rates[1] += 1
            number = passed_ms // heat_width
            heat[number] = _highest(heat.get(number), each.peak_lag)
            if not _is_alone(each):
                each.facts = {name: facts[name] for name in ("start", "committed", "skipped", *_NEIGHBOURS)}
            judged.append(each)

        return take

    def take(self, queues: Mapping[Place, Sequence[_Judged]]) -> None:
        """Take the queues of a topic, with their causes."""
        for place, judged in queues.items():
            group = place[0], place[2]
            self._last[group].append((place, judged[-1]))
            self._incidents[group] += self._of_queue(place, judged)

    def _of_queue(self, place: Place, judged: Sequence[_Judged]) -> Iterator[Figures]:
        members: list[_Judged] = []
        before_ms: int | None = None
        for each in judged:
            gap_ms = self._limits.stale_ms + WIDTH_MS[each.tier]
            if members and before_ms is not None and each.time_ms - before_ms > gap_ms:
                yield self._incident(place, members, members[-1].time_ms)
                members = []
            before_ms = each.time_ms
            if BY_NAME[each.status].level is not Level.OK:
                members.append(each)
            elif members:
                yield self._incident(place, members, each.time_ms)
                members = []
        if members:
            yield self._incident(place, members, self.left[place])

    @staticmethod
    def _incident(place: Place, members: Sequence[_Judged], until_ms: int | None) -> Figures:
        worst = max(members, key=lambda each: (each.severity, each.cause is not None, -each.time_ms))
        return {
            **_names(place),
            "from_ms": members[0].time_ms,
            "until_ms": until_ms,
            "severity": worst.severity,
            "cause": worst.cause,
            "facts": {name: worst.facts[name] for name in causes.EVIDENCE},
            "lag": max((each.peak_lag for each in members if each.peak_lag is not None), default=None),
            "age_ms": max((each.peak_age_ms for each in members if each.peak_age_ms is not None), default=None),
            "lost": sum(each.lost_now for each in members),
        }

    def reduced(self, events: Sequence[Figures], earlier: Mapping[tuple[str, str], _Sums], reading: Reading) -> Reduced:
        """Return the rows of the report."""
        objectives = _objectives(self.groups)
        pause_ms = max((row["pause_ms"] for row in objectives if row["pause_ms"] is not None), default=1)
        window = replace(self._window, pause_ms=pause_ms)
        return Reduced(
            objectives=objectives,
            earlier=_objectives(earlier),
            buckets=list(self._of_buckets(window)),
            last=[row for group, found in self._last.items() for row in self._of_last(group, found)],
            heat=list(self._of_heat(window)),
            incidents=[row for found in self._incidents.values() for row in _worst_incidents(found)],
            events=events,
            gaps=reading.gaps,
            refused={node: count for node, count in reading.refused.items() if count},
            pause_ms=pause_ms,
        )

    def _of_buckets(self, window: Window) -> Iterator[Figures]:
        part, width = self._window.width_ms(BUCKETS), window.width_ms(BUCKETS)
        found: dict[tuple[str, str, int], Figures] = {}
        for place, buckets in self._buckets.items():
            joined: dict[int, _Bucket] = {}
            for number, each in buckets.items():
                bucket = joined.setdefault(number * part // width, _Bucket())
                bucket.lag = _highest(bucket.lag, each.lag)
                bucket.age_ms = _highest(bucket.age_ms, each.age_ms)
                bucket.severity = max(bucket.severity, each.severity)
                for rates, more in ((bucket.produce, each.produce), (bucket.consume, each.consume)):
                    rates[0] += more[0]
                    rates[1] += more[1]
            for number, bucket in joined.items():
                key = place[0], place[2], number
                row = found.get(key)
                if row is None:
                    row = found[key] = {"cluster": place[0], "group": place[2], "bucket": number, "severity": 0}
                row["severity"] = max(row["severity"], bucket.severity)
                row["age_ms"] = _highest(row.get("age_ms"), bucket.age_ms)
                for name, value in (
                    ("lag", bucket.lag), ("produced", _mean(bucket.produce)), ("consumed", _mean(bucket.consume))
                ):  # fmt: skip
                    row[name] = _sum(row.get(name), value)
        yield from found.values()

    def _of_last(self, group: tuple[str, str], found: Sequence[tuple[Place, _Judged]]) -> list[Figures]:
        here = [judged.facts for place, judged in found if self.left[place] is None]
        ages = [_highest_known(facts) for facts in here]
        of_group = {
            "group_queues": len(found),
            "group_lag": _total(facts["lag"] for facts in here),
            "group_unfinished": _total(facts["unfinished"] for facts in here),
            "group_age_ms": max((age for age in ages if age is not None), default=None),
            "group_catch_up_s": max((f["catch_up_s"] for f in here if f["catch_up_s"] is not None), default=None),
        }
        rows = []
        for place, judged in found:
            left_ms = self.left[place]
            gone_ms = self._limits.stale_ms + WIDTH_MS[judged.tier]
            is_gone = self._window.to_ms - judged.time_ms > gone_ms and judged.status not in _KEPT
            status = LEFT if left_ms is not None else "UNKNOWN" if is_gone else judged.status
            cause = None if is_gone or left_ms is not None else judged.cause
            own = {"status": status, "severity": SEVERITY.get(status, 0), "cause": cause, "left_ms": left_ms}
            rows.append({**judged.facts, **_names(place), **own, **of_group})
        rows.sort(key=lambda row: (-row["severity"], row["lag"] is None, -(row["lag"] or 0), *_names_of(row)))
        return [{**row, "place": place} for place, row in enumerate(rows[: 2 * QUEUES_MAX], 1)]

    def _of_heat(self, window: Window) -> Iterator[Figures]:
        part, width = self._window.width_ms(HEAT_BUCKETS), window.width_ms(HEAT_BUCKETS)
        groups: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in self._heat:
            groups[place[0], place[2]].append(place)
        for (cluster, group), places in groups.items():
            peaks = {place: _highest_of(self._heat[place].values()) for place in places}
            places.sort(key=lambda each: (peaks[each] is None, -(peaks[each] or 0), each[3], each[4], each[1]))
            found: dict[tuple[int, int], int | None] = {}
            for at, place in enumerate(places, 1):
                joined: dict[int, int | None] = {}
                for number, lag in self._heat[place].items():
                    joined[number * part // width] = _highest(joined.get(number * part // width), lag)
                for number, lag in joined.items():
                    key = min(at, QUEUES_MAX + 1), number
                    found[key] = _sum(found.get(key), lag)
            for (at, number), lag in found.items():
                names = _names(places[at - 1]) if at <= QUEUES_MAX else dict.fromkeys(("node", "topic", "queue"))
                yield {**names, "cluster": cluster, "group": group, "place": at, "bucket": number, "lag": lag}


def _names(place: Place) -> Figures:
    return dict(zip(("cluster", "node", "group", "topic", "queue"), place, strict=True))


def _names_of(row: Figures) -> tuple[str, int, str]:
    return row["topic"], row["queue"], row["node"]


def _worst_incidents(found: list[Figures]) -> list[Figures]:
    found.sort(
        key=lambda row: (-row["severity"], row["lag"] is None, -(row["lag"] or 0), row["from_ms"], *_names_of(row))
    )
    return found[:INCIDENTS_MAX]


def _objectives(groups: Mapping[tuple[str, str], _Sums]) -> list[Figures]:
    return [{"cluster": cluster, "group": group, **asdict(sums)} for (cluster, group), sums in groups.items()]


def _highest_known(facts: Mapping[str, Any]) -> Any:
    return facts["time_lag_ms"] if facts["time_lag_ms"] is not None else facts["time_lag_high_ms"]


def _highest_of(values: Iterable[int | None]) -> int | None:
    return max((each for each in values if each is not None), default=None)


def _total(values: Iterable[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _mean(rates: Sequence[int]) -> int | None:
    """Return the mean of rates, towards 0, as SQL divides integers."""
    total, count = rates
    return None if not count else total // count if total >= 0 else -(-total // count)
