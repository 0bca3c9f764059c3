"""What a report says, whatever its form. Jobs fill it (`lag.spark`), renderers only lay it out.

Moments are Unix milliseconds, ends exclusive. Null means "not known" and is never drawn or printed as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lag.rules.queue_rules import advice_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSpan:
    """A stretch of time in one status.

    Attributes:
        from_ms: Its begin.
        to_ms: Its end.
        status: The worst status of the group's queues meanwhile.
    """

    from_ms: int
    to_ms: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSeries:
    """How lag went, in buckets of equal length: the worst moment of each, so that no peak is smoothed away.

    Attributes:
        times_ms: Begins of the buckets.
        lag: Messages behind, over all queues.
        seconds: Age of the oldest unfinished message.
        produced: Messages produced per second.
        consumed: Messages finished per second.
    """

    times_ms: Sequence[int]
    lag: Sequence[int | None]
    seconds: Sequence[float | None]
    produced: Sequence[float | None]
    consumed: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """One queue's lag per bucket; the last row of a map may be the sum of the queues that have none of their own.

    Attributes:
        label: Topic and queue.
        lag: Messages behind, by bucket.
    """

    label: str
    lag: Sequence[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Lag of a group's queues over time.

    Attributes:
        times_ms: Begins of the buckets.
        rows: The queue with the most lag first.
    """

    times_ms: Sequence[int]
    rows: Sequence[HeatRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBin:
    """Messages of the backlog in one range of ages.

    Attributes:
        from_seconds: The youngest of the range.
        to_seconds: Its end; null: no end.
        messages: How many there are.
    """

    from_seconds: float
    to_seconds: float | None
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A stretch in which a group was worse than OK.

    Attributes:
        topic: The topic; "" several.
        queue: The queue; null: several.
        from_ms: When it began.
        to_ms: When it ended; null: it had not at the window's end.
        status: Its worst status.
        cause: The cause, in one or two words; "" none known.
        evidence: The figures that speak for it, one sentence.
        peak_lag: Most messages behind.
        peak_seconds: Greatest age of the oldest unfinished message.
        lost: Messages that retention took unfinished meanwhile.
    """

    topic: str
    queue: int | None
    from_ms: int
    to_ms: int | None
    status: str
    cause: str
    evidence: str
    peak_lag: int | None
    peak_seconds: float | None
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """How a group was at the same hour of the four weeks before: medians over the weeks that are known.

    Attributes:
        lag: Most messages behind of a queue in the hour, as the peak lag of the finding.
        seconds: Greatest age of the oldest unfinished message; null: not known.
        produced: Messages produced per second, over the queues of the finding's topic.
        weeks: How many of the four weeks are known.
    """

    lag: int
    seconds: float | None
    produced: float
    weeks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFinding:
    """What a reader has to know: an incident of the window, or several that are equal, open or ended.

    Attributes:
        groups: Groups that it is about, the worst first.
        topic: The topic; "" several.
        from_ms: When the first of the incidents began.
        to_ms: When the last of them ended; null: it is still open at the window's end.
        seen_ms: Until when an open one is known, where nothing was recorded at the window's end; null: until then.
        times: How many incidents these are.
        status: The status.
        level: What the status makes of its group: WARN, ERR or UNKNOWN.
        cause: The cause; "" none known.
        evidence: The figures that speak for it, one sentence.
        status_advice: What to do about the status.
        cause_advice: What to do about the cause; "" no cause is known.
        peak_lag: Most messages behind.
        peak_seconds: Greatest age of the oldest unfinished message.
        lost: Messages that retention took unfinished meanwhile.
        contacts: Whom to call.
        usual: How the first group was at the same hour of earlier weeks; null: not known of any.
    """

    groups: Sequence[str]
    topic: str
    from_ms: int
    to_ms: int | None
    seen_ms: int | None = None
    times: int
    status: str
    level: str
    cause: str
    evidence: str
    status_advice: str
    cause_advice: str
    peak_lag: int | None
    peak_seconds: float | None
    lost: int
    contacts: Sequence[str]
    usual: Usual | None = None

    @property
    def advice(self) -> str:
        """What to do: about what has ended nothing, unless messages were lost."""
        if self.to_ms is not None:
            return self.status_advice if self.lost else ""
        cause = self.cause.replace(" ", "_")
        return advice_of(self.status, cause if self.cause_advice else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMark:
    """An event in the window, or several that are equal and of about the same moment.

    Attributes:
        time_ms: When the first of them was.
        kind: `start`, `stop`, `reload`, `pause`, `resume`, `reset`, `retention`, `left` or `clock`.
        node: The node that noted it.
        group: The group that it is about; "" the node.
        topic: The topic; "" all, or several.
        count: How many events these are.
        detail: One line for people, of the first of them.
    """

    time_ms: int
    kind: str
    node: str
    group: str
    topic: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCount:
    """What waits in a node for its own time, under one name, at the window's end.

    Attributes:
        node: The node.
        kind: `timer`, `delay` or `half`, which is an undecided transaction.
        topic: The topic; "" over all topics.
        delay_level: The delay level; 0 of others.
        status: IN_TIME, LATE, UNDECIDED or UNKNOWN.
        level: OK, WARN, ERR or UNKNOWN.
        scheduled: Messages whose moment has not come, or transactions for which no check is due.
        overdue: Messages whose moment has passed, or transactions for which a check is due.
        late_seconds: How long the earliest of the overdue has been due; null of transactions.
        undecided_since_ms: When the oldest undecided transaction was sent; null of others.
        peak_overdue: Most overdue in the window.
        peak_late_seconds: Longest that one was overdue in the window; null of transactions.
        advice: What to do.
    """

    node: str
    kind: str
    topic: str
    delay_level: int
    status: str
    level: str
    scheduled: int
    overdue: int
    late_seconds: float | None
    undecided_since_ms: int | None
    peak_overdue: int
    peak_late_seconds: float | None
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """One queue at the window's end.

    Attributes:
        node: The node that recorded it.
        topic: The topic.
        queue: The queue.
        status: Its status.
        cause: Its cause; "" none.
        committed: First offset not known to be finished.
        end: Offset of the next message.
        lag: Messages behind.
        unfinished: Those of them that are not finished out of order.
        seconds: Age of the oldest unfinished message.
        method: How that is known: message, interpolated, bounded or none.
        produced: Messages produced per second.
        consumed: Messages finished per second.
        catch_up_seconds: Until it is caught up at these rates; null: never, or nothing to catch up.
        lost: Messages that retention took unfinished.
    """

    node: str
    topic: str
    queue: int
    status: str
    cause: str
    committed: int | None
    end: int | None
    lag: int | None
    unfinished: int | None
    seconds: float | None
    method: str
    produced: float | None
    consumed: float | None
    catch_up_seconds: float | None
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How well a group kept to its target.

    Attributes:
        target_seconds: Oldest that an unfinished message may be.
        samples_share: Share of the samples under the target, 0.0 to 1.0.
        messages_share: Share of the messages that were finished under it; lost ones are not; null: there were none.
        over_seconds: Time spent over it.
        samples: How many samples the first share is of.
        coverage: Share of the window that is known, 0.0 to 1.0.
        earlier_samples_share: `samples_share` of the preceding period; null: not compared, or without samples.
        earlier_samples: How many samples that is of.
        earlier_coverage: Share of the preceding period that is known.
    """

    target_seconds: float
    samples_share: float | None
    messages_share: float | None
    over_seconds: float
    samples: int
    coverage: float
    earlier_samples_share: float | None = None
    earlier_samples: int = 0
    earlier_coverage: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """One group.

    Attributes:
        cluster: Its cluster.
        group: Its name.
        status: Its status at the window's end; LEFT: the group was deleted or left the configuration.
        level: OK, WARN, ERR or UNKNOWN.
        cause: The cause; "" none.
        evidence: One sentence with the figures that speak for it; "" none.
        advice: What to do; "" nothing.
        lag: Messages behind at the end, over all queues.
        unfinished: Those of them not finished out of order.
        seconds: Age of the oldest unfinished message at the end.
        peak_lag: Most messages behind in the window.
        peak_seconds: Greatest age in the window.
        lost: Messages that retention took in the window.
        catch_up_seconds: Until it is caught up; null: never, or nothing to catch up.
        objective: How it kept to its target.
        spans: Its statuses, one after the other, without overlap.
        line: How its lag went.
        heat: Its queues.
        ages: Its backlog by age; empty: not scanned.
        incidents: In order of time.
        queues: The worst first.
        queues_left_out: How many more there are.
        left_ms: When the group was deleted, or left the configuration; null: it has not.
        contacts: Whom to call.
    """

    cluster: str
    group: str
    status: str
    level: str
    cause: str
    evidence: str
    advice: str
    lag: int | None
    unfinished: int | None
    seconds: float | None
    peak_lag: int | None
    peak_seconds: float | None
    lost: int
    catch_up_seconds: float | None
    objective: Objective
    spans: Sequence[StatusSpan]
    line: LagSeries
    heat: HeatMap
    ages: Sequence[AgeBin]
    incidents: Sequence[Incident]
    queues: Sequence[QueueFigures]
    queues_left_out: int = 0
    left_ms: int | None = None
    contacts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReportData:
    """A whole report.

    Attributes:
        title: Its title.
        from_ms: Begin of the window.
        to_ms: Its end.
        made_ms: When it was made.
        sources: Where the samples came from, one line each.
        samples: How many there were.
        gaps: What is missing: times without samples, files that cannot be read, each one line with its reason.
        groups: The worst first.
        summary: One sentence: how many groups were in trouble, which still are, and what was lost.
        level: The worst level of the open findings; UNKNOWN where there are no samples.
        findings: The worst first.
        findings_left_out: How many more there are.
        marks: Events of the window, in order of time.
        marks_left_out: How many more there are.
        waiting: What waits in nodes for its own time, the worst first.
        timezone: Name of the time zone that moments are shown in beside UTC.
    """

    title: str
    from_ms: int
    to_ms: int
    made_ms: int
    sources: Sequence[str]
    samples: int
    gaps: Sequence[str]
    groups: Sequence[GroupPart]
    summary: str = ""
    level: str = "OK"
    findings: Sequence[ReportFinding] = ()
    findings_left_out: int = 0
    marks: Sequence[EventMark] = ()
    marks_left_out: int = 0
    waiting: Sequence[WaitingCount] = ()
    timezone: str = "UTC"


def as_plain(report: LagReportData) -> dict[str, Any]:
    """Return a report as JSON has it: names in snake case, as the columns of Parquet and CSV."""
    return asdict(report)
