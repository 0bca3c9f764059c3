"""What `watch` makes of the rounds of one node, batch by batch, without a session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from lag.journal.columns import QUEUES
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample
from tests.conftest import need_module
from tests.unit.lag.samples import NOW_MS

EVERY_MS = 10_000


@pytest.fixture(autouse=True)
def _needed() -> None:
    need_module("pyspark")
    need_module("pandas")


class State:
    """What Spark keeps of a node."""

    exists = False
    get: Any = None

    def update(self, value: Any) -> None:
        """Keep it."""
        self.exists, self.get = True, value


def sample(time_ms: int, **known: Any) -> QueueSample:
    """Make a sample of a queue that a consumer keeps up with."""
    usual = {"start": 0, "end": 900, "committed": 900, "holders": 1}
    moments = dict.fromkeys(("moved_ms", "asked_ms", "answered_ms"), time_ms)
    return QueueSample(time_ms=time_ms, **{**usual, **moments, **known})


def stopped(time_ms: int) -> QueueSample:
    """Make a sample of a queue that nobody reads any more."""
    moments = dict.fromkeys(("moved_ms", "asked_ms", "answered_ms", "committed_ms"), time_ms - 600_000)
    return sample(time_ms, committed=100, holders=0, **moments)


def a_round(
    number: int, time_ms: int, samples: Sequence[QueueSample], events: Sequence[LagEvent] = ()
) -> dict[str, Any]:
    """Make a row of a round, as the source does."""
    return {
        "file": 1, "position": number, "time_ms": time_ms, "silent": False,
        "samples": json.dumps([("g", "t", 0, each.time_ms, *QUEUES.values(each)) for each in samples]),
        "events": json.dumps([asdict(each) | {"kind": each.kind.value} for each in events]),
    }  # fmt: skip


def changes(batches: Sequence[Sequence[dict[str, Any]]], **options: Any) -> list[tuple[int, str, str]]:
    """Return the changes that batches of rounds make: seconds from the begin, group and status."""
    import pandas

    from lag.spark.jobs.watch import WatchOptions, _Judge

    judge, state = _Judge(WatchOptions(journals=["j"], checkpoint="c", **options)), State()
    found = []
    for batch in batches:
        for made in judge(("c", "n"), iter([pandas.DataFrame(batch)]), state):  # type: ignore[arg-type]
            found += made.to_dict("records")
    return [((each["timeMs"] - NOW_MS) // 1000, each["group"], each["status"]) for each in found]


@pytest.mark.parametrize("back_ms", [123_457, 120_000, 3_600_000])
@pytest.mark.parametrize("together", [1, 1000])
def test_rounds_after_a_clock_was_set_back_are_judged(back_ms: int, together: int) -> None:
    """In the order in which they were written, also in one batch: a group that stops then is reported."""
    rounds = [a_round(number, at := NOW_MS + number * EVERY_MS, [sample(at)]) for number in range(30)]
    begin_ms = NOW_MS + 30 * EVERY_MS - back_ms
    rounds += [
        a_round(30 + number, at, [stopped(at)])
        for number in range(10)
        for at in [begin_ms + number * EVERY_MS]
    ]  # fmt: skip
    batches = [rounds[at : at + together] for at in range(0, len(rounds), together)]
    [found] = changes(batches)
    assert found == ((begin_ms - NOW_MS) // 1000, "g", "STOP")


def test_last_entry_of_a_recorder_that_stops_is_no_round_without_queues() -> None:
    """`lag record --once` writes one after each round: windows reach over it."""
    rounds = []
    for number in range(10):
        at = NOW_MS + number * 60_000
        behind = sample(at, end=900 + 9 * number, committed=100 + number, committed_ms=at - 600_000)
        rounds.append(a_round(2 * number, at, [behind]))
        rounds.append(a_round(2 * number + 1, at + 50, [], [LagEvent(time_ms=at + 50, kind=EventKind.STOP)]))
    assert changes([[each] for each in rounds]) == [(120, "g", "WARN")]


def test_windows_are_as_long_as_the_limits_say() -> None:
    """A loss is reported for as long as on the node."""
    from lag.spark.jobs.watch import WatchedSubscription

    rounds = [
        a_round(number, at, [sample(at, expired=50 * (number >= 30))])
        for number in range(100)
        for at in [NOW_MS + number * EVERY_MS]
    ]  # fmt: skip
    hour = {("g", "t"): WatchedSubscription(limits=LagLimits(window_ms=3_600_000))}
    assert changes([rounds], subscribed=hour) == [(300, "g", "DATA_LOSS")]
    assert changes([rounds])[-1] == (670, "g", "OK")
