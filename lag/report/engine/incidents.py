"""The ledger: all incidents of months, with what changed before each, from the incidents that a report finds.

A history is reduced piece by piece, so that memory is that of a piece. A piece begins some time before what it counts:
an incident that crosses a border is in both pieces, with samples that both have. Those two rows are one incident.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any, Final

from broker.runtime.seams import Disk
from lag.blocks import BlockGap
from lag.journal.columns import QUEUE_COLUMNS
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.summaries import QUEUE_SUMMARIES
from lag.report import texts
from lag.report.engine.findings import marks_of
from lag.report.engine.parts import GAPS_MAX, joined
from lag.report.engine.reading import file_spans
from lag.report.options import INCIDENTS_MAX, Figures, Group, Reduced, ReportOptions, ReportWindow, status_of
from lag.rules import statuses
from lag.samples import EventKind

PIECE_MS: Final = 86_400_000
SAMPLES_MAX: Final = 500_000
"""Samples of one piece, about: some hundred MB while it is judged."""
LEAD_MS: Final = 7_200_000
"""How long before what it counts a piece begins: longer than the pause between two hours that are kept as summaries."""
CHANGED_MS: Final = 1_800_000
"""How long before its begin an event may have to do with an incident."""
CHANGES_MAX: Final = 5
_SETTLED_MS, _NOW_MS = 360_000, 60_000
_HOLDERS: Final = {
    tier: QUEUE_COLUMNS.index("holders")
    if tier is Tier.RAW
    else [column.name for column in QUEUE_SUMMARIES.columns].index("last.holders")
    for tier in Tier
}

Level = tuple[int, int, int]
"""Moment, clients and queues of a topic."""
_Series = dict[tuple[str, str, str, str], list[Level]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIncident:
    """One incident of the ledger.

    Attributes:
        cluster: The cluster.
        group: The group.
        topic: The topic; "" several.
        queue: The queue; null: several.
        from_ms: When it began, or the ledger does.
        to_ms: When it ended; null: it had not when it was last recorded.
        seen_ms: When it was last recorded.
        seconds: How long it lasted, or was seen to last.
        status: Its worst status.
        level: What the status makes of the group: WARN, ERR or UNKNOWN.
        cause: The cause that held longest while the status was the worst; "" none known.
        peak_lag: Most messages behind.
        peak_seconds: Greatest age of the oldest unfinished message.
        lost: Messages that retention took unfinished meanwhile.
        changes: What changed in the half hour before, a line each.
    """

    cluster: str
    group: str
    topic: str
    queue: int | None
    from_ms: int
    to_ms: int | None
    seen_ms: int
    seconds: float
    status: str
    level: str
    cause: str
    peak_lag: int | None
    peak_seconds: float | None
    lost: int
    changes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """The incidents of one cause that began in one month.

    Attributes:
        month: The month, `2026-11`.
        cause: The cause; "" none known.
        incidents: How many there were.
        seconds: How long they lasted together.
        lost: Messages that were lost in them.
    """

    month: str
    cause: str
    incidents: int
    seconds: float
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentLedger:
    """All incidents of a window.

    Attributes:
        from_ms: Begin of the window.
        to_ms: Its end.
        timezone: Name of the time zone of months and of moments in texts.
        incidents: In order of time.
        months: Sums by month and cause.
        gaps: What is missing, a line each.
    """

    from_ms: int
    to_ms: int
    timezone: str
    incidents: Sequence[LedgerIncident]
    months: Sequence[Month]
    gaps: Sequence[str]


def longest(held: Mapping[str | None, int]) -> str | None:
    """Return the cause that held longest, of causes in the order in which they came (docs/lag-rules.md)."""
    return max(held, key=lambda cause: (cause is not None, held[cause]), default=None)


def make_ledger(
    disk: Disk,
    options: ReportOptions,
    reduce: Callable[[Disk, ReportOptions], Reduced],
    *,
    topic: str | None = None,
    cause: str | None = None,
) -> IncidentLedger:
    """Return the incidents of a window, of a topic and cause if these are given."""
    found = _Stitched(disk, options, topic)
    gaps: dict[str, None] = {}
    # Without a file whose times can be read, the last of the window is read for what is wrong with the files.
    last = replace(options.window, from_ms=max(options.window.from_ms, options.window.to_ms - LEAD_MS))
    for piece in list(pieces_of(disk, options)) or [replace(last, counted_ms=last.from_ms)]:
        reduced = reduce(disk, replace(options, window=piece, compared=False))
        gaps |= dict.fromkeys(reduced.gaps)
        found.take(piece, reduced)
    entries = sorted(found.entries(), key=lambda each: (each.from_ms, each.cluster, each.group, each.topic))
    if cause is not None:
        entries = [each for each in entries if each.cause == cause.replace("_", " ")]
    lines = [*found.cut, *gaps]
    return IncidentLedger(
        from_ms=options.window.from_ms,
        to_ms=options.window.to_ms,
        timezone=options.timezone,
        incidents=entries,
        months=_months(entries, options.timezone),
        gaps=lines if len(lines) <= GAPS_MAX else [*lines[:GAPS_MAX], f"and {len(lines) - GAPS_MAX} more"],
    )


def pieces_of(disk: Disk, options: ReportOptions) -> Iterator[ReportWindow]:
    """Yield the pieces of a window that have samples, a day each, or shorter where a day can have many samples."""
    window = options.window
    spans = file_spans(disk, options.given.journals, window.from_ms, window.to_ms)
    begin = max([window.from_ms, *sorted(first_ms for first_ms, _, _ in spans)[:1]])
    for day in range(begin, window.to_ms, PIECE_MS):
        end = min(day + PIECE_MS, window.to_ms)
        # A file counts by its share of the day: most are of an hour, and those of a summary of more than a day.
        samples = sum(
            -(-count * (min(last_ms, end) - max(first_ms, day)) // (last_ms - first_ms))
            for first_ms, last_ms, count in spans
            if last_ms > day and first_ms < end
        )
        width = max(LEAD_MS, -(-(end - day) // max(1, -(-samples // SAMPLES_MAX))))
        for counted in range(day, end, width) if samples else ():
            yield ReportWindow(
                from_ms=max(begin, counted - LEAD_MS), to_ms=min(counted + width, end), counted_ms=counted
            )


class _Stitched:
    """Makes incidents of the rows of pieces, which come in the order of time."""

    def __init__(self, disk: Disk, options: ReportOptions, topic: str | None) -> None:
        self._disk, self._options, self._topic = disk, options, topic
        self._open: dict[tuple[Any, ...], Figures] = {}
        self._ended: dict[Group, list[Figures]] = {}
        self._entries: list[LedgerIncident] = []
        self.cut: list[str] = []

    def take(self, piece: ReportWindow, reduced: Reduced) -> None:
        """Take the rows of the next piece."""
        before, self._open = self._open, {}
        new: list[Figures] = []
        counts: dict[Group, int] = {}
        for row in sorted(reduced.incidents, key=lambda row: int(row["from_ms"])):
            counts[row["cluster"], row["group"]] = counts.get((row["cluster"], row["group"]), 0) + 1
            if self._topic not in (None, row["topic"]):
                continue
            key = row["cluster"], row["node"], row["group"], row["topic"], row["queue"]
            known = before.get(key)
            if known is not None and row["from_ms"] <= known["last_ms"] <= row["last_ms"]:
                self._keep(key, _continued(before.pop(key), row))
            elif row["from_ms"] >= piece.counted_ms:
                # Else it ended in the piece before, which has it.
                new.append({**row, "facts": None})
                self._keep(key, new[-1])
        seen = {(row["cluster"], row["node"], row["group"]) for row in reduced.last}
        for key, row in before.items():
            # Nothing was recorded of it for long. If something is again, it ended with its last sample.
            until_ms = row["last_ms"] if key[:3] in seen else None
            self._keep(key, {**row, "until_ms": until_ms})
        if new:
            self._find_changes(new, reduced.events)
        self.cut += [
            f"{texts.moment(piece.counted_ms, self._options.timezone, seconds=False)}: {group} had more than "
            f"{INCIDENTS_MAX} incidents of queues in a piece; the least bad are left out"
            for (_, group), count in counts.items()
            if count >= INCIDENTS_MAX
        ]
        self._join({(key[0], key[2]) for key in self._open})

    def _keep(self, key: tuple[Any, ...], row: Figures) -> None:
        if row["until_ms"] is None:
            self._open[key] = row
        else:
            self._ended.setdefault((row["cluster"], row["group"]), []).append(row)

    def _join(self, waiting: Iterable[Group] = ()) -> None:
        """Make entries of the rows of groups of which no row is open: nothing that follows is joined with them."""
        for group in self._ended.keys() - set(waiting):
            rows = [row for row in joined(self._ended.pop(group)) if status_of(row["severity"]) != "INCOMPLETE"]
            self._entries += [_entry(row) for row in rows]

    def entries(self) -> list[LedgerIncident]:
        """Return all of them; those that are still open stay so."""
        for row in self._open.values():
            self._ended.setdefault((row["cluster"], row["group"]), []).append(row)
        self._open = {}
        self._join()
        return self._entries

    def _find_changes(self, rows: Sequence[Figures], happened: Sequence[Figures]) -> None:
        events = sorted(happened, key=lambda event: int(event["time_ms"]))
        times = [event["time_ms"] for event in events]
        levels = self._levels(rows)
        zone = self._options.timezone
        for row in rows:
            span = ReportWindow(from_ms=row["from_ms"] - CHANGED_MS, to_ms=row["from_ms"] + _NOW_MS)
            near = events[bisect_left(times, span.from_ms) : bisect_left(times, span.to_ms)]
            marks, _ = marks_of([event for event in near if _is_about(event, row)], span)
            said = [f"{texts.clock(mark.time_ms, row['from_ms'], zone)} {texts.event(mark)}" for mark in marks]
            series = levels.get((row["cluster"], row["node"], row["group"], row["topic"]), [])
            row["changes"] = [*said[-CHANGES_MAX:], *_level_changes(series, row["from_ms"])]

    def _levels(self, rows: Sequence[Figures]) -> _Series:
        """Return how many clients and queues the topics of some incidents had around their begins."""
        found: _Series = {}
        begins, groups = [row["from_ms"] for row in rows], frozenset(row["group"] for row in rows)
        wanted = JournalQuery(since_ms=max(0, min(begins) - LEAD_MS), until_ms=max(begins) + _NOW_MS + 1, groups=groups)
        for folder in self._options.given.journals:
            for block in JournalReader(self._disk, folder).blocks(wanted):
                if isinstance(block, BlockGap):
                    continue
                here: dict[tuple[str, str, str, str], Level] = {}
                for (group, topic, _), time_ms, row in block.queues:
                    if group in groups:
                        key = block.head.cluster, block.head.node, group, topic
                        _, holders, queues = here.get(key, (0, 0, 0))
                        here[key] = time_ms, max(holders, row[_HOLDERS[block.tier]] or 0), queues + 1
                for key, level in here.items():
                    found.setdefault(key, []).append(level)
        return found


def _continued(before: Figures, row: Figures) -> Figures:
    """Return the row of an incident that one piece has the begin of, and the next one the rest."""
    severity, held = max(before["severity"], row["severity"]), dict[str | None, int]()
    for each in (before, row):
        if each["severity"] == severity:
            held.update({cause: held.get(cause, 0) + passed_ms for cause, passed_ms in each["held"].items()})
    highest = {
        name: max((each[name] for each in (before, row) if each[name] is not None), default=None)
        for name in ("lag", "age_ms")
    }
    own = {"severity": severity, "held": held, "cause": longest(held), "lost": before["lost"] + row["lost"]}
    return {**before, **own, **highest, "last_ms": row["last_ms"], "until_ms": row["until_ms"]}


def _is_about(event: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether an event may have to do with an incident; retention continues all day, and matters where it takes."""
    if event["kind"] == EventKind.RETENTION.value and not row["lost"]:
        return False
    names = (event["group"], row["group"]), (event["topic"], row["topic"])
    is_here = event["cluster"] == row["cluster"] and (event["node"] == row["node"] or event["group"] != "")
    return is_here and all(of_event in ("", own) for of_event, own in names)


def _level_changes(series: Sequence[Level], from_ms: int) -> list[str]:
    """Say whether there are other numbers of clients or queues at the begin of an incident than before it."""
    settled = [each for each in series if from_ms - LEAD_MS <= each[0] < from_ms - _SETTLED_MS]
    now = [each for each in series if from_ms - _NOW_MS <= each[0] <= from_ms + _NOW_MS]
    found = []
    for place, name in ((1, "clients"), (2, "queues")):
        if settled and now:
            then, here = (median_low(each[place] for each in part) for part in (settled, now))
            if then != here:
                found.append(f"{name}: {then} before, {here} now")
    return found


def _entry(row: Figures) -> LedgerIncident:
    status = status_of(row["severity"])
    until_ms = row["last_ms"] if row["until_ms"] is None else row["until_ms"]
    return LedgerIncident(
        cluster=row["cluster"],
        group=row["group"],
        topic=row["topic"] or "",
        queue=row["queue"],
        from_ms=row["from_ms"],
        to_ms=row["until_ms"],
        seen_ms=row["last_ms"],
        seconds=(until_ms - row["from_ms"]) / 1000,
        status=status,
        level=statuses.BY_NAME[status].level.name,
        cause=(row["cause"] or "").replace("_", " "),
        peak_lag=row["lag"],
        peak_seconds=None if row["age_ms"] is None else row["age_ms"] / 1000,
        lost=row["lost"],
        changes=row["changes"],
    )


def _months(entries: Sequence[LedgerIncident], zone: str) -> list[Month]:
    sums: dict[tuple[str, str], list[LedgerIncident]] = {}
    for each in entries:
        sums.setdefault((texts.moment(each.from_ms, zone)[:7], each.cause), []).append(each)
    found = [
        Month(
            month=month,
            cause=cause,
            incidents=len(members),
            seconds=sum(each.seconds for each in members),
            lost=sum(each.lost for each in members),
        )
        for (month, cause), members in sums.items()
    ]
    return sorted(found, key=lambda each: (each.month, -each.seconds, each.cause))
