"""The first reduction of a report without Spark: the same rules over the same samples as `lag.spark.jobs.history`.

Samples are read as columns and judged by numpy, some topics at a time; what comes out are the few rows of
`lag.report.options.Reduced`. Sums are of integers, so both engines come to equal reports, which a test holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from broker.runtime.seams import Disk
from lag.journal.files import WIDTH_MS
from lag.report.data import LagReportData
from lag.report.engine.baselines import with_usual
from lag.report.engine.column_rules import text_of
from lag.report.engine.column_samples import TIERS, Place, Samples
from lag.report.engine.exported import read_exported
from lag.report.engine.findings import LEFT
from lag.report.engine.incidents import longest
from lag.report.engine.judged import NONE, JudgedSamples, listed
from lag.report.engine.parts import assemble
from lag.report.engine.reading import Moments, ReadSamples, read_journals
from lag.report.engine.waiting import waiting_of
from lag.report.options import (
    BUCKETS,
    HEAT_BUCKETS,
    INCIDENTS_MAX,
    PRECISE,
    QUEUES_MAX,
    Figures,
    Reduced,
    ReportOptions,
    ReportWindow,
)
from lag.rules import causes
from lag.rules.expression import names_in
from lag.rules.limits import LagLimits
from lag.rules.statuses import BY_NAME, SEVERITY

BLOCK_ROWS: Final = 100_000
"""Samples that are judged at once, about; a topic is never cut."""
_KEPT: Final = frozenset(
    name for name, status in BY_NAME.items() if SEVERITY[name] > SEVERITY["UNKNOWN"]
    and "stale_ms" not in names_in(status.rule)
)  # fmt: skip
"""Statuses that do not depend on the age of the sample: a queue that nothing is known of since keeps them."""
_OTHERS: Final[Mapping[str, None]] = {"node": None, "topic": None, "queue": None}
_SUMS: Final = ("samples", "kept", "ended", "ended_kept", "lost", "known_ms", "over_ms")


def make_locally(disk: Disk, options: ReportOptions) -> LagReportData:
    """Return the report over journals or exported files, made by this process alone.

    Raises:
        ExportUnavailable: Exported files are read with pyarrow, which is not installed.
        ExportFailed: Nothing was exported to a place, or it cannot be listed.
    """
    report = replace(assemble(options, reduce_locally(disk, options)), waiting=waiting_of(disk, options))
    return with_usual(disk, options.given.journals, report)


def reduce_locally(disk: Disk, options: ReportOptions) -> Reduced:
    """Read journals, judge their samples, and reduce them to the rows of a report."""
    window, limits = options.window, options.limits
    reading = read_journals(disk, options) if options.given.journals else read_exported(options)
    found, earlier = _JudgedBlocks(window, limits, reading.places), _JudgedBlocks(window, limits, reading.places)
    before = ReportWindow(from_ms=window.from_ms - window.length_ms, to_ms=window.from_ms)
    moments = Moments(reading.events)
    resets = [moments.resets(place) for place in reading.places]
    for block in _blocks(reading.samples, reading.places):
        if options.compared and (judged := JudgedSamples.of(block, before, limits, resets)) is not None:
            earlier.add(judged, before)
        if (judged := JudgedSamples.of(block, window, limits, resets)) is not None:
            found.add(judged, window)
            found.report(judged, moments)
    return found.reduced(reading, earlier)


def _blocks(samples: Samples, places: Sequence[Place]) -> Iterator[Samples]:
    """Yield the samples of whole topics, as many as belong together or are judged at once."""
    if not len(samples.times):
        return
    topics = [(cluster, group, topic) for cluster, _, group, topic, _ in places]
    ends = [number for number in range(1, len(topics)) if topics[number] != topics[number - 1]]
    begin = 0
    cuts = [*np.searchsorted(samples.queues, ends).tolist(), len(samples.times)]
    for cut, after in zip(cuts, [*cuts[1:], None], strict=True):
        if after is None or after - begin > BLOCK_ROWS:
            yield samples.at(slice(begin, cut))
            begin = cut


class _JudgedBlocks:
    """Gathers what was judged, block by block, and reduces it."""

    def __init__(self, window: ReportWindow, limits: LagLimits, places: Sequence[Place]) -> None:
        self._window, self._limits, self._places = window, limits, places
        groups = {(place[0], place[2]): None for place in places}
        self._groups = list(groups)
        numbers = {group: number for number, group in enumerate(groups)}
        self._group = np.array([numbers[place[0], place[2]] for place in places], np.int64)
        self._sums: list[dict[str, Any]] = []
        self._buckets: list[dict[str, Any]] = []
        self._heat: list[dict[str, Any]] = []
        self._last: dict[int, list[tuple[int, Figures]]] = defaultdict(list)
        self._left: dict[int, int | None] = {}
        self._incidents: dict[int, list[Figures]] = defaultdict(list)

    def add(self, judged: JudgedSamples, window: ReportWindow) -> None:
        """Add up what was judged of a window."""
        self._sums.append({**judged.sums(window), "queue": judged.samples.queues[judged.begins]})

    def report(self, judged: JudgedSamples, moments: Moments) -> None:
        """Take what is shown of the judged samples: buckets, incidents, and the last of each queue."""
        passed_ms, queues = judged.samples.times - self._window.from_ms, judged.samples.queues
        lag, age = judged.peak_lag.filled(NONE), judged.peak_age_ms.filled(-np.inf)
        rates = {}
        for name in ("produce", "consume"):
            rate, known = judged.judge.facts[f"{name}_rate"].within(judged.count)
            rates[f"{name}_sum"] = np.where(known, np.floor(rate * PRECISE + 0.5), 0).astype(np.int64)
            rates[f"{name}_count"] = known.astype(np.int64)
        rows = {"queue": queues, "lag": lag, "age_ms": age, "severity": judged.severities, **rates}
        rows = {name: np.broadcast_to(values, judged.count) for name, values in rows.items()}
        number = passed_ms // self._window.width_ms(BUCKETS)
        self._buckets.append(_added({**rows, "bucket": number}))
        number = passed_ms // self._window.width_ms(HEAT_BUCKETS)
        self._heat.append(_added({"queue": queues, "lag": rows["lag"], "bucket": number}))
        self._take_last(judged, moments)
        self._take_incidents(judged)

    def _take_last(self, judged: JudgedSamples, moments: Moments) -> None:
        rows = np.flatnonzero(judged.last)
        ages = listed(judged.age_ms.at(rows), len(rows), None)
        tiers, times = judged.tiers[rows].tolist(), judged.samples.times[rows].tolist()
        queues = judged.samples.queues[rows].tolist()
        reported = zip(queues, tiers, times, ages, judged.reported(rows), strict=True)
        for queue, tier, time_ms, age_ms, facts in reported:
            left_ms = self._left[queue] = moments.left(self._places[queue], time_ms)
            gone_ms = self._limits.stale_ms + WIDTH_MS[TIERS[tier]]
            is_gone = self._window.to_ms - time_ms > gone_ms and facts["status"] not in _KEPT
            facts["left_ms"], facts["own_age_ms"] = left_ms, age_ms
            if left_ms is not None or is_gone:
                facts["status"], facts["cause"] = "UNKNOWN" if left_ms is None else LEFT, None
            facts["severity"] = SEVERITY.get(facts["status"], 0)
            self._last[int(self._group[queue])].append((queue, facts))

    def _take_incidents(self, judged: JudgedSamples) -> None:
        """Find the incidents of each queue; of a group only the worst are kept."""
        rows = np.flatnonzero(judged.troubled)
        if not len(rows):
            return
        times, queues = judged.samples.times, judged.samples.queues
        is_one = np.append(False, judged.troubled[:-1]) & ~judged.first & ~judged.is_gap
        begins = np.flatnonzero(~is_one[rows])
        first, last = rows[begins], rows[np.append(begins[1:], len(rows)) - 1]
        severity = np.maximum.reduceat(judged.severities[rows], begins)
        lag = np.maximum.reduceat(np.broadcast_to(judged.peak_lag.filled(NONE), judged.count)[rows], begins)
        age = np.maximum.reduceat(np.broadcast_to(judged.peak_age_ms.filled(-np.inf), judged.count)[rows], begins)
        counts = times[rows] >= self._window.counted_ms
        lost = np.add.reduceat(np.where(counts, judged.lost_now[rows], 0), begins)
        after = np.minimum(last + 1, judged.count - 1)
        until = np.where(judged.is_gap[after], times[last], times[after])
        group = self._group[queues[first]]
        # Of each group the worst; the others are not looked at further.
        order = np.lexsort((queues[first], times[first], -lag, lag == NONE, -severity, group))
        ranks = np.arange(len(order)) - np.maximum.accumulate(np.where(_begins(group[order]), np.arange(len(order)), 0))
        kept = np.sort(order[ranks < INCIDENTS_MAX])
        reported = zip(kept.tolist(), *self._causes(judged, rows, begins, severity, kept), strict=True)
        for number, held, facts in reported:
            queue = int(queues[first[number]])
            is_open = bool(judged.last[last[number]])
            self._incidents[int(group[number])].append({
                **_names(self._places[queue]), "number": queue,
                "from_ms": int(times[first[number]]),
                "last_ms": int(times[last[number]]),
                "until_ms": self._left[queue] if is_open else int(until[number]),
                "severity": int(severity[number]),
                "cause": facts["cause"],
                "held": held,
                "facts": {name: facts[name] for name in causes.EVIDENCE},
                "lag": None if lag[number] == NONE else int(lag[number]),
                "age_ms": None if age[number] == -np.inf else float(age[number]),
                "lost": int(lost[number]),
            })  # fmt: skip

    def _causes(
        self, judged: JudgedSamples, rows: Any, begins: Any, severity: Any, kept: Any
    ) -> tuple[list[dict[str | None, int]], Iterator[Figures]]:
        """Return, of each incident, how long each cause held while it was worst, and the finding of the longest."""
        numbers = np.cumsum(np.isin(np.arange(len(rows)), begins)) - 1
        worst = np.flatnonzero((judged.severities[rows] == severity[numbers]) & np.isin(numbers, kept))
        found = judged.causes(rows[worst]).facts["cause"].within(len(worst)).filled(-1)
        # Samples of one incident and cause behind each other, in the order of their moments.
        order = np.lexsort((worst, found, numbers[worst]))
        of, cause = numbers[worst[order]], found[order]
        parts = np.flatnonzero(_begins(of) | _begins(cause))
        held = np.add.reduceat(judged.speaks_for_ms(self._window.counted_ms)[rows[worst[order]]], parts)
        firsts, of, cause = worst[order][parts], of[parts], cause[parts]
        found_of: dict[int, dict[str | None, tuple[int, int]]] = {}
        for part in np.lexsort((firsts, of)).tolist():
            name = None if cause[part] < 0 else text_of(int(cause[part]))
            found_of.setdefault(int(of[part]), {})[name] = int(held[part]), int(rows[firsts[part]])
        helds = [{name: each[0] for name, each in found_of[number].items()} for number in kept.tolist()]
        samples = [found_of[number][longest(each)][1] for number, each in zip(kept.tolist(), helds, strict=True)]
        return helds, judged.reported(np.array(samples, np.int64))

    def reduced(self, reading: ReadSamples, earlier: _JudgedBlocks) -> Reduced:
        """Return the rows of the report."""
        objectives = self._objectives()
        pause_ms = max((row["pause_ms"] for row in objectives if row["pause_ms"] is not None), default=1)
        window = replace(self._window, pause_ms=pause_ms)
        return Reduced(
            objectives=objectives,
            earlier=earlier._objectives(),
            buckets=list(self._of_buckets(window)),
            last=[row for found in self._last.values() for row in self._of_last(found)],
            heat=list(self._of_heat(window)),
            incidents=[row for found in self._incidents.values() for row in _worst_incidents(found)],
            events=reading.events,
            gaps=reading.gaps,
            refused=reading.refused,
            pause_ms=pause_ms,
        )

    def _objectives(self) -> list[Figures]:
        """Add queues' sums up to their groups'; time over the target is that of the worst queue."""
        found: dict[int, Figures] = {}
        for sums in self._sums:
            lists = {name: values.tolist() for name, values in sums.items()}
            for place, queue in enumerate(lists["queue"]):
                group = int(self._group[queue])
                row = found.get(group)
                if row is None:
                    cluster, name = self._groups[group]
                    row = found[group] = {**dict.fromkeys(_SUMS, 0), "cluster": cluster, "group": name, "queues": 0,
                                          "pause_ms": NONE}  # fmt: skip
                for each in _SUMS:
                    if each != "over_ms":
                        row[each] += lists[each][place]
                row["queues"] += 1
                for each in ("over_ms", "pause_ms"):
                    row[each] = max(row[each], lists[each][place])
        return [{**row, "pause_ms": None if row["pause_ms"] == NONE else row["pause_ms"]} for row in found.values()]

    def _of_buckets(self, window: ReportWindow) -> Iterator[Figures]:
        rows = self._joined(self._buckets, window, BUCKETS)
        if not rows:
            return
        for name, short in (("produced", "produce"), ("consumed", "consume")):
            total, count = rows[f"{short}_sum"], rows[f"{short}_count"]
            # The mean towards 0, as SQL divides integers.
            mean = np.abs(total) // np.maximum(count, 1) * np.sign(total)
            rows[name], rows[f"{name}_count"] = np.where(count > 0, mean, 0), np.minimum(count, 1)
        rows["lag_sum"], rows["lag_count"] = np.maximum(rows["lag"], 0), (rows["lag"] != NONE).astype(np.int64)
        order = np.lexsort((rows["bucket"], self._group[rows["queue"]]))
        found = {name: values[order] for name, values in rows.items()}
        found = _added({"queue": self._group[found.pop("queue")], **found})
        for number, bucket, lag, lags, age, severity, *rates in zip(
            *(found[name].tolist() for name in ("queue", "bucket", "lag_sum", "lag_count", "age_ms", "severity",
                                                "produced", "produced_count", "consumed", "consumed_count")),
            strict=True,
        ):  # fmt: skip
            cluster, group = self._groups[number]
            produced, produced_count, consumed, consumed_count = rates
            yield {
                "cluster": cluster, "group": group, "bucket": bucket, "severity": severity,
                "lag": lag if lags else None, "age_ms": None if age == -np.inf else age,
                "produced": produced if produced_count else None, "consumed": consumed if consumed_count else None,
            }  # fmt: skip

    def _joined(self, parts: Sequence[dict[str, Any]], window: ReportWindow, buckets: int) -> dict[str, Any]:
        """Return rows by queue and bucket of a window, each made of whole ones of the walk."""
        if not parts:
            return {}
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        part, width = self._window.width_ms(buckets), window.width_ms(buckets)
        return _added({**rows, "bucket": rows["bucket"] * part // width})

    def _of_last(self, found: Sequence[tuple[int, Figures]]) -> list[Figures]:
        here = [facts for _, facts in found if facts["left_ms"] is None]
        of_group = {
            "group_queues": len(found),
            "group_lag": _total(facts["lag"] for facts in here),
            "group_unfinished": _total(facts["unfinished"] for facts in here),
            "group_age_ms": max((f["own_age_ms"] for f in here if f["own_age_ms"] is not None), default=None),
            "group_catch_up_s": _caught_up_s(here),
        }
        worst = sorted(found, key=lambda each: (-each[1]["severity"], each[1]["lag"] is None, -(each[1]["lag"] or 0),
                                                each[0]))  # fmt: skip
        return [{**facts, **_names(self._places[queue]), **of_group, "place": place}
                for place, (queue, facts) in enumerate(worst[: 2 * QUEUES_MAX], 1)]  # fmt: skip

    def _of_heat(self, window: ReportWindow) -> Iterator[Figures]:
        rows = self._joined(self._heat, window, HEAT_BUCKETS)
        if not rows:
            return
        queues = rows["queue"]
        begins = np.flatnonzero(_begins(queues))
        peaks = np.maximum.reduceat(rows["lag"], begins)
        of_queue = queues[begins]
        order = np.lexsort((of_queue, -peaks, peaks == NONE, self._group[of_queue]))
        groups = self._group[of_queue[order]]
        ranks = np.arange(len(order)) - np.maximum.accumulate(np.where(_begins(groups), np.arange(len(order)), 0))
        places = np.zeros(len(self._places), np.int64)
        places[of_queue[order]] = np.minimum(ranks + 1, QUEUES_MAX + 1)
        others: dict[tuple[int, int], Figures] = {}
        names = {queue: _names(self._places[queue]) for queue in of_queue.tolist()}
        lists = zip(*(each.tolist() for each in (queues, places[queues], rows["bucket"], rows["lag"])), strict=True)
        for queue, place, bucket, lag in lists:
            if place <= QUEUES_MAX:
                yield {**names[queue], "place": place, "bucket": bucket, "lag": None if lag == NONE else lag}
                continue
            row = others.get((int(self._group[queue]), bucket))
            if row is None:
                row = {**names[queue], **_OTHERS, "place": place, "bucket": bucket, "lag": None}
                others[int(self._group[queue]), bucket] = row
            if lag != NONE:
                row["lag"] = lag + (row["lag"] or 0)
        yield from others.values()


def _begins(keys: Any) -> Any:
    """Return where a key is another one than before."""
    found = np.ones(len(keys), bool)
    found[1:] = keys[1:] != keys[:-1]
    return found


def _added(rows: dict[str, Any]) -> dict[str, Any]:
    """Join rows of one queue and bucket: sums and counts are added, of the rest the highest is taken."""
    begins = np.flatnonzero(_begins(rows["queue"]) | _begins(rows["bucket"]))
    return {name: (np.add if name.endswith(("_sum", "_count")) or name in ("produced", "consumed") else np.maximum)
            .reduceat(values, begins) for name, values in rows.items()}  # fmt: skip


def _names(place: Place) -> Figures:
    return dict(zip(("cluster", "node", "group", "topic", "queue"), place, strict=True))


def _worst_incidents(found: list[Figures]) -> list[Figures]:
    found.sort(
        key=lambda row: (-row["severity"], row["lag"] is None, -(row["lag"] or 0), row["from_ms"], row["number"])
    )
    return found[:INCIDENTS_MAX]


def _caught_up_s(here: Sequence[Figures]) -> float | None:
    """Return when the last of some queues is caught up; null: one of them never is, or that is not known."""
    seconds = [facts["catch_up_s"] for facts in here if facts["unfinished"] != 0 or facts["catch_up_s"] is not None]
    return None if None in seconds else max(seconds, default=None)


def _total(values: Iterable[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None
