"""Trends: the worst of each part, the ends, the slope, and never a figure for what is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lag.history.reading import gather, span_of
from lag.history.trend import Trend, TrendLine
from lag.journal.reader import JournalReader
from lag.samples import LagEvent, QueueSample
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.journal.grounds import FOLDER, writer

BEGIN_MS = 1_760_000_000_000
EVERY_MS = 10_000

Rounds = list[dict[tuple[str, str, int], QueueSample]]


def sample(lag: int | None, at: int = 0) -> QueueSample:
    """Return a sample with this lag; None: the queue could not be read."""
    known = QueueSample(time_ms=BEGIN_MS + at * EVERY_MS, start=0, end=100, committed=100 - (lag or 0))
    return known if lag is not None else replace(known, start=None, end=None)


def journal(
    rounds: Rounds, events: Mapping[int, Sequence[LagEvent]] | None = None, silent: Sequence[int] = ()
) -> SimDisk:
    """Write a round every 10 s, with events before some, and without those in which the node was silent."""
    disk = SimDisk()
    journal = writer(disk)
    for at, queues in enumerate(rounds):
        if at in silent:
            continue
        for event in (events or {}).get(at, ()):
            journal.note(event)
        journal.begin(BEGIN_MS + at * EVERY_MS)
        journal.add((key, replace(each, time_ms=BEGIN_MS + at * EVERY_MS)) for key, each in queues.items())
        assert journal.end()
    journal.close(BEGIN_MS + len(rounds) * EVERY_MS)
    return disk


def trend(rounds: Rounds, *, parts: int, group: str | None = None) -> Trend:
    """Return the trend of the journal over all rounds."""
    until_ms = BEGIN_MS + len(rounds) * EVERY_MS
    found = Trend(BEGIN_MS, until_ms, group, parts)
    for _ in gather(JournalReader(journal(rounds), FOLDER), span_of(BEGIN_MS, until_ms), found):
        pass
    return found


def test_part_keeps_its_worst_and_the_ends_are_the_last_of_theirs() -> None:
    """A peak of one sample is seen; the slope is of the ends of the parts."""
    lags = [0, 9, 1, 2, 30, 3, 4, 4, 5]
    found = trend([{("g", "t", 0): sample(each)} for each in lags], parts=3).queues()
    assert found == {("g", "t", 0): TrendLine(first=1, last=5, slope=2 / 30, parts=[9, 30, 5])}


def test_group_is_the_sum_of_its_queues() -> None:
    """And another group's are not in it."""
    rounds: Rounds = [
        {("g", "t", 0): sample(1 + at), ("g", "t", 1): sample(10), ("other", "t", 0): sample(99)} for at in range(4)
    ]
    assert trend(rounds, parts=2).groups()["g"].parts == [12, 14]
    only = trend(rounds, parts=2, group="g")
    assert list(only.groups()) == ["g"]
    assert len(only.queues()) == 2


def test_sum_over_a_queue_that_is_not_known_meanwhile_is_not_known() -> None:
    """It would look as if lag had fallen; before its first sample and after its last one it is no part of the sum."""
    hole: Rounds = [{("g", "t", 0): sample(5), ("g", "t", 1): sample(7 if at != 1 else None)} for at in range(3)]
    assert trend(hole, parts=3).groups()["g"].parts == [12, None, 12]
    late: Rounds = [{("g", "t", 0): sample(5)}, {("g", "t", 0): sample(5), ("g", "t", 1): sample(7)}]
    assert trend(late, parts=2).groups()["g"].parts == [5, 12]


def test_queue_of_which_nothing_is_known_has_no_line() -> None:
    """And what is before the span is not in it."""
    rounds: Rounds = [{("g", "t", 0): sample(None)}]
    assert trend(rounds, parts=2).queues() == {}
    found = Trend(BEGIN_MS + EVERY_MS, BEGIN_MS + 3 * EVERY_MS, parts=2)
    rounds = [{("g", "t", 0): sample(lag)} for lag in (50, 1, 2)]
    for _ in gather(JournalReader(journal(rounds), FOLDER), span_of(BEGIN_MS, BEGIN_MS + 30_000), found):
        pass
    assert found.queues()["g", "t", 0].parts == [1, 2]
