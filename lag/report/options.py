"""What a report is made of and over: its input, window and options, for both engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lag.export.names import shown_place
from lag.rules.limits import LagLimits
from lag.rules.statuses import SEVERITY

BUCKETS: Final = 240
HEAT_BUCKETS: Final = 120
QUEUES_MAX: Final = 50
"""Queues of a group that are shown one by one."""
INCIDENTS_MAX: Final = 200
"""Incidents of a group's queues that are kept, the worst."""
PRECISE: Final = 1_000_000
"""Rates are summed as millionths of a message per second: integers have the same sum in any order."""
TIME_MIN_MS: Final = 946_684_800_000
"""The year 2000: message times before it were never set."""
AHEAD_MS: Final = 600_000
"""A message time further ahead of its sample was set by a wrong clock."""
MESSAGE_TIMES: Final = ("start_ms", "committed_ms", "started_ms", "end_ms")
"""Fields of a sample that are times of messages."""
_NAMES: Final = {rank: name for name, rank in SEVERITY.items()}


def status_of(severity: int) -> str:
    """Return the status of a severity."""
    return _NAMES[severity]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWindow:
    """What is reported on.

    Attributes:
        from_ms: Its begin.
        to_ms: Its end, exclusive.
        pause_ms: A longer pause between two samples of a queue is a gap; the shortest length of a bucket.
        counted_ms: Incidents count what was lost, and how long causes held, from this moment on: a window that is a
            piece of a longer one begins before it, to know what its first samples follow.
    """

    from_ms: int
    to_ms: int
    pause_ms: int = 1
    counted_ms: int = 0

    def __post_init__(self) -> None:
        """Refuse an empty one. Raises ValueError."""
        if self.to_ms <= self.from_ms:
            raise ValueError(f"the window ends at {self.to_ms}, which is not behind its begin, {self.from_ms}")

    @property
    def length_ms(self) -> int:
        """How long it is."""
        return self.to_ms - self.from_ms

    def width_ms(self, buckets: int) -> int:
        """Return how long a bucket is: the last one may reach over the end."""
        part_ms = max(1, -(-self.length_ms // buckets))
        return part_ms * max(1, -(-self.pause_ms // part_ms))

    def count(self, buckets: int) -> int:
        """Return how many buckets of this width the window has."""
        return -(-self.length_ms // self.width_ms(buckets))


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where samples are, of one kind: a node's journal and what was exported of it have the same samples.

    Attributes:
        journals: Folders of lag journals.
        exported: Places of exported Parquet.
        groups: Names; null: all.
        unreadable: Exported files that Spark could not read, by their names below the place; they do not count.
    """

    journals: Sequence[str] = ()
    exported: Sequence[str] = ()
    groups: frozenset[str] | None = None
    unreadable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse none, and both. Raises ValueError."""
        if bool(self.journals) == bool(self.exported):
            raise ValueError("samples come from journals or from exported files: give --journal or --exported")

    @property
    def sources(self) -> list[str]:
        """Where it is, for people."""
        return [*self.journals, *map(shown_place, self.exported)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What is to be reported.

    Attributes:
        given: Where the samples are, and of which groups.
        window: The window.
        limits: Thresholds.
        title: The report's title.
        compared: Whether the preceding period of equal length is compared.
        made_ms: The moment that the report says it was made at.
        parquet: A folder or place that the figures of each queue and part of the window are written to, by date, as
            `lag.spark.jobs.history.PARTS` has them; days that the window touches are replaced. "": nowhere.
        contacts: Whom to call about a group, by its name.
        timezone: Name of the time zone that moments are shown in beside UTC.
    """

    given: Input
    window: ReportWindow
    limits: LagLimits
    title: str = "Consumption lag"
    compared: bool = True
    made_ms: int = 0
    parquet: str = ""
    contacts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timezone: str = "UTC"


Group = tuple[str, str]
"""Cluster and name."""
Figures = dict[str, Any]
"""A row of a reduction, by the names of its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """What an engine makes of samples: few rows, of which `lag.report.engine.parts` makes the report.

    Sums are integers, so that both engines come to the same digits.

    Attributes:
        objectives: A row per group: `samples`, `kept` (in time), `known_ms`, `over_ms`, `ended`, `ended_kept`, `lost`,
            `queues`, and `pause_ms`, the longest pause between two samples that is no gap.
        earlier: The same of the period before the window.
        buckets: A row per group and bucket: `lag`, `age_ms`, `severity`, `produced` and `consumed` (of `PRECISE`).
        last: A row per queue, its last sample with all facts, of a group the worst `2 * QUEUES_MAX`, by `place`.
        heat: A row per bucket of a group's worst queues, and of the sum of its others, whose topic is null.
        incidents: A row per incident of a queue, of a group the worst `INCIDENTS_MAX`: `from_ms`, `last_ms` (its last
            sample), `until_ms` (null: open), `severity`, `cause`, `held` (ms by cause while it was worst), `facts`,
            `lag`, `age_ms`, `lost`.
        events: What happened, from a day before the window on.
        gaps: What is missing, a line each.
        refused: Samples with message times that cannot be, by node.
        pause_ms: The longest pause of all groups.
    """

    objectives: Sequence[Figures]
    earlier: Sequence[Figures]
    buckets: Sequence[Figures]
    last: Sequence[Figures]
    heat: Sequence[Figures]
    incidents: Sequence[Figures]
    events: Sequence[Figures]
    gaps: Sequence[str]
    refused: Mapping[str, int]
    pause_ms: int
