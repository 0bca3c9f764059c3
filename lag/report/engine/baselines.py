"""What is usual: how a group was at the hour of a finding one to four weeks before, by the journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

from broker.runtime.seams import Disk
from lag.blocks import BlockGap
from lag.history.rows import figures
from lag.journal.columns import QUEUE_COLUMNS
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.report.data import LagReportData, ReportFinding, Usual

WEEKS: Final = 4
WEEK_MS: Final = 7 * 86_400_000
HOUR_MS: Final = 3_600_000
KNOWN_MS: Final = HOUR_MS // 2
"""An hour of which less was recorded is not known."""
_END: Final = QUEUE_COLUMNS.index("end")


@dataclass(slots=True)
class _QueueHour:
    """A queue in one hour: its most lag and greatest age, and its end at two moments."""

    first_ms: int
    first_end: int
    last_ms: int = 0
    last_end: int = 0
    lag: int = 0
    age_ms: int | None = None

    @property
    def produced(self) -> float:
        """Messages produced per second."""
        passed_ms = self.last_ms - self.first_ms
        return max(0, self.last_end - self.first_end) / passed_ms * 1000 if passed_ms else 0.0


@dataclass(slots=True)
class _Hour:
    """A group in one hour: its queues, by topic and what else names them, and what of the hour is known."""

    queues: dict[tuple[str, str, str, int], _QueueHour]
    first_ms: int
    last_ms: int

    def of(self, topic: str) -> list[_QueueHour]:
        """Return the queues of a topic; "" of all. None where the hour is not known."""
        is_known = self.last_ms - self.first_ms >= KNOWN_MS
        return [each for place, each in self.queues.items() if topic in ("", place[0])] if is_known else []


def with_usual(disk: Disk, journals: Sequence[str], report: LagReportData) -> LagReportData:
    """Return a report whose findings say what was usual at their hour; without journals none does."""
    wanted: dict[int, set[str]] = {}
    for finding in report.findings:
        for end_ms in _ends(finding, report):
            wanted.setdefault(end_ms, set()).add(finding.groups[0])
    hours = {end_ms: _hours(disk, journals, end_ms, frozenset(groups)) for end_ms, groups in wanted.items()}

    def usual(finding: ReportFinding) -> Usual | None:
        found = [hours[end_ms].get(finding.groups[0]) for end_ms in _ends(finding, report)]
        queues = [each.of(finding.topic) for each in found if each is not None]
        return _usual([each for each in queues if each])

    return replace(report, findings=[replace(each, usual=usual(each)) for each in report.findings])


def _ends(finding: ReportFinding, report: LagReportData) -> list[int]:
    """Return the ends of the hours: of a finding the last hour counts, which is now while it is open."""
    end_ms = finding.to_ms or finding.seen_ms or report.to_ms
    return [end_ms - week * WEEK_MS for week in range(1, WEEKS + 1)]


def _hours(disk: Disk, journals: Sequence[str], end_ms: int, groups: frozenset[str]) -> dict[str, _Hour]:
    """Return how groups were in the hour that ends at a moment; minutes that are kept as summaries will do."""
    found: dict[str, _Hour] = {}
    begin_ms = end_ms - HOUR_MS
    for folder in journals:
        wanted = JournalQuery(since_ms=max(0, begin_ms), until_ms=end_ms, groups=groups, finest=Tier.MINUTE)
        for block in JournalReader(disk, folder).blocks(wanted):
            if isinstance(block, BlockGap):
                continue
            for key, time_ms, row in block.queues:
                if key[0] not in groups or not begin_ms <= time_ms < end_ms:
                    continue
                figure = figures(block.tier, time_ms, row)
                if figure.peak is None or row[_END] is None:
                    continue
                hour = found.setdefault(key[0], _Hour({}, figure.first_ms, time_ms))
                hour.first_ms, hour.last_ms = min(hour.first_ms, figure.first_ms), max(hour.last_ms, time_ms)
                place = key[1], folder, block.head.node, key[2]
                queue = hour.queues.setdefault(place, _QueueHour(time_ms, row[_END]))
                queue.last_ms, queue.last_end = time_ms, row[_END]
                queue.lag = max(queue.lag, figure.peak)
                queue.age_ms = max((each for each in (queue.age_ms, figure.age_ms) if each is not None), default=None)
    return found


def _usual(hours: Sequence[Sequence[_QueueHour]]) -> Usual | None:
    """Return the medians of weeks; of an even number of weeks the lower of the two in the middle."""
    if not hours:
        return None
    known = [[each.age_ms for each in queues if each.age_ms is not None] for queues in hours]
    ages = [max(each) for each in known if each]
    return Usual(
        lag=median_low(max(each.lag for each in queues) for queues in hours),
        seconds=median_low(ages) / 1000 if ages else None,
        produced=round(median_low(sum(each.produced for each in queues) for queues in hours), 3),
        weeks=len(hours),
    )
