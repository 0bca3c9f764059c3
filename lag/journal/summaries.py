"""What is kept of a queue's samples of a minute or an hour: the last of them whole, and the extremes of all.

A summary of summaries is the summary of all their samples, so hours are made of minutes. What a mean needs is kept as
sum and count; what was not known in a sample counts in neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lag.journal.columns import (
    FIRST_COLUMNS,
    QUEUE_COLUMNS,
    SCHEDULED_COLUMNS,
    Key,
    Row,
    columns_of,
    queue_sample,
    scheduled_sample,
    table_of,
)
from lag.samples import QueueSample, ScheduledSample


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """A queue of one group over a minute or an hour of one file.

    Lag is end - max(committed, start), 0 at least; age is the moment of the sample - `committed_ms`, 0 where the lag is
    0.

    Attributes:
        last: The last sample.
        first_ms: Moment of the first sample.
        samples: How many there were.
        unread: Samples in which the queue could not be read (`start` is null).
        lag_known: Samples in which the lag is known.
        lag_sum: Of all that is known.
        lag_min: The least; null: never known.
        lag_max: The most.
        age_known: Samples in which the age is known.
        age_sum_ms: Of all that is known.
        age_min_ms: The least; null: never known.
        age_max_ms: The most.
        end_first: `end` in the first sample that has it.
        committed_first: `committed` in the first sample that has it.
        committed_last: `committed` in the last sample that has it.
        rewinds: How often `committed` fell from one sample to the next.
        in_flight_max: The most in flight.
        waiting_max: The most waiting.
        retrying_max: The most retrying.
        limited_samples: Samples in which a rate limit held messages back.
        paused_samples: Samples in which it was paused.
    """

    last: QueueSample
    first_ms: int | None = None
    samples: int = 0
    unread: int = 0
    lag_known: int = 0
    lag_sum: int = 0
    lag_min: int | None = None
    lag_max: int | None = None
    age_known: int = 0
    age_sum_ms: int = 0
    age_min_ms: int | None = None
    age_max_ms: int | None = None
    end_first: int | None = None
    committed_first: int | None = None
    committed_last: int | None = None
    rewinds: int = 0
    in_flight_max: int = 0
    waiting_max: int = 0
    retrying_max: int = 0
    limited_samples: int = 0
    paused_samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSummary:
    """What waited by its own time, over a minute or an hour of one file.

    Attributes:
        last: The last sample.
        samples: How many there were.
        pending_max: The most pending.
        overdue_max: The most overdue.
        late_max_ms: Longest time for which one was overdue; null: none was.
    """

    last: ScheduledSample
    samples: int = 0
    pending_max: int = 0
    overdue_max: int = 0
    late_max_ms: int | None = None


_QUEUE_EXTRA: Final = (
    *("first_ms", "samples", "lag_min", "lag_max", "lag_sum", "lag_known", "end_first", "committed_first"),
    *(
        "committed_last",
        "age_min_ms",
        "age_max_ms",
        "age_sum_ms",
        "age_known",
        "in_flight_max",
        "waiting_max",
        "retrying_max",
    ),
    *("limited_samples", "paused_samples", "unread", "rewinds"),
)
_SCHEDULED_EXTRA: Final = ("samples", "pending_max", "overdue_max", "late_max_ms")

QUEUE_SUMMARIES: Final = table_of(
    (
        *columns_of(QueueSample, FIRST_COLUMNS, under="last."),
        *columns_of(QueueSummary, _QUEUE_EXTRA),
        *columns_of(QueueSample, QUEUE_COLUMNS[len(FIRST_COLUMNS) :], under="last."),
    )
)
"""Rows of queues: values of the last sample, those of the summary, and values of the last sample that came later."""
SCHEDULED_SUMMARIES: Final = table_of(
    (*columns_of(ScheduledSample, SCHEDULED_COLUMNS, under="last."), *columns_of(ScheduledSummary, _SCHEDULED_EXTRA))
)
"""Rows of what waits by its own time, likewise."""

_END, _COMMITTED, _START = (QUEUE_COLUMNS.index(name) for name in ("end", "committed", "start"))
_COMMITTED_MS, _IN_FLIGHT, _WAITING = (QUEUE_COLUMNS.index(name) for name in ("committed_ms", "in_flight", "waiting"))
_RETRYING, _LIMITED, _PAUSED = (QUEUE_COLUMNS.index(name) for name in ("retrying", "limited", "paused"))
_PENDING, _OVERDUE, _DUE_MS = (SCHEDULED_COLUMNS.index(name) for name in ("pending", "overdue", "oldest_due_ms"))


def queue_summary(time_ms: int, row: Row) -> QueueSummary:
    """Make a summary again, of the last sample's moment and values."""
    return QueueSummary(last=queue_sample(time_ms, _last(row)), **_extra(row))


def _last(row: Row) -> Row:
    """Return the values of the last sample in a summary's row."""
    return row[: len(FIRST_COLUMNS)] + row[len(FIRST_COLUMNS) + len(_QUEUE_EXTRA) :]


def _extra(row: Row) -> dict[str, Any]:
    """Return the summary's own values in its row."""
    own = row[len(FIRST_COLUMNS) : len(FIRST_COLUMNS) + len(_QUEUE_EXTRA)]
    return dict(zip(_QUEUE_EXTRA, own, strict=True))


def scheduled_summary(key: Key, time_ms: int, row: Row) -> ScheduledSummary:
    """Make a summary of what waits again, of its name, moment and values."""
    count = len(SCHEDULED_COLUMNS)
    extra = dict(zip(_SCHEDULED_EXTRA, row[count:], strict=True))
    return ScheduledSummary(last=scheduled_sample(key, time_ms, row[:count]), **extra)


class QueueSums:
    """Adds up the samples, or the summaries, of one queue."""

    __slots__ = ("_age", "_committed", "_extra", "_lag", "_row", "time_ms")

    def __init__(self) -> None:
        self.time_ms = 0
        self._row: Row = ()
        self._extra: dict[str, Any] = {}
        self._lag: list[int] = []
        self._age: list[int] = []
        self._committed: int | None = None

    def add(self, time_ms: int, row: Row) -> None:
        """Add a sample, as its moment and values."""
        end, committed, start = row[_END], row[_COMMITTED], row[_START]
        if not self._row:
            self._begin(time_ms)
        extra = self._extra
        extra["samples"] += 1
        if row is not self._row:
            if committed is not None:
                if self._committed is not None and committed < self._committed:
                    extra["rewinds"] += 1
                self._committed = committed
                if extra["committed_first"] is None:
                    extra["committed_first"] = committed
            if end is not None and extra["end_first"] is None:
                extra["end_first"] = end
            for name, index in (("in_flight_max", _IN_FLIGHT), ("waiting_max", _WAITING), ("retrying_max", _RETRYING)):
                extra[name] = max(extra[name], row[index])
            self._row = row
        extra["unread"] += start is None
        extra["limited_samples"] += row[_LIMITED]
        extra["paused_samples"] += row[_PAUSED]
        self.time_ms = time_ms
        if end is None or committed is None:
            return
        lag = max(end - max(committed, start or 0), 0)
        _grow(self._lag, lag, lag, lag, 1)
        if not lag:
            _grow(self._age, 0, 0, 0, 1)
        elif row[_COMMITTED_MS] is not None:
            age = max(time_ms - row[_COMMITTED_MS], 0)
            _grow(self._age, age, age, age, 1)

    def add_summary(self, time_ms: int, row: Row) -> None:
        """Add a summary, as the moment of its last sample and values."""
        values = _extra(row)
        if not self._row:
            self._begin(values["first_ms"])
        extra = self._extra
        first = values["committed_first"]
        if self._committed is not None and first is not None and first < self._committed:
            extra["rewinds"] += 1
        for name in ("samples", "unread", "rewinds", "limited_samples", "paused_samples"):
            extra[name] += values[name]
        for name in ("in_flight_max", "waiting_max", "retrying_max"):
            extra[name] = max(extra[name], values[name])
        for name in ("end_first", "committed_first"):
            if extra[name] is None:
                extra[name] = values[name]
        if values["lag_known"]:
            _grow(self._lag, values["lag_min"], values["lag_max"], values["lag_sum"], values["lag_known"])
        if values["age_known"]:
            _grow(self._age, values["age_min_ms"], values["age_max_ms"], values["age_sum_ms"], values["age_known"])
        self._row = _last(row)
        if values["committed_last"] is not None:
            self._committed = values["committed_last"]
        self.time_ms = time_ms

    def summary(self) -> QueueSummary:
        """Return the summary; there was something."""
        extra = {**self._extra, "committed_last": self._committed}
        if self._lag:
            extra["lag_min"], extra["lag_max"], extra["lag_sum"], extra["lag_known"] = self._lag
        if self._age:
            extra["age_min_ms"], extra["age_max_ms"], extra["age_sum_ms"], extra["age_known"] = self._age
        return QueueSummary(last=queue_sample(self.time_ms, self._row), **extra)

    def _begin(self, first_ms: int) -> None:
        self._extra = {
            "first_ms": first_ms,
            **dict.fromkeys(("samples", "unread", "rewinds", "in_flight_max", "waiting_max", "retrying_max"), 0),
            **dict.fromkeys(("limited_samples", "paused_samples"), 0),
            **dict.fromkeys(("end_first", "committed_first")),
        }


class ScheduledSums:
    """Adds up the samples, or the summaries, of what waits under one name."""

    __slots__ = ("_extra", "_key", "_row", "time_ms")

    def __init__(self, key: Key) -> None:
        self.time_ms = 0
        self._key = key
        self._row: Row = ()
        self._extra: list[Any] = [0, 0, 0, None]

    def add(self, time_ms: int, row: Row) -> None:
        """Add a sample, as its moment and values."""
        due = row[_DUE_MS]
        self._add(time_ms, row, (1, row[_PENDING], row[_OVERDUE], None if due is None else max(time_ms - due, 0)))

    def add_summary(self, time_ms: int, row: Row) -> None:
        """Add a summary, as the moment of its last sample and values."""
        count = len(SCHEDULED_COLUMNS)
        self._add(time_ms, row[:count], row[count:])

    def _add(self, time_ms: int, row: Row, extra: Row) -> None:
        mine = self._extra
        late = [each for each in (mine[3], extra[3]) if each is not None]
        self._extra = [
            mine[0] + extra[0],
            max(mine[1], extra[1]),
            max(mine[2], extra[2]),
            max(late) if late else None,
        ]
        self._row, self.time_ms = row, time_ms

    def summary(self) -> ScheduledSummary:
        """Return the summary; there was something."""
        return scheduled_summary(self._key, self.time_ms, (*self._row, *self._extra))


def _grow(sums: list[int], least: int, most: int, total: int, count: int) -> None:
    """Add to least, most, sum and count; empty before the first."""
    if sums:
        sums[0], sums[1] = min(sums[0], least), max(sums[1], most)
        sums[2] += total
        sums[3] += count
    else:
        sums.extend((least, most, total, count))
