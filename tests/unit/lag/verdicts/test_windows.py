"""Windows of samples: how far back, how many, and what makes them begin anew."""

from __future__ import annotations

from lag.rules.facts import WindowRow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueKey, QueueSample
from lag.verdicts.windows import QUEUE_SAMPLES, NodeWindows

PLACE = ("g", "t", 0)


def usual(_group: str, _topic: str) -> LagLimits:
    """Return the rules' own thresholds."""
    return LagLimits()


def samples(windows: NodeWindows) -> list[WindowRow]:
    """Return what is kept of the queue."""
    return list(windows._rows[PLACE])


def test_window_reaches_back_five_minutes_and_one_sample_further() -> None:
    """What lies further back is forgotten."""
    windows = NodeWindows(300_000)
    for number in range(100):
        windows.add(PLACE, QueueSample(time_ms=number * 10_000, start=0, end=0, committed=0))
    kept = samples(windows)
    assert kept[-1].time_ms == 990_000
    assert kept[0].time_ms < 690_000 <= kept[1].time_ms


def test_quick_rounds_keep_samples_apart_and_the_newest() -> None:
    """A sample a second does not make the window longer in memory."""
    windows = NodeWindows(300_000)
    for number in range(1_000):
        windows.add(PLACE, QueueSample(time_ms=number * 1_000))
    kept = samples(windows)
    assert len(kept) <= QUEUE_SAMPLES[1] * 1.25
    assert kept[-1].time_ms == 999_000


def test_clock_that_goes_back_begins_the_window_anew() -> None:
    """Rules take samples in the order of their times."""
    windows = NodeWindows(300_000)
    for time_ms in (10_000, 20_000, 5_000, 15_000):
        windows.add(PLACE, QueueSample(time_ms=time_ms))
    assert [each.time_ms for each in samples(windows)] == [5_000, 15_000]


def test_of_two_samples_in_one_millisecond_the_later_counts() -> None:
    """A clock that is set back by as much as has passed gives a moment twice; that it can be judged is enough."""
    windows = NodeWindows()
    for end in (100, 130):
        windows.add(PLACE, QueueSample(time_ms=10_000, start=0, end=end, committed=90))
    assert [each.end for each in samples(windows)] == [130]
    [found] = windows.judged(10_000, usual)
    assert found.verdict.figures["lag"] == 40


def test_queue_that_is_in_no_round_any_more_is_forgotten() -> None:
    """Nothing alarms about what is gone."""
    windows = NodeWindows()
    key = QueueKey(cluster="c", node="n", group="g", topic="t", queue=0)
    windows.round([(key, QueueSample(time_ms=1))])
    assert len(windows) == 1
    windows.round([])
    assert (len(windows), windows.judged(5, usual)) == (0, [])


def test_reset_by_an_operator_is_no_rewind() -> None:
    """The same fall of the committed offset, with and without an event that says who did it."""

    def status(*events: LagEvent) -> str:
        windows = NodeWindows()
        for number, committed in enumerate((50, 60, 70, 10, 12)):
            sample = QueueSample(
                time_ms=number * 10_000, start=0, end=70, committed=committed, committed_ms=0, moved_ms=number * 10_000
            )
            windows.add(PLACE, sample)
        for event in events:
            windows.note(event)
        [(_, verdict, _)] = windows.judged(40_000, usual)
        return verdict.status

    assert status() == "REWIND"
    reset = LagEvent(time_ms=25_000, kind=EventKind.RESET, group="g", topic="t", queue=0)
    assert status(reset) != "REWIND"
