"""Queues are judged as the rules judge them, and no more often than that can change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker.runtime.steps import run_now
from conf import loads
from lag.rules.limits import LagLimits
from lag.samples import QueueKey, QueueSample
from lag.verdicts.windows import JudgedQueue, NodeWindows, Place
from proxy.operate.lookups.lag import lag_queues
from proxy.recording.in_force import InForce
from proxy.recording.judging import LEISURELY_SHARE, QUIET_MS, REUSE_MS, SECONDS_MAX, SHARE, QueueJudge
from pyddmq.testing import ManualClock

BEGIN_MS = 1_700_000_000_000
EVERY_MS = 10_000


class Counted(NodeWindows):
    """Counts the queues that are judged; each takes some time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = 0.0
        self.judgements = 0

    def judging_topic(self, group: str, topic: str, numbers, now_ms: int, limits: LagLimits):  # type: ignore[no-untyped-def]
        for each in super().judging_topic(group, topic, numbers, now_ms, limits):
            if each is not None:
                self.judgements += 1
                self.clock.advance(self.seconds)
            yield each


class Fleet:
    """A group with some idle queues, round by round.

    Args:
        queues: How many.
    """

    def __init__(self, queues: int = 3) -> None:
        self.clock = ManualClock(BEGIN_MS)
        self.windows = Counted(self.clock)
        self.judge = QueueJudge(self.windows, self.clock, lambda _: None)
        self.now_ms = BEGIN_MS
        self.samples = [
            QueueSample(
                time_ms=0, start=0, end=9, committed=9, started=9, start_ms=1, end_ms=1, moved_ms=1, answered_ms=1
            )
            for _ in range(queues)
        ]

    def round(self, rounds: int = 1, change: Callable[[QueueSample], QueueSample] = lambda sample: sample) -> None:
        """Take rounds; the last queue's samples are changed."""
        for _ in range(rounds):
            self.now_ms += EVERY_MS
            self.samples[-1] = change(self.samples[-1])
            self.samples = [replace(each, time_ms=self.now_ms, asked_ms=self.now_ms) for each in self.samples]
            keys = [
                QueueKey(cluster="c", node="n", group="g", topic="t", queue=queue) for queue in range(len(self.samples))
            ]
            self.windows.round(zip(keys, self.samples, strict=True))

    def judged(self, *, leisurely: bool = False) -> dict[Place, str]:
        """Judge now; the statuses are those of the rules."""
        found: list[JudgedQueue] = run_now(self.judge.judging(self.now_ms, leisurely=leisurely)).judged
        return {each.place: each.verdict.status for each in found}

    def asked(self, *, leisurely: bool = False) -> int:
        """Judge now; returns how many queues were judged for that."""
        before = self.windows.judgements
        self.judged(leisurely=leisurely)
        return self.windows.judgements - before


def test_idle_queues_are_judged_seldom_and_their_samples_are_the_newest() -> None:
    """Over rounds in which nothing changes but that clients pull."""
    fleet = Fleet()
    fleet.round(30)
    assert fleet.asked() == 3
    rounds = QUIET_MS // EVERY_MS
    for _ in range(rounds - 1):
        fleet.round()
        assert fleet.asked() == 0
        [first, *_] = run_now(fleet.judge.judging(fleet.now_ms)).judged
        assert first.sample.time_ms == fleet.now_ms
    fleet.round()
    assert fleet.asked() == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda sample: replace(sample, end=sample.end + 1),
        lambda sample: replace(sample, end=sample.end + 1, committed=sample.committed + 1),
        lambda sample: replace(sample, committed=sample.committed - 1),
        lambda sample: replace(sample, expired=sample.expired + 1),
        lambda sample: replace(sample, start=None, end=None),
        lambda sample: replace(sample, paused=True),
    ],
    ids=["message", "consumed", "rewound", "lost", "unreadable", "paused"],
)
def test_what_changed_is_judged_at_once_and_as_by_the_rules_alone(change: Callable[[QueueSample], QueueSample]) -> None:
    """Whatever it is that changed."""
    fleet = Fleet()
    fleet.round(30)
    fleet.judged()
    fleet.round(1, change)
    alone = {each.place: each.verdict.status for each in fleet.windows.judged(fleet.now_ms, lambda *_: LagLimits())}
    assert fleet.judged() == alone
    fleet.round(8)
    alone = {each.place: each.verdict.status for each in fleet.windows.judged(fleet.now_ms, lambda *_: LagLimits())}
    assert fleet.judged() == alone


def test_samples_that_grow_old_are_judged_again() -> None:
    """A recorder that stopped is noticed."""
    fleet = Fleet()
    fleet.round(30)
    fleet.judged()
    fleet.now_ms += REUSE_MS - 1
    assert fleet.asked() == 0
    fleet.now_ms += LagLimits().stale_ms
    assert set(fleet.judged().values()) == {"UNKNOWN"}


def test_judging_takes_its_share_of_the_loop_at_most() -> None:
    """However often anyone asks, and less for one that asks again and again."""
    fleet = Fleet()
    fleet.windows.seconds = 0.02
    for leisurely, share in ((False, SHARE), (True, LEISURELY_SHARE)):
        fleet.round(30, lambda sample: replace(sample, end=(sample.end or 0) + 1))
        fleet.clock.advance(SECONDS_MAX)
        assert fleet.asked() == 3
        rest = 3 * 0.02 / share
        for seconds, judged in ((rest - 0.1, 0), (0.2, 3)):
            fleet.clock.advance(seconds)
            fleet.round(1, lambda sample: replace(sample, end=(sample.end or 0) + 1))
            assert fleet.asked(leisurely=leisurely) == judged


def test_callers_between_two_rounds_get_one_judgement() -> None:
    """Also busy queues are judged once, until a sample, the limits or the age of the samples change."""
    fleet = Fleet()
    fleet.round(30, lambda sample: replace(sample, end=(sample.end or 0) + 1))
    first = run_now(fleet.judge.judging(fleet.now_ms))
    assert run_now(fleet.judge.judging(fleet.now_ms + REUSE_MS - 1)) is first
    assert run_now(fleet.judge.judging(fleet.now_ms + REUSE_MS)) is not first
    fleet.round(1, lambda sample: replace(sample, end=(sample.end or 0) + 1))
    assert fleet.asked() == 3


def test_views_of_queues_are_made_once_and_keep_up_with_their_samples() -> None:
    """Of idle queues with new samples only the moment changes."""
    fleet = Fleet()
    fleet.round(30)
    in_force = InForce(loads("").config)
    recorder: Any = SimpleNamespace(judge=fleet.judge, trouble=None, waiting=lambda: ())
    first, second = (run_now(lag_queues(recorder, in_force, fleet.now_ms)).queues for _ in range(2))
    assert [id(each) for each in first] == [id(each) for each in second]
    fleet.round()
    third = run_now(lag_queues(recorder, in_force, fleet.now_ms)).queues
    assert {each.time_ms for each in third} == {fleet.now_ms}
    assert [msgspec.structs.replace(each, time_ms=first[0].time_ms) for each in third] == list(first)


def test_verdict_is_never_older_than_its_bound() -> None:
    """However long judging takes."""
    fleet = Fleet()
    fleet.windows.seconds = 5.0
    fleet.round(30)
    assert fleet.asked() == 3
    fleet.round(1, lambda sample: replace(sample, end=(sample.end or 0) + 1))
    assert fleet.asked() == 0
    fleet.clock.advance(SECONDS_MAX + 0.1)
    assert fleet.asked(leisurely=True) == 3


def test_queue_that_was_never_written_to_is_counted_and_not_judged() -> None:
    """Until it has a message, or its sample is old."""
    fleet = Fleet()
    fleet.round(30, lambda sample: replace(sample, end=0, committed=0, started=0))
    found = run_now(fleet.judge.judging(fleet.now_ms))
    assert ([each.place[2] for each in found.judged], found.empty) == ([0, 1], {"g": 1})
    fleet.now_ms += LagLimits().stale_ms + 1
    assert fleet.judged() == dict.fromkeys((("g", "t", queue) for queue in range(3)), "UNKNOWN")


def test_offset_above_the_end_of_an_empty_queue_is_judged() -> None:
    """A topic that was made anew."""
    fleet = Fleet()
    fleet.round(30)
    fleet.round(3, lambda sample: replace(sample, end=0))
    assert fleet.judged()["g", "t", 2] == "AHEAD"
