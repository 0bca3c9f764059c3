"""The course of a group, as its chart shows it: peaks, rates, gaps, restarts, and the ends of the span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lag.history.course import EVENTS_MAX, Course
from lag.history.reading import gather, span_of
from lag.journal.reader import JournalReader
from lag.samples import EventKind, LagEvent, QueueSample
from tests.unit.lag.history.test_trend import BEGIN_MS, EVERY_MS, Rounds, journal
from tests.unit.lag.journal.grounds import FOLDER

KEY = ("g", "t", 0)
OTHER = ("g", "t", 1)


def read(committed: int | None, end: int = 100) -> QueueSample:
    """Return a sample of a queue that is read up to here; None: the queue could not be read."""
    known = QueueSample(time_ms=BEGIN_MS, start=0, end=end, committed=committed)
    return known if committed is not None else replace(known, start=None, end=None)


def course(
    rounds: Rounds,
    *,
    parts: int,
    since: int = 0,
    until: int | None = None,
    events: Mapping[int, Sequence[LagEvent]] | None = None,
    silent: Sequence[int] = (),
) -> Course:
    """Return the course of group g over the rounds from `since` to before `until`."""
    since_ms = BEGIN_MS + since * EVERY_MS
    until_ms = BEGIN_MS + (len(rounds) if until is None else until) * EVERY_MS
    found = Course(since_ms, until_ms, "g", parts)
    for _ in gather(JournalReader(journal(rounds, events, silent), FOLDER), span_of(since_ms, until_ms), found):
        pass
    return found


def test_part_keeps_its_peak() -> None:
    """A rise of one sample is in the chart of a long span, even when lag is 0 at the end of the part."""
    lags = [0, 90, 0, 0, 5, 3]
    assert course([{KEY: read(100 - lag)} for lag in lags], parts=2).lag() == [90, 5]


def test_rates_are_by_the_ends_of_parts() -> None:
    """The first part has none: what was before it is not known."""
    found = course([{KEY: read(10 * at, 100 + 20 * at)} for at in range(4)], parts=4)
    assert found.finished() == [None, 1.0, 1.0, 1.0]
    assert found.published() == [None, 2.0, 2.0, 2.0]


def test_lag_is_not_known_while_the_node_is_silent() -> None:
    """Rates over the gap are the mean from its begin to its end."""
    found = course([{KEY: read(10 * at)} for at in range(5)], parts=5, silent=(1, 2))
    assert found.lag() == [100, None, None, 70, 60]
    assert found.finished() == [None, 1.0, 1.0, 1.0, 1.0]


def test_offsets_that_fall_are_no_negative_rate() -> None:
    """After a reset to an earlier offset, or a restart that lost progress, the rate is 0 and lag rises."""
    found = course([{KEY: read(each)} for each in (50, 60, 0, 10)], parts=4)
    assert found.lag() == [50, 40, 100, 90]
    assert found.finished() == [None, 1.0, 0.0, 1.0]


def test_queue_counts_from_its_first_known_part_to_its_last() -> None:
    """A new or removed topic does not blank the rest of the chart; a queue unreadable for a while does."""
    late = course([{KEY: read(95)}, {KEY: read(95), OTHER: read(90)}, {KEY: read(100), OTHER: read(90)}], parts=3)
    assert late.lag() == [5, 15, 10]
    assert late.finished() == [None, 0.0, 0.5]
    removed = course([{KEY: read(95), OTHER: read(90)}, {KEY: read(95)}], parts=2)
    assert removed.lag() == [15, 5]
    hole = course([{KEY: read(95), OTHER: read(None if at == 1 else 90)} for at in range(3)], parts=3)
    assert hole.lag() == [15, None, 15]


def test_span_begins_with_its_first_moment_and_ends_before_its_last() -> None:
    """Samples, events and other groups outside of it count for nothing."""
    rounds: Rounds = [{KEY: read(100 - at), ("other", "t", 0): read(0)} for at in range(5)]
    noted = {
        at: [LagEvent(time_ms=BEGIN_MS + at * EVERY_MS, kind=EventKind.RELOAD, group="")] for at in range(len(rounds))
    }
    found = course(rounds, parts=3, since=1, until=4, events=noted)
    assert found.lag() == [1, 2, 3]
    assert [each.time_ms for each in found.events] == [BEGIN_MS + at * EVERY_MS for at in (1, 2, 3)]


def test_events_are_the_last_ones_of_the_group_and_the_node() -> None:
    """Those of other groups are not in it, and there is a bound."""
    names = ["", "g", "other"] * EVENTS_MAX
    noted = {0: [LagEvent(time_ms=BEGIN_MS + at, kind=EventKind.RESET, group=name) for at, name in enumerate(names)]}
    found = course([{KEY: read(100)}, {KEY: read(100)}], parts=2, events=noted).events
    assert len(found) == EVENTS_MAX
    assert {each.group for each in found} == {"", "g"}
    assert found[-1].time_ms == BEGIN_MS + len(names) - 2


def test_group_without_samples_is_not_known() -> None:
    """Not a lag of 0."""
    found = course([{("other", "t", 0): read(0)}], parts=2)
    assert (found.lag(), found.finished(), found.published()) == ([None] * 2, [None] * 2, [None] * 2)
